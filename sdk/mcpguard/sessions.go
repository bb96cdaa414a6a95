package mcpguard

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

const sessionHeader = "Mcp-Session-Id"

// An httpSession is a session over HTTP. The client keeps the id that it was
// given; the server's may change when it loses its sessions.
type httpSession struct {
	*session
	id string // as the client knows it; "" for a server without sessions

	renewing sync.Mutex // one initialisation at a time
	mu       sync.Mutex
	upstream string // as the server knows it now
	hello    []byte // the client's own initialize; nil where it did not pass here
	version  string // the protocol that was agreed on
	used     time.Time
}

// sessions are those of one server, by the id that the client knows.
type sessions struct {
	mu sync.Mutex
	by map[string]*httpSession
}

const sessionsMost = 10_000

// of finds the session of a request. One that is not known, after a restart, is
// taken over. A session of another tenant is none.
func (s *sessions) of(u *upstream, id string, who *Identity) (*httpSession, bool) {
	if id == "" {
		return &httpSession{session: u.Guard.newSession(*who)}, true
	}
	if who.Run == "" {
		h := sha256.Sum256([]byte(id))
		who.Run = "mcp-" + hex.EncodeToString(h[:8]) // the id itself is a secret
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	hs := s.by[id]
	if hs == nil {
		hs = &httpSession{session: u.Guard.newSession(*who), id: id, upstream: id}
		s.put(hs)
	}
	if hs.who.Tenant != who.Tenant {
		return nil, false
	}
	hs.used = time.Now()
	return hs, true
}

// begun notes a session that a server opened.
func (s *sessions) begun(hs *httpSession, id string, hello []byte, version string) {
	hs.id, hs.upstream, hs.hello, hs.version = id, id, hello, version
	s.mu.Lock()
	defer s.mu.Unlock()
	hs.used = time.Now()
	s.put(hs)
}

// put adds a session, and forgets the one that was idle longest where there are
// too many. What is forgotten still works; it only cannot be initialised again.
func (s *sessions) put(hs *httpSession) {
	if s.by == nil {
		s.by = map[string]*httpSession{}
	}
	if len(s.by) >= sessionsMost {
		var oldest *httpSession
		for _, o := range s.by {
			if (oldest == nil || o.used.Before(oldest.used)) && o.waiting() == 0 {
				oldest = o
			}
		}
		if oldest != nil {
			delete(s.by, oldest.id)
		}
	}
	s.by[hs.id] = hs
}

func (s *sessions) drop(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.by, id)
}

// current is the session's id at the server.
func (hs *httpSession) current() string {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return hs.upstream
}

// pace spreads initialisations: when a server restarts, all its sessions are
// lost at one moment.
type pace struct {
	mu   sync.Mutex
	next time.Time
}

const (
	paceStep   = 20 * time.Millisecond
	paceJitter = 200 * time.Millisecond
)

// wait returns when it is this one's turn.
func (p *pace) wait(ctx context.Context) error {
	p.mu.Lock()
	now := time.Now()
	if p.next.Before(now) {
		p.next = now
	}
	at := p.next.Add(rand.N(paceJitter))
	p.next = p.next.Add(paceStep)
	p.mu.Unlock()
	t := time.NewTimer(time.Until(at))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// renew initialises a lost session again, in the client's own words, once for
// all requests that found it lost.
func (x *exchange) renew(ctx context.Context, lost string) error {
	hs := x.hs
	hs.renewing.Lock()
	defer hs.renewing.Unlock()
	if hs.current() != lost {
		return nil // somebody else did
	}
	if hs.hello == nil {
		return errors.New("the client's initialize did not pass here")
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := x.u.pace.wait(ctx); err != nil {
		return err
	}
	id, err := x.say(ctx, "", hs.hello)
	if err != nil {
		return err
	}
	if id == "" {
		return errors.New("the server opened no session")
	}
	if _, err := x.say(ctx, id, []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)); err != nil {
		return err
	}
	hs.mu.Lock()
	hs.upstream = id
	hs.mu.Unlock()
	x.u.Guard.o.Log.Info("an MCP session was lost and initialised again", "server", x.u.Guard.Server())
	return nil
}

// say sends a message of the handshake and reads its answer.
func (x *exchange) say(ctx context.Context, session string, body []byte) (id string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, x.u.URL.String(), bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	passed(req.Header, x.in.Header)
	for _, k := range []string{"Mcp-Method", "Mcp-Name", "Last-Event-Id"} {
		req.Header.Del(k)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if x.u.Key != nil {
		req.Header.Set("Authorization", "Bearer "+x.u.Key())
	}
	if session != "" {
		req.Header.Set(sessionHeader, session)
	} else {
		req.Header.Del("Mcp-Protocol-Version")
	}
	resp, err := x.u.p.o.Base.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return "", fmt.Errorf("initialize again: status %d", resp.StatusCode)
	}
	if session == "" {
		if err := helloAnswered(resp); err != nil {
			return "", err
		}
	}
	return resp.Header.Get(sessionHeader), nil
}

// helloAnswered reads the answer to an initialize.
func helloAnswered(resp *http.Response) error {
	data, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if mediaType(resp.Header) == "text/event-stream" {
		events := newEvents(bytes.NewReader(data), 1<<20)
		for {
			e, eerr := events.next()
			if eerr != nil {
				return errors.New("initialize again: the stream brought no answer")
			}
			if m, perr := parse(e.data); perr == nil && m.isAnswer() {
				data, err = e.data, nil
				break
			}
		}
	}
	if err != nil {
		return err
	}
	m, err := parse(data)
	if err != nil || m.result == nil {
		return errors.New("initialize again: the server refused")
	}
	return nil
}
