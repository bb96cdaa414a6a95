package main

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"net/http"
	"sync/atomic"
	"time"
)

//go:embed page/*.html page/*.css page/*.js page/*.svg
var pageFiles embed.FS

// A page is what the operator page remembers between two looks. The zero value
// is ready.
type page struct {
	journal  journal
	why      whyCache
	trials   trials
	watchers watchers
	verifier verifier
	verified atomic.Pointer[verifyDoc]
}

var (
	pageTemplate    = template.Must(template.New("status.html").Funcs(pageFuncs).ParseFS(pageFiles, "page/*.html"))
	receiptTemplate = pageTemplate.Lookup("receipt.html")
	pageDigest      = digestOfFiles()
)

var pageFuncs = template.FuncMap{
	"stamp":    func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"clock":    func(t time.Time) string { return t.UTC().Format("15:04:05 UTC") },
	"day":      func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") },
	"words":    words,
	"short":    short,
	"allowed":  allowed,
	"tail":     shortID,
	"gateMood": func(result string) string { return map[string]string{"holds": "good", "breaks": "bad"}[result] },
	"since":    func(now, t time.Time) string { return ago(now.Sub(t)) },
	"until": func(now, t time.Time) string {
		if !t.After(now) {
			return "now"
		}
		return "in " + span(t.Sub(now))
	},
}

// digestOfFiles names what a browser holds of the page: another build's page is
// loaded anew.
func digestOfFiles() string {
	sum := sha256.New()
	files, _ := pageFiles.ReadDir("page") // it is embedded
	for _, f := range files {
		sum.Write(embedded("page/" + f.Name()))
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

func embedded(name string) []byte {
	b, err := pageFiles.ReadFile(name)
	if err != nil {
		panic(fmt.Sprintf("embedded file is missing: %v", err)) // a build without it does not start
	}
	return b
}

// pageHeaders let the page run its own script and nothing else; it is not
// framed, not stored, and sends nothing elsewhere.
func pageHeaders(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
}

// pageRoutes are the page, its files, its stream and what only it asks for.
func (s *server) pageRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /{$}", s.statusPage)
	mux.HandleFunc("GET /events", s.getEvents)
	mux.HandleFunc("GET /receipts/{id}", s.receiptPage)
	mux.HandleFunc("GET /page.css", pageFile("page/page.css", "text/css; charset=utf-8"))
	mux.HandleFunc("GET /page.js", pageFile("page/page.js", "text/javascript; charset=utf-8"))
	mux.HandleFunc("POST /verify", s.postVerify)
	mux.HandleFunc("GET /icon.svg", pageFile("page/icon.svg", "image/svg+xml"))
}

// statusPage is GET / on the operator plane: what is open and why, for people.
func (s *server) statusPage(w http.ResponseWriter, r *http.Request) {
	d := s.status(r.Context())
	d.You = s.you(r)
	drawPage(w, http.StatusOK, pageTemplate, &d)
}

func drawPage(w http.ResponseWriter, status int, t *template.Template, view any) {
	pageHeaders(w.Header())
	var out bytes.Buffer
	if err := t.Execute(&out, view); err != nil {
		http.Error(w, "the page could not be drawn: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes()) // a browser that went away sees nothing
}

// statusJSON is GET /status.json, the same for machines.
func (s *server) statusJSON(w http.ResponseWriter, r *http.Request) {
	d := s.status(r.Context())
	d.You = s.you(r)
	writeAnswer(w, http.StatusOK, &d)
}

func pageFile(name, kind string) http.HandlerFunc {
	b := embedded(name)
	return func(w http.ResponseWriter, _ *http.Request) {
		pageHeaders(w.Header())
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write(b)
	}
}
