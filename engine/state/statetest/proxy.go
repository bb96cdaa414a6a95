package statetest

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A Proxy stands between a store and its server and plays a bad network: it
// needs no rights and no other tool. It carries TCP on loopback.
type Proxy struct {
	listener net.Listener
	target   string

	mu       sync.Mutex
	requests gate // client to server
	replies  gate // server to client
	conns    map[net.Conn]struct{}
	refuse   bool
	delay    atomic.Int64
	left     atomic.Int64 // reply bytes until a reset; below 0 is never
}

// gate is closed while bytes are held.
type gate chan struct{}

func open() gate {
	g := make(gate)
	close(g)
	return g
}

// NewProxy listens on loopback and carries bytes to target, "host:port".
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: l, target: target, requests: open(), replies: open(), conns: map[net.Conn]struct{}{}}
	p.left.Store(-1)
	go p.accept()
	t.Cleanup(func() {
		p.Heal()
		p.Sever()
		l.Close()
	})
	return p
}

// Port is where the proxy listens.
func (p *Proxy) Port() int { return p.listener.Addr().(*net.TCPAddr).Port }

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		p.mu.Lock()
		refuse := p.refuse || err != nil
		if !refuse {
			p.conns[client], p.conns[server] = struct{}{}, struct{}{}
		}
		p.mu.Unlock()
		if refuse {
			client.Close()
			if server != nil {
				server.Close()
			}
			continue
		}
		go p.carry(client, server, false)
		go p.carry(server, client, true)
	}
}

// carry moves bytes one way until either side ends.
func (p *Proxy) carry(from, to net.Conn, replies bool) {
	defer p.end(from, to)
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		p.mu.Lock()
		g := p.requests
		if replies {
			g = p.replies
		}
		p.mu.Unlock()
		<-g
		time.Sleep(time.Duration(p.delay.Load()))
		if replies && p.left.Load() >= 0 {
			if rest := p.left.Add(-int64(n)); rest < 0 {
				// Part of the reply, and then a reset.
				to.Write(buffer[:max(int64(n)+rest, 0)])
				p.left.Store(-1)
				return
			}
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (p *Proxy) end(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if tcp, ok := c.(*net.TCPConn); ok {
			tcp.SetLinger(0) // a reset, not a polite end
		}
		c.Close()
		delete(p.conns, c)
	}
}

// Hold keeps back requests, replies, or both; they arrive when it is healed.
func (p *Proxy) Hold(requests, replies bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if requests {
		p.requests = make(gate)
	}
	if replies {
		p.replies = make(gate)
	}
}

// Freeze holds both ways.
func (p *Proxy) Freeze() { p.Hold(true, true) }

// Delay makes every message late.
func (p *Proxy) Delay(d time.Duration) { p.delay.Store(int64(d)) }

// ResetAfter resets the connection that carries the reply byte after the next
// n: the commit may have happened, and nobody hears of it.
func (p *Proxy) ResetAfter(n int) { p.left.Store(int64(n)) }

// Sever resets all connections; new ones are taken.
func (p *Proxy) Sever() {
	p.mu.Lock()
	var all []net.Conn
	for c := range p.conns {
		all = append(all, c)
	}
	p.mu.Unlock()
	p.end(all...)
}

// Refuse severs, and takes no new connection until Heal.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	p.refuse = true
	p.mu.Unlock()
	p.Sever()
}

// Heal ends everything that was played.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range []gate{p.requests, p.replies} {
		select {
		case <-g:
		default:
			close(g)
		}
	}
	p.refuse = false
	p.delay.Store(0)
	p.left.Store(-1)
}
