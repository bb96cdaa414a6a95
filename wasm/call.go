package wasm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// CallInfo is what a receipt keeps of one call.
type CallInfo struct {
	Fuel    int64  // used, also by a call that failed
	Input   Digest // of the document the module was given
	Output  Digest // of its answer; zero when there is none
	Code    Code   // "" when it answered, no_opinion, or what went wrong
	Lines   []LogLine
	Dropped int    // log lines beyond the limit
	Stderr  string // a Go guest's last words
	Memory  int    // bytes of the instance's memory after the call
}

// A Digest is a sha256.
type Digest [sha256.Size]byte

func (d Digest) String() string { return "sha256:" + hex.EncodeToString(d[:]) }

// An Answer is what a module said about one document.
type Answer struct {
	Verdict taxonomy.Verdict // of a classifier, before the floor
	Choice  taxonomy.Choice  // of a fallback chooser
	Raw     []byte           // the document as the module wrote it
	OK      bool             // false: no opinion
	Info    CallInfo
}

// Classify asks a classifier. ok false means that it has no opinion and the
// next one is asked. The verdict is what the module proposes: the caller
// applies taxonomy.Floor. Errors are [*CallError].
func (m *Module) Classify(ctx context.Context, obs *taxonomy.Observation, builtin taxonomy.Verdict) (v taxonomy.Verdict, ok bool, err error) {
	a, err := m.AskClassifier(ctx, obs, builtin)
	return a.Verdict, a.OK, err
}

// Fallback asks a fallback chooser for one of the declared candidates.
func (m *Module) Fallback(ctx context.Context, in *taxonomy.FallbackInput) (c taxonomy.Choice, ok bool, err error) {
	a, err := m.AskFallback(ctx, in)
	return a.Choice, a.OK, err
}

// AskClassifier is [Module.Classify] with everything a receipt wants to know.
func (m *Module) AskClassifier(ctx context.Context, obs *taxonomy.Observation, builtin taxonomy.Verdict) (Answer, error) {
	buf := m.bufs.Get().(*[]byte)
	defer m.bufs.Put(buf)
	*buf = appendClassifyInput((*buf)[:0], obs, &builtin)
	return m.ask(ctx, Classifier, *buf, func(a *Answer) error {
		v, err := m.readVerdict(a.Raw, func() string { return builtin.Reason })
		a.Verdict = v
		return err
	})
}

// AskFallback is [Module.Fallback] with everything a receipt wants to know.
func (m *Module) AskFallback(ctx context.Context, in *taxonomy.FallbackInput) (Answer, error) {
	buf := m.bufs.Get().(*[]byte)
	defer m.bufs.Put(buf)
	*buf = appendFallbackInput((*buf)[:0], in)
	return m.ask(ctx, Fallback, *buf, func(a *Answer) error {
		c, err := readChoice(a.Raw, in.Candidates)
		a.Choice = c
		return err
	})
}

// Raw hands over a document and returns the answer's bytes unread.
func (m *Module) Raw(ctx context.Context, kind Kinds, document []byte) (Answer, error) {
	return m.ask(ctx, kind, document, func(*Answer) error { return nil })
}

// Ask hands over a document as it is. The answer is read like that of a
// classifier or of a fallback chooser; what it is held to (the built-in reason,
// the candidates) is taken from the document.
func (m *Module) Ask(ctx context.Context, kind Kinds, document []byte) (Answer, error) {
	if kind == Classifier {
		return m.ask(ctx, kind, document, func(a *Answer) error {
			v, err := m.readVerdict(a.Raw, func() string {
				_, builtin, _ := taxonomy.ParseClassifyInput(document) // an odd document has no built-in reason
				return builtin.Reason
			})
			a.Verdict = v
			return err
		})
	}
	return m.ask(ctx, kind, document, func(a *Answer) error {
		_, _, candidates, err := taxonomy.ParseFallbackInput(document)
		if err != nil {
			return err
		}
		c, err := readChoice(a.Raw, candidates)
		a.Choice = c
		return err
	})
}

// ask makes one call: admitted by the bench, on one instance, read, restored.
func (m *Module) ask(ctx context.Context, kind Kinds, document []byte, read func(*Answer) error) (Answer, error) {
	var a Answer
	a.Info.Input = sha256.Sum256(document)
	fail := func(code Code, detail string) (Answer, error) {
		a.Info.Code = code
		return a, &CallError{Module: m.info.Name, Fault: code, Detail: detail, Info: a.Info}
	}
	if m.kinds&kind == 0 {
		return fail(Code(MissingExport), "the module is not used as "+kind.String())
	}
	if len(document) > m.gen.limits.InputBytes {
		return fail(InputTooLarge, "the document is larger than the module's input limit")
	}
	if !m.Acquire() {
		return fail(Closed, "the module was replaced")
	}
	defer m.Release()
	comeback, admitted := m.admit()
	if !admitted {
		m.stats.benched.Add(1)
		return fail(Benched, "too many failures lately")
	}
	in, err := m.take(ctx)
	if err != nil {
		m.unadmit(comeback)
		return fail(Busy, err.Error())
	}
	m.stats.calls.Add(1)
	f := in.call(kind, document, &a)
	m.put(in, m.config.Fresh || f != nil && f.lost)
	if f == nil && a.OK {
		if err := read(&a); err != nil {
			f = answerFault(a.Raw, err)
		}
	}
	m.after(comeback, f == nil)
	if f != nil {
		m.stats.failures.Add(1)
		a.OK, a.Verdict, a.Choice = false, taxonomy.Verdict{}, taxonomy.Choice{}
		a.Info.Code = f.code
		return a, &CallError{Module: m.info.Name, Fault: f.code, Detail: f.detail, Stack: f.stack, Info: a.Info}
	}
	if !a.OK {
		a.Info.Code = Declined
	}
	return a, nil
}

// call runs one question on the instance and copies out everything that is
// left of it.
func (in *instance) call(kind Kinds, document []byte, a *Answer) *fault {
	entry := 0
	if kind == Fallback {
		entry = 1
	}
	in.world.restore(in.gen.world)
	in.refill(in.gen.limits.Fuel)
	out, f := in.ask(entry, document)
	if out != nil {
		a.Raw, a.OK = append([]byte(nil), out...), true
		a.Info.Output = sha256.Sum256(a.Raw)
	}
	a.Info.Fuel = in.used(in.gen.limits.Fuel)
	a.Info.Lines, a.Info.Dropped, a.Info.Memory = in.world.lines, in.world.dropped, in.mem.size
	if len(in.world.err) > 0 {
		a.Info.Stderr = in.world.stderr()
	}
	return f
}

// warmUp makes one call of each kind before the image is taken; false when the
// instance is not fit for use afterwards.
func (in *instance) warmUp() bool {
	for entry, f := range in.entry {
		if f == nil {
			continue
		}
		in.refill(in.gen.limits.Fuel)
		_, fault := in.ask(entry, warmInput(entry, in.gen.limits.InputBytes))
		if fault != nil && fault.lost {
			return false
		}
	}
	in.world.restore(in.world.snapshot())
	return true
}

func (m *Module) admit() (comeback, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.bench.Benched() { // the common case needs no clock
		return false, true
	}
	m.bench, comeback, ok = m.bench.Admit(m.config.Now())
	return comeback, ok
}

func (m *Module) unadmit(comeback bool) {
	if comeback {
		m.mu.Lock()
		m.bench = m.bench.Release()
		m.mu.Unlock()
	}
}

func (m *Module) after(comeback, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ok && !m.bench.Benched() {
		return
	}
	m.bench = m.bench.After(m.config.Bench, comeback, ok, m.config.Now())
}

// IsModuleFault reports whether an error of a call speaks against the module,
// rather than against how or when it was called.
func IsModuleFault(err error) bool {
	var e *CallError
	if !errors.As(err, &e) {
		return false
	}
	switch e.Fault {
	case Busy, Closed, Benched, InputTooLarge, MissingExport:
		return false
	}
	return true
}
