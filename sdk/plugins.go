package sdk

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/policies"
)

// A PluginConfig says what a plugin is, which is policy, and how it is started,
// which is wiring. Its fields are those of plugins.Config.
type PluginConfig struct {
	Name     string
	Version  string
	Kind     string // classifier, reconciler, approver, evaluator or receipts
	SHA256   string // of the file that Command names
	Deadline time.Duration
	Failures int
	Window   time.Duration
	Rest     time.Duration

	Command  string
	Args     []string
	Env      []string // "NAME=value"
	Dir      string
	Start    time.Duration
	Parallel int
	Logs     bool
	Log      *slog.Logger
}

// A Plugin is a running extension in a process of its own.
type Plugin interface {
	// Ask puts one question under the plugin's deadline; what read refuses counts
	// as a failure of the plugin.
	Ask(ctx context.Context, document []byte, read func(answer []byte) error) error
	// State says whether it runs, and whether its circuit keeps calls away.
	State() (running, benched bool, failures uint64, why error)
	// Close ends the process.
	Close() error
}

// A plugin is one [[plugin]] of policy.toml at work. Policies that have it
// unchanged share its process.
type plugin struct {
	config   policies.Plugin
	identity engine.Identity
	by       string // how a verdict names it: "plugin:pricing@sha256:…"
	*process
}

type process struct {
	Plugin
	users   atomic.Int64
	endings *sync.WaitGroup
}

func (p *process) acquire() bool {
	for {
		n := p.users.Load()
		if n <= 0 {
			return false
		}
		if p.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// release ends the process with its last user. It does not wait for the end:
// whoever lets go of a policy may be on the way of a call.
func (p *process) release() {
	if p.users.Add(-1) == 0 {
		p.endings.Go(func() { _ = p.Close() }) // it has nothing to say
	}
}

func newPlugin(config *policies.Plugin, p *process) *plugin {
	c := *config
	digest := "sha256:" + c.SHA256
	return &plugin{config: c, process: p, by: "plugin:" + c.Name + "@" + digest,
		identity: engine.Identity{Name: c.Name, Version: c.Version, Digest: digest, ABI: 1, Plugin: true}}
}

// openPlugins starts the plugins that a policy declares; those that prev has
// unchanged go on. What is not what policy names is an error; what does not come
// up is not.
func (l *loaded) openPlugins(ctx context.Context, prev *loaded, p *Parts) (err error) {
	defer func() {
		if err != nil {
			closePlugins(l.plugins)
		}
	}()
	for i := range l.bundle.Settings.Plugins {
		c := &l.bundle.Settings.Plugins[i]
		if kept := prev.plugin(c); kept != nil {
			l.plugins = append(l.plugins, kept)
			continue
		}
		where := fmt.Sprintf("%s:%d: plugin %s", policies.SettingsFile, c.Line, c.Name)
		switch at := slices.IndexFunc(p.wiring, func(w PluginWiring) bool { return w.Name == c.Name && !w.sink() }); {
		case p.WithoutPlugins:
			l.warn("%s: it is not started here, so that nothing is asked of it", where)
		case p.Plugins == nil:
			return fmt.Errorf("%s: this program starts no plugins; hand it sdk.Parts.Plugins", where)
		case at < 0:
			return fmt.Errorf("%s: nothing says how it is started; add a [[plugin]] with this name and its command to fusebox.toml", where)
		default:
			started, err := p.startPlugin(ctx, &p.wiring[at], PluginConfig{Name: c.Name, Version: c.Version, Kind: c.Role, SHA256: c.SHA256,
				Deadline: c.Deadline, Failures: c.Bench.Failures, Window: c.Bench.Window, Rest: c.Bench.Rest})
			if err != nil {
				return fmt.Errorf("%s: %w", where, err)
			}
			one := &process{Plugin: started, endings: p.endings}
			one.users.Store(1)
			l.plugins = append(l.plugins, newPlugin(c, one))
		}
	}
	return nil
}

// startPlugin adds the wiring to what the plugin is, and starts it.
func (p *Parts) startPlugin(ctx context.Context, w *PluginWiring, c PluginConfig) (Plugin, error) {
	c.Command = strings.NewReplacer("{version}", c.Version, "{sha256}", c.SHA256).Replace(w.Command)
	c.Args, c.Dir, c.Start, c.Parallel, c.Logs, c.Log = w.Args, w.Dir, time.Duration(w.Start), w.Parallel, w.Logs, p.Log
	for _, name := range w.Env {
		v, ok := os.LookupEnv(name)
		if !ok {
			return nil, fmt.Errorf("the environment variable %s is not set; env in fusebox.toml names it", name)
		}
		c.Env = append(c.Env, name+"="+v)
	}
	return p.Plugins(ctx, c)
}

// plugin finds a plugin that need not be started, and takes a hold of it.
func (l *loaded) plugin(c *policies.Plugin) *plugin {
	if l == nil {
		return nil
	}
	for _, old := range l.plugins {
		a, b := old.config, *c
		a.Line, b.Line = 0, 0
		if reflect.DeepEqual(a, b) && old.acquire() {
			return newPlugin(c, old.process)
		}
	}
	return nil
}

func closePlugins(ps []*plugin) {
	for _, p := range ps {
		p.release()
	}
}

// letGo gives up everything that a policy runs.
func (l *loaded) letGo() {
	closeModules(l.modules)
	closePlugins(l.plugins)
}

// join puts the plugins into the places where the engine asks them.
func (l *loaded) join() {
	for _, p := range l.plugins {
		switch p.config.Role {
		case "classifier":
			l.policy.Classifiers = append(l.policy.Classifiers, p)
		case "evaluator":
			l.policy.Evaluators = append(l.policy.Evaluators, p)
		case "approver":
			l.policy.Approvers = append(l.policy.Approvers, p)
		case "reconciler":
			if l.policy.Reconcilers == nil {
				l.policy.Reconcilers = map[string]engine.Reconciler{}
			}
			l.policy.Reconcilers["plugin:"+p.config.Name] = p
		}
	}
}

// A PluginStatus is what a running plugin tells of itself.
type PluginStatus struct {
	Name     string `json:"name"`
	Version  string `json:"version,omitempty"`
	Kind     string `json:"kind"`
	SHA256   string `json:"sha256"`
	Running  bool   `json:"running"`
	Benched  bool   `json:"benched"` // left alone for a while, after too many failures
	Failures uint64 `json:"failures"`
	Missed   int64  `json:"missed,omitempty"` // of a receipt sink: receipts that it was not told
	Behind   int64  `json:"behind,omitempty"` // and that it was not told yet
	Why      string `json:"why,omitempty"`    // it does not run: a code
}

func statusOf(name, version, kind, digest string, p Plugin) PluginStatus {
	s := PluginStatus{Name: name, Version: version, Kind: kind, SHA256: digest}
	var why error
	s.Running, s.Benched, s.Failures, why = p.State()
	var c interface{ Code() string }
	if errors.As(why, &c) {
		s.Why = c.Code()
	}
	return s
}

// Plugins tells of the plugins of the policy in force, and of the receipt sinks.
func (c *Client) Plugins() []PluginStatus {
	var out []PluginStatus
	if l := c.loaded.Load(); l != nil {
		for _, p := range l.plugins {
			out = append(out, statusOf(p.config.Name, p.config.Version, p.config.Role, p.config.SHA256, p.Plugin))
		}
	}
	for _, s := range c.sinks {
		out = append(out, s.status())
	}
	return out
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}
