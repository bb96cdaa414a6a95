package mcpguard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// An Upstream is one MCP server behind a [Proxy], under /mcp/ and its guard's
// name.
type Upstream struct {
	Guard *Guard
	URL   *url.URL // its streamable HTTP endpoint
	// Key gives a bearer token of our own, put in the place of the caller's; nil
	// passes the caller's on.
	Key func() string
}

// A Caller is who sent a request, as far as that could be proven. What is set
// goes before what the request says.
type Caller struct{ Tenant, Agent string }

// ProxyOptions shape a [Proxy].
type ProxyOptions struct {
	// Base sends. Default: a transport of its own without compression.
	Base http.RoundTripper
	// Callers proves who sent a request; nil believes the headers.
	Callers func(*http.Request) (Caller, error)
	// InFlight is the most requests at once, streams included. Default 4096.
	InFlight int
}

// A Proxy is an http.Handler in front of MCP servers that speak over streamable
// HTTP. A client changes one URL.
type Proxy struct {
	o       ProxyOptions
	servers map[string]*upstream
	names   []string
	places  chan struct{}
}

// upstream is a server and its sessions.
type upstream struct {
	Upstream
	p        *Proxy
	sessions sessions
	pace     pace
}

// NewProxy checks the options and builds a proxy. It starts nothing.
func NewProxy(servers []Upstream, o ProxyOptions) (*Proxy, error) {
	if o.Base == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.DisableCompression = true
		t.MaxIdleConnsPerHost = 256
		o.Base = t
	}
	if o.InFlight <= 0 {
		o.InFlight = 4096
	}
	p := &Proxy{o: o, servers: map[string]*upstream{}, places: make(chan struct{}, o.InFlight)}
	for _, u := range servers {
		if u.Guard == nil || u.URL == nil || u.URL.Host == "" {
			return nil, errors.New("mcpguard.Upstream: Guard and URL are required")
		}
		name := u.Guard.Server()
		if p.servers[name] != nil {
			return nil, fmt.Errorf("MCP server %q: a second one with that name", name)
		}
		p.servers[name] = &upstream{Upstream: u, p: p}
		p.names = append(p.names, name)
	}
	return p, nil
}

const uploadTime = 2 * time.Minute // longest time in which a request's body is read

// ServeHTTP answers for /mcp/NAME.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, ok := strings.CutPrefix(r.URL.EscapedPath(), "/mcp/")
	u := p.servers[strings.TrimSuffix(name, "/")]
	if !ok || u == nil {
		p.problem(w, http.StatusNotFound, nil, "no MCP server is configured under this path; configured are "+p.list())
		return
	}
	select {
	case p.places <- struct{}{}:
		defer func() { <-p.places }()
	default:
		p.problem(w, http.StatusServiceUnavailable, nil, "too many requests are in flight already")
		return
	}
	who, err := p.identify(r, u)
	if err != nil {
		status := http.StatusBadRequest
		if _, unknown := errors.AsType[unknownCaller](err); unknown {
			status = http.StatusUnauthorized
		}
		p.problem(w, status, nil, err.Error())
		return
	}
	switch r.Method {
	case http.MethodPost:
		u.post(w, r, who)
	case http.MethodGet:
		u.get(w, r, who)
	case http.MethodDelete:
		u.delete(w, r, who)
	default:
		w.Header().Set("Allow", "POST, GET, DELETE")
		p.problem(w, http.StatusMethodNotAllowed, nil, "an MCP endpoint takes POST, GET and DELETE")
	}
}

func (p *Proxy) list() string {
	if len(p.names) == 0 {
		return "none; add [[mcp]] to fusebox.toml"
	}
	return "/mcp/" + strings.Join(p.names, ", /mcp/")
}

type unknownCaller struct{ error }

// identify says on whose behalf a request is made.
func (p *Proxy) identify(r *http.Request, u *upstream) (Identity, error) {
	var proven Caller
	if p.o.Callers != nil {
		var err error
		if proven, err = p.o.Callers(r); err != nil {
			return Identity{}, unknownCaller{err}
		}
	}
	who, err := identityOf(r.Header)
	if err != nil {
		return who, err
	}
	if proven.Tenant != "" {
		who.Tenant = proven.Tenant
	}
	if proven.Agent != "" {
		who.Agent = proven.Agent
	}
	secret := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if u.Key != nil {
		secret = u.Key()
	}
	if secret != "" {
		who.Credential = u.Guard.print("", secret)
	}
	return who, nil
}

// problem answers a request that is not passed on, as a JSON-RPC error.
func (p *Proxy) problem(w http.ResponseWriter, status int, id []byte, text string) {
	writeJSON(w, status, fault(id, codeRequest, text))
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // an error means that the caller has gone
}

// post carries one message of a client, or refuses it.
func (u *upstream) post(w http.ResponseWriter, r *http.Request, who Identity) {
	body, status, text := u.body(w, r)
	if text != "" {
		u.p.problem(w, status, nil, text)
		return
	}
	hs, ok := u.sessions.of(u, r.Header.Get(sessionHeader), &who)
	if !ok {
		u.p.problem(w, http.StatusNotFound, nil, "the session is not known; initialize a new one")
		return
	}
	out := newOutlet(w)
	defer out.close()
	st := hs.accept(body, who, out.answer)
	if st.call != nil {
		st = hs.admit(context.WithoutCancel(r.Context()), body, st.call)
	}
	switch {
	case st.reply != nil:
		if m, err := parse(body); err != nil || !m.isRequest() {
			out.json(http.StatusBadRequest, st.reply)
			return
		}
		out.json(http.StatusOK, st.reply)
	case st.forward == nil:
		out.status(http.StatusAccepted)
	default:
		x := &exchange{u: u, hs: hs, call: st.call, body: st.forward, who: who, out: out, method: http.MethodPost, in: r}
		x.carry(r.Context())
	}
}

// body reads what a client sent, and says what is wrong with it.
func (u *upstream) body(w http.ResponseWriter, r *http.Request) (body []byte, status int, text string) {
	if enc := r.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return nil, http.StatusUnsupportedMediaType, "the body is compressed, and must be readable"
	}
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Now().Add(uploadTime)) // what cannot set one has none
	body, err := io.ReadAll(io.LimitReader(r.Body, u.Guard.o.Message+1))
	if err != nil {
		return nil, http.StatusBadRequest, "the body could not be read: " + err.Error()
	}
	if int64(len(body)) > u.Guard.o.Message {
		return nil, http.StatusRequestEntityTooLarge, fmt.Sprintf("the message is larger than %d bytes", u.Guard.o.Message)
	}
	_ = conn.SetReadDeadline(time.Time{})
	return body, http.StatusBadRequest, mirrored(r.Header, body)
}

// mirrored checks the headers that repeat what the body says: a server, or
// something in front of it, may act by them.
func mirrored(h http.Header, body []byte) string {
	method, name := h.Get("Mcp-Method"), h.Get("Mcp-Name")
	if method == "" && name == "" {
		return ""
	}
	m, err := parse(body)
	if err != nil {
		return "" // refused for itself
	}
	if method != "" && method != m.method {
		return "the header mcp-method is not the method of the message"
	}
	if m.method == "tools/call" && name != "" {
		if c, err := readCall(m.params); err == nil && c.name != name {
			return "the header mcp-name is not the name of the tool"
		}
	}
	return ""
}

// get opens the stream on which a server speaks by itself, or resumes one.
func (u *upstream) get(w http.ResponseWriter, r *http.Request, who Identity) {
	u.plain(w, r, who, http.MethodGet)
}

// delete ends a session.
func (u *upstream) delete(w http.ResponseWriter, r *http.Request, who Identity) {
	if u.plain(w, r, who, http.MethodDelete) {
		u.sessions.drop(r.Header.Get(sessionHeader))
	}
}

func (u *upstream) plain(w http.ResponseWriter, r *http.Request, who Identity, method string) bool {
	hs, ok := u.sessions.of(u, r.Header.Get(sessionHeader), &who)
	if !ok {
		u.p.problem(w, http.StatusNotFound, nil, "the session is not known; initialize a new one")
		return false
	}
	out := newOutlet(w)
	defer out.close()
	x := &exchange{u: u, hs: hs, who: who, out: out, method: method, in: r}
	x.carry(r.Context())
	return true
}

// request addresses one message to the server.
func (x *exchange) request(ctx context.Context, session string) (*http.Request, error) {
	var body io.Reader
	if x.body != nil {
		body = bytes.NewReader(x.body)
	}
	req, err := http.NewRequestWithContext(ctx, x.method, x.u.URL.String(), body)
	if err != nil {
		return nil, err
	}
	req.GetBody = nil // or net/http may send the body a second time by itself
	passed(req.Header, x.in.Header)
	if session != "" {
		req.Header.Set(sessionHeader, session)
	}
	if x.u.Key != nil {
		req.Header.Set("Authorization", "Bearer "+x.u.Key())
	}
	if x.call != nil && x.call.attempt.op.Effect.Writes() {
		if _, name := keyAt(x.call.attempt.tool); name != "" {
			// In lower case: net/http replays a request by itself that has the
			// canonical Idempotency-Key.
			req.Header[strings.ToLower(name)] = []string{x.call.attempt.op.IdempotencyKey}
		}
	}
	return req, nil
}

// hop are headers of one connection, and those that would not be true any more.
var hop = map[string]bool{"Connection": true, "Proxy-Connection": true, "Keep-Alive": true, "Proxy-Authenticate": true, "Proxy-Authorization": true,
	"Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true, "Content-Length": true, "Host": true, "Origin": true, "Accept-Encoding": true}

// passed copies what a client's headers say to the server, but what was meant
// for us.
func passed(to, from http.Header) {
	named := map[string]bool{}
	for _, v := range from.Values("Connection") {
		for name := range strings.SplitSeq(v, ",") {
			named[http.CanonicalHeaderKey(strings.TrimSpace(name))] = true
		}
	}
	for k, v := range from {
		if hop[k] || named[k] || strings.HasPrefix(k, "Fusebox-") || k == "Idempotency-Key" || k == sessionHeader {
			continue
		}
		to[k] = v
	}
	to.Set("Accept-Encoding", "identity")
	if _, ok := to["User-Agent"]; !ok {
		to.Set("User-Agent", "")
	}
}
