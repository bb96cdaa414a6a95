package httpguard

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/taxonomy"
	"github.com/fusebox-dev/fusebox/taxonomy/jsonscan"
)

// Alternates in one call, beside the upstream that was asked for. Each is an
// attempt of its own; without a bound two failing providers would send one call
// back and forth.
const maxAlternates = 2

// holdStream is how long the beginning of a stream is held back when something
// could stand in for it.
const holdStream = 10 * time.Second

// answer makes the attempt, and where it ended before its first content, asks
// whether another upstream of the same dialect may stand in. What may, policy
// declares (R-FBK-1, R-FBK-3): the alternate passes admission and its own
// circuits, and the caller is told.
func (p *Proxy) answer(req *http.Request, c *routed) reply {
	first := send(p.o.Engine, p.o.Base, req, &c.call)
	if first.ended == nil || c.call.wait == 0 {
		return first
	}
	var stand reply
	tried := map[string]bool{target(c.upstream.Provider, c.call.op.Model): true}
	taken, err := p.o.Engine.FallBack(req.Context(), first.ended, engine.Means{
		Kinds: []string{"alternate"},
		Carry: func(cand taxonomy.Candidate, op taxonomy.Operation) bool {
			next, to, ok := p.alternate(req.Context(), req, c, cand, op)
			if t := target(to.op.Provider, to.op.Model); !ok || tried[t] || len(tried) > maxAlternates {
				return false
			} else {
				tried[t] = true
			}
			stand = send(p.o.Engine, p.o.Base, next, to)
			if stand.err == nil && stand.ended == nil {
				return true
			}
			discard(stand)
			return false
		},
	})
	if err != nil {
		p.o.Log.Warn("fallback", "error", err)
	}
	if taken == nil {
		return first
	}
	discard(first)
	tell(stand.resp, taken)
	return stand
}

// target names what was tried: a fallback never goes back to it.
func target(provider, model string) string { return provider + "\x00" + model }

// discard closes an answer that nobody will read.
func discard(r reply) {
	if r.resp != nil && r.resp.Body != nil {
		_ = r.resp.Body.Close() // settled already
	}
}

// alternate prepares the request for a candidate: the same body with another
// model, or another upstream of the same dialect with a credential of its own.
func (p *Proxy) alternate(ctx context.Context, req *http.Request, c *routed, cand taxonomy.Candidate, op taxonomy.Operation) (*http.Request, *call, bool) {
	to, u := new(c.call), c.upstream
	if cand.Provider != "" && cand.Provider != u.Provider {
		if u = p.standIn(c.upstream, cand.Provider); u == nil {
			return nil, to, false
		}
	}
	to.op, to.ended = op, nil
	to.op.Provider, to.op.Region = u.Provider, u.Region
	to.headers, to.idle, to.kept = u.Limits.Headers, u.Limits.Idle, u.Limits.Kept
	if cand.Model != "" {
		to.op.Model = cand.Model
		body, ok := withModel(c.call.body, cand.Model)
		if !ok {
			return nil, to, false
		}
		to.body = body
	}
	out := req.Clone(ctx)
	out.URL = u.address(c.rest, req.URL.RawQuery)
	out.Host = out.URL.Host
	if u.Key != nil {
		key := u.Key()
		own(out.Header, u.Dialect, key)
		if p.o.Fingerprint != nil {
			to.op.Credential = p.o.Fingerprint("", key)
		}
	}
	out.Header.Del("Content-Length")
	return out, to, true
}

// standIn finds the upstream of a provider that speaks the same dialect. It
// needs a credential of ours: the caller's belongs to the other one.
func (p *Proxy) standIn(from *Upstream, provider string) *Upstream {
	for _, name := range p.names {
		if u := p.upstreams[name]; u.Provider == provider && u.Dialect == from.Dialect && u.Key != nil {
			return u
		}
	}
	return nil
}

// alternates reports whether something could stand in for this call: another
// upstream of the same dialect with a key of its own, or another model where the
// options say so. Then the beginning of a stream is worth holding back.
func (p *Proxy) alternates(c *call, u *Upstream) bool {
	if !c.model || len(c.body) == 0 || c.op.Effect.Writes() {
		return false
	}
	for _, o := range p.upstreams {
		if o != u && o.Dialect == u.Dialect && o.Key != nil {
			return true
		}
	}
	return p.o.Alternates
}

// withModel replaces the model that a request body names.
func withModel(body []byte, model string) ([]byte, bool) {
	s := jsonscan.ScanBytes(body, jsonscan.Options{Lenient: true})
	if s.Kind() != jsonscan.Object {
		return nil, false
	}
	s.EnterObject()
	for key, more := s.NextKey(); more; key, more = s.NextKey() {
		s.Kind() // over the white space before the value
		from := s.Offset()
		s.Skip()
		if key != "model" || s.Err() != nil {
			continue
		}
		out := append([]byte(nil), body[:from]...)
		out = jsonscan.AppendString(out, model)
		return append(out, body[s.Offset():]...), true
	}
	return nil, false
}

// tell discloses a fallback: which, why, and what is limited (R-FBK-2).
func tell(resp *http.Response, t *engine.Taken) {
	set := func(k, v string) {
		if v != "" {
			resp.Header.Set(k, headerText(v))
		}
	}
	set("Fusebox-Decision", "fallback")
	set("Fusebox-Fallback", t.Contract+"/"+t.Candidate.ID)
	set("Fusebox-Fallback-Reason", t.Reason)
	set("Fusebox-Fallback-Provider", t.Candidate.Provider)
	set("Fusebox-Fallback-Model", t.Candidate.Model)
	set("Fusebox-Fallback-Losses", strings.Join(t.Losses, ", "))
	set("Fusebox-Fallback-Prohibited", strings.Join(t.Prohibited, ", "))
	set("Fusebox-Fallback-Message", t.Candidate.Message)
}
