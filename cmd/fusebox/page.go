package main

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"time"
)

//go:embed page
var pageFiles embed.FS

var pageTemplate = template.Must(template.New("status.html").Funcs(template.FuncMap{
	"stamp": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"clock": func(t time.Time) string { return t.UTC().Format("15:04:05 UTC") },
	"since": func(now, t time.Time) string { return ago(now.Sub(t)) },
	"until": func(now, t time.Time) string {
		if !t.After(now) {
			return "now"
		}
		return "in " + span(t.Sub(now))
	},
}).ParseFS(pageFiles, "page/status.html"))

// pageHeaders keep the page from being framed, from running anything, and from
// being stored: it shows what is wrong with a running system.
func pageHeaders(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
}

// statusPage is GET / on the operator plane: what is open and why, for people.
func (s *server) statusPage(w http.ResponseWriter, r *http.Request) {
	pageHeaders(w.Header())
	var out bytes.Buffer
	if err := pageTemplate.Execute(&out, s.status(r.Context())); err != nil {
		http.Error(w, "the page could not be drawn: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(out.Bytes()) // a browser that went away sees nothing
}

// statusJSON is GET /status.json, the same for machines.
func (s *server) statusJSON(w http.ResponseWriter, r *http.Request) {
	writeAnswer(w, http.StatusOK, s.status(r.Context()))
}

func pageStyle(w http.ResponseWriter, _ *http.Request) {
	css, err := pageFiles.ReadFile("page/page.css")
	if err != nil {
		panic(fmt.Sprintf("embedded file is missing: %v", err)) // a build without it does not start to serve
	}
	pageHeaders(w.Header())
	w.Header().Set("Content-Type", "text/css; charset=utf-8")
	_, _ = w.Write(css)
}
