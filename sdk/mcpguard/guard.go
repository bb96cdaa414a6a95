package mcpguard

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/sdk"
)

// Denials says how a denial of authority is told. It shapes the answer, not the
// decision.
type Denials uint8

const (
	AsResult Denials = iota // a result with isError that the model reads
	AsError                 // a JSON-RPC error, for hosts that must not show denials to the model
)

var denialNames = [...]string{"result", "error"}

func (d Denials) String() string { return denialNames[min(int(d), len(denialNames)-1)] }

// ParseDenials reads a name; "" is AsResult.
func ParseDenials(s string) (Denials, bool) {
	for i, n := range denialNames {
		if n == s {
			return Denials(i), true
		}
	}
	return AsResult, s == ""
}

// Options shape a [Guard]. Only Server is required.
type Options struct {
	// Server is what policy calls the MCP server: operation.tool.
	Server string
	// Timeout is how long an answer is waited for where the tool's [[tool]]
	// entry says nothing. Default 10 min.
	Timeout time.Duration
	// HideOpen leaves tools out of tools/list while a circuit of theirs is open.
	HideOpen bool
	Denials  Denials
	// Pins is the file that remembers how each tool looked at first sight; ""
	// remembers it in memory only.
	Pins string
	// Message is the largest message that is judged, and Kept the most of one
	// that is kept for classification. Defaults 64 MiB and 4 MiB.
	Message int64
	Kept    int64
	Log     *slog.Logger // default: discards
}

// A Guard judges the calls to one MCP server. Any number of sessions, relays and
// middlewares may share it.
type Guard struct {
	o         Options
	engine    *engine.Engine
	store     state.Store
	receipts  *receipts.Log
	print     func(tenant, text string) string
	catalogue *catalogue
	locks     keyedLocks
	doubts    doubts
}

// serverName keeps names to what can stand in scopes, paths and file names.
var serverName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// ValidName reports whether a server may be called so.
func ValidName(s string) bool { return serverName.MatchString(s) }

// New builds the guard of one server over an open fusebox. It starts nothing.
func New(box *sdk.Client, o Options) (*Guard, error) {
	if box == nil {
		return nil, errors.New("mcpguard.New: the client is missing; open one with sdk.Open")
	}
	if !ValidName(o.Server) {
		return nil, fmt.Errorf("mcpguard.Options.Server is %q; write letters, digits, '.', '_' and '-': policy names the server so", o.Server)
	}
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Minute
	}
	if o.Message <= 0 {
		o.Message = 64 << 20
	}
	if o.Kept <= 0 {
		o.Kept = 4 << 20
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	g := &Guard{o: o, engine: box.Engine(), store: box.Store(), receipts: box.Log(), print: box.Fingerprint}
	g.locks.held = map[string]*keyedLock{}
	var err error
	g.catalogue, err = openCatalogue(o.Pins)
	return g, err
}

// Server is the name that policy knows the server by.
func (g *Guard) Server() string { return g.o.Server }

// keyedLocks are locks by name, kept only while somebody holds or wants one.
type keyedLocks struct {
	mu   sync.Mutex
	held map[string]*keyedLock
}

type keyedLock struct {
	sync.Mutex
	wanted int
}

func (k *keyedLocks) lock(key string) (unlock func()) {
	k.mu.Lock()
	l := k.held[key]
	if l == nil {
		l = &keyedLock{}
		k.held[key] = l
	}
	l.wanted++
	k.mu.Unlock()
	l.Lock()
	return func() {
		l.Unlock()
		k.mu.Lock()
		defer k.mu.Unlock()
		if l.wanted--; l.wanted == 0 {
			delete(k.held, key)
		}
	}
}
