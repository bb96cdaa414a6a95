package mcpguard

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"sync"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A Relay stands between a client and a server that speak over pipes, one
// message a line. Whatever is no tool call passes byte for byte.
type Relay struct {
	g      *Guard
	s      *session
	client *lineWriter
	server *lineWriter

	admitting sync.WaitGroup
}

// NewRelay builds the relay of one session: client is where the client reads,
// server where the server reads.
func (g *Guard) NewRelay(who Identity, client, server io.Writer) *Relay {
	if who.Run == "" {
		who.Run = NewRun()
	}
	r := &Relay{g: g, s: g.newSession(who), client: &lineWriter{to: client}, server: &lineWriter{to: server}}
	r.s.tell = r.toClient
	return r
}

// FromClient carries what the client writes until it ends, and waits for calls
// that are being decided. It returns nil at the end of input.
func (r *Relay) FromClient(ctx context.Context, from io.Reader) error {
	defer r.admitting.Wait()
	return r.lines(from, func(line []byte, whole bool) error {
		if !whole {
			r.toClient(fault(nil, codeRequest, "the message is too large; it was not passed on"))
			return nil
		}
		st := r.s.accept(line, r.s.who, r.toClient)
		if st.call == nil {
			return r.carry(st)
		}
		// Deciding may wait for the disk, and must not hold up what comes behind:
		// a cancellation, say, or the answer to a question of the server.
		r.admitting.Go(func() {
			_ = r.carry(r.s.admit(ctx, line, st.call)) // a server that is gone is found out by the other side
		})
		return nil
	})
}

// carry writes what became of a message.
func (r *Relay) carry(st step) error {
	if st.reply != nil {
		r.toClient(st.reply)
	}
	if st.forward == nil {
		return nil
	}
	n, err := r.server.write(st.forward)
	if err != nil && st.call != nil {
		sent := taxonomy.DispatchedUnknown
		if n == 0 {
			sent = taxonomy.DispatchedNo
		}
		r.s.end(context.Background(), st.call, broken(sent, "broken_pipe", err.Error()), true)
	}
	return err
}

// FromServer carries what the server writes until it ends.
func (r *Relay) FromServer(ctx context.Context, from io.Reader) error {
	return r.lines(from, func(line []byte, whole bool) error {
		if !whole {
			r.s.tooLarge(ctx)
			return nil
		}
		if out := r.s.reply(ctx, line); out != nil {
			_, err := r.client.write(out)
			return err
		}
		return nil
	})
}

// Lost ends every call that is out, because the server is gone.
func (r *Relay) Lost(ctx context.Context) {
	r.s.lost(ctx, "eof", "MCP error -32000: Connection closed")
}

// Waiting is how many calls are out.
func (r *Relay) Waiting() int { return r.s.waiting() }

func (r *Relay) toClient(msg []byte) {
	if _, err := r.client.write(msg); err != nil {
		r.g.o.Log.Debug("the client is gone", "error", err)
	}
}

// lines hands over each line with its end. Of one that is too large nothing is
// kept, and it is said so.
func (r *Relay) lines(from io.Reader, each func(line []byte, whole bool) error) error {
	in := bufio.NewReaderSize(from, 64<<10)
	var line []byte
	whole := true
	for {
		part, err := in.ReadSlice('\n')
		if int64(len(line)+len(part)) > r.g.o.Message {
			line, whole = nil, false
		}
		if whole {
			line = append(line, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if !whole || len(bytes.TrimSpace(line)) > 0 {
			if e := each(line, whole); e != nil {
				return e
			}
		}
		line, whole = nil, true
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// tooLarge drops a message of the server that cannot be judged. While one call
// is out, it can be nothing but its answer.
func (s *session) tooLarge(ctx context.Context) {
	s.g.o.Log.Warn("a message of the server was too large and was dropped", "server", s.g.o.Server, "limit", s.g.o.Message)
	s.mu.Lock()
	var only *call
	for _, c := range s.calls {
		if c.attempt != nil {
			only = c
		}
	}
	if len(s.calls) != 1 {
		only = nil
	}
	s.mu.Unlock()
	if only != nil {
		s.end(ctx, only, broken(taxonomy.DispatchedYes, "local_limit", "the answer is too large"), true)
	}
}

// lineWriter writes one message at a time.
type lineWriter struct {
	mu sync.Mutex
	to io.Writer
}

func (w *lineWriter) write(msg []byte) (int, error) {
	if len(msg) == 0 || msg[len(msg)-1] != '\n' {
		msg = append(msg[:len(msg):len(msg)], '\n')
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(msg)
}
