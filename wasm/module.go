package wasm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy/bench"
	"github.com/fusebox-dev/fusebox/wasm/meter"
)

// A Module is a loaded module with its pool. It may be used by many goroutines
// at once. It lives until [Module.Close] was called and every
// [Module.Acquire] was released, so that a call in flight during a hot swap is
// answered by the module it was admitted under.
type Module struct {
	config Config
	kinds  Kinds
	info   Info
	by     string
	gen    *generation
	pool   chan *instance           // nil in it stands for an instance still to be made
	hot    atomic.Pointer[instance] // the one returned last, whose memory is still in the caches
	wants  atomic.Int64             // callers that wait for the pool
	refs   atomic.Int64
	closed atomic.Bool
	bufs   sync.Pool // of *[]byte, for documents

	mu    sync.Mutex
	bench bench.Bench

	stats struct{ calls, failures, discarded, benched atomic.Uint64 }
}

// Info identifies a module and the rules it runs under, for receipts and
// replay: with the same Info and the same input the answer and the fuel are
// the same.
type Info struct {
	Name     string `json:"name"`
	Version  string `json:"version"`
	SHA256   string `json:"sha256"` // of the original file
	ABI      int    `json:"abi"`
	Profile  string `json:"profile"`
	Kinds    string `json:"kinds"`
	Rewriter string `json:"rewriter"` // rules by which fuel is counted
	Runtime  string `json:"runtime"`  // wazero and its version
	Limits   string `json:"limits"`   // digest of the limits that decide anything
	Key      string `json:"key"`      // digest of the public key it is signed with, "" when unsigned
}

// Rules names everything but the module and its input that the fuel and the
// answer depend on: limits, rewriter and runtime.
func (i Info) Rules() string { return i.Limits + " " + i.Rewriter + " " + i.Runtime }

func newModule(c Config, g *generation, kinds Kinds, file []byte, parsed *meter.Module) *Module {
	digest := sha256.Sum256(file)
	m := &Module{config: c, kinds: kinds, gen: g, pool: make(chan *instance, c.Instances)}
	m.bufs.New = func() any { b := make([]byte, 0, 4096); return &b }
	m.refs.Store(1)
	m.info = Info{Name: c.Name, Version: c.Version, SHA256: hex.EncodeToString(digest[:]), ABI: ABI,
		Profile: c.Profile.String(), Kinds: kinds.String(), Rewriter: meter.Version, Runtime: runtimeVersion(), Limits: c.Limits.digest()}
	m.by = "wasm:" + c.Name + "@sha256:" + m.info.SHA256
	if c.PublicKey != nil {
		key := sha256.Sum256(c.PublicKey)
		m.info.Key = hex.EncodeToString(key[:])
	}
	return m
}

// digest covers the limits that can change an answer.
func (l Limits) digest() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "input=%d output=%d memory=%d fuel=%d init=%d stack=%d log=%d/%d",
		l.InputBytes, l.OutputBytes, l.MemoryBytes, l.Fuel, l.InitFuel, l.StackBytes, l.LogLines, l.LogBytes))
	return hex.EncodeToString(sum[:8])
}

// runtimeVersion is the version of the runtime this program was built with.
var runtimeVersion = sync.OnceValue(func() string {
	const path = "github.com/tetratelabs/wazero"
	if b, ok := debug.ReadBuildInfo(); ok {
		for _, d := range b.Deps {
			if d.Path == path {
				if d.Replace != nil {
					d = d.Replace
				}
				return "wazero " + d.Version
			}
		}
	}
	return "wazero"
})

// Info returns what identifies the module.
func (m *Module) Info() Info { return m.info }

// By is how a verdict names this module: "wasm:acme-mail@sha256:…".
func (m *Module) By() string { return m.by }

// Kinds are the questions it may be asked.
func (m *Module) Kinds() Kinds { return m.kinds }

// Acquire keeps the module open until Release; false means that it is closed.
func (m *Module) Acquire() bool {
	for {
		n := m.refs.Load()
		if n <= 0 {
			return false
		}
		if m.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Release ends an Acquire. The last one, after Close, frees everything.
func (m *Module) Release() {
	if m.refs.Add(-1) == 0 {
		m.free()
	}
}

// Close gives up the owner's hold. It returns at once; instances and compiled
// code go with the last user.
func (m *Module) Close() {
	if m.closed.CompareAndSwap(false, true) {
		m.Release()
	}
}

// free runs when nobody holds the module, so that every instance is in the pool.
func (m *Module) free() {
	left := cap(m.pool)
	if in := m.hot.Swap(nil); in != nil {
		in.close()
		left--
	}
	for range left {
		if in := <-m.pool; in != nil {
			in.close()
		}
	}
	m.gen.close()
}

// fill makes the pool's instances.
func (m *Module) fill() error {
	for i := range m.config.Instances {
		in, err := m.gen.clone()
		if err != nil {
			for range i {
				(<-m.pool).close()
			}
			return err
		}
		m.pool <- in
	}
	return nil
}

// take waits for an instance.
func (m *Module) take(ctx context.Context) (*instance, error) {
	in := m.hot.Swap(nil)
	if in != nil {
		return in, nil
	}
	select {
	case in = <-m.pool:
	default:
		m.wants.Add(1)
		defer m.wants.Add(-1)
		if in = m.hot.Swap(nil); in != nil { // returned before it was known that we wait
			return in, nil
		}
		timer := time.NewTimer(m.config.Wait)
		defer timer.Stop()
		select {
		case in = <-m.pool:
		case <-timer.C:
			return nil, fmt.Errorf("no instance became free within %s", m.config.Wait)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if in != nil {
		return in, nil
	}
	// A refill failed earlier; try again here, where somebody hears of it.
	in, err := m.gen.clone()
	if err != nil {
		m.pool <- nil
		return nil, fmt.Errorf("make an instance: %w", err)
	}
	return in, nil
}

// put returns an instance, restored, or throws it away and makes another in
// the background.
func (m *Module) put(in *instance, lost bool) {
	if !lost && in.restore() {
		m.keep(in)
		return
	}
	m.stats.discarded.Add(1)
	in.close()
	m.refs.Add(1) // the caller holds the module, so this cannot revive a dead one
	go func() {
		defer m.Release()
		in, err := m.gen.clone()
		if err != nil {
			in = nil
		}
		m.pool <- in
	}()
}

// keep holds an instance ready: at hand for the next caller, or in the pool
// where somebody waits there.
func (m *Module) keep(in *instance) {
	if m.wants.Load() > 0 || !m.hot.CompareAndSwap(nil, in) {
		m.pool <- in
		return
	}
	if m.wants.Load() > 0 { // they began to wait meanwhile, and look at the pool
		if in = m.hot.Swap(nil); in != nil {
			m.pool <- in
		}
	}
}

// Stats counts what happened since the module was loaded.
type Stats struct {
	Calls     uint64
	Failures  uint64
	Discarded uint64 // instances thrown away
	Benched   uint64 // calls refused because the module is benched
	IsBenched bool
}

// Stats returns the counts.
func (m *Module) Stats() Stats {
	m.mu.Lock()
	benched := m.bench.Benched()
	m.mu.Unlock()
	return Stats{m.stats.calls.Load(), m.stats.failures.Load(), m.stats.discarded.Load(), m.stats.benched.Load(), benched}
}
