package sdk

import (
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/fusebox-dev/fusebox/policies"
	"github.com/fusebox-dev/fusebox/rego"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// PolicyStatus says which policy is in force, and what became of the last
// attempt to load another one.
type PolicyStatus struct {
	Version  taxonomy.PolicyVersion
	Source   string // a path, or "embedded"
	LoadedAt time.Time
	SignedBy string        // key id; "" is unsigned
	Stage    taxonomy.Mode // of the whole policy
	Breakers []BreakerMode // what each breaker does
	Warnings []string      // what is allowed but unwise

	Watching bool
	FailedAt time.Time // of the last load that failed after LoadedAt; zero when none did
	Err      error     // why it failed; the policy above stayed in force
}

// BreakerMode says whether a breaker's refusals bind.
type BreakerMode struct {
	Name     string
	Layer    taxonomy.Layer
	Scope    []string
	Mode     taxonomy.Mode
	Fallback string
}

// PolicyStatus tells what is in force.
func (c *Client) PolicyStatus() PolicyStatus {
	if s := c.status.Load(); s != nil {
		return *s
	}
	return PolicyStatus{}
}

// Bundle is the policy bundle in force.
func (c *Client) Bundle() *policies.Bundle { return c.loaded.Load().bundle }

// Reload loads the policy again and puts it in force, all of it at once. When
// that fails, the policy in force stays, and PolicyStatus says why.
func (c *Client) Reload(ctx context.Context) error {
	c.reload.Lock()
	defer c.reload.Unlock()
	prev := c.loaded.Load()
	next, err := c.load(ctx, prev)
	if err == nil && c.replaced(ctx, next) {
		next.letGo() // what a rollout put in its place stays in force
		c.report(prev, nil)
		return nil
	}
	if err == nil && next.policy.Version == prev.policy.Version {
		next.letGo()
		c.report(prev, nil)
		return nil
	}
	if err == nil {
		if err = c.claim(next); err == nil {
			err = c.engine.Use(next.policy)
		}
		if err != nil {
			next.letGo()
		}
	}
	if err != nil {
		c.report(prev, err)
		return err
	}
	c.loaded.Store(next)
	c.report(next, nil)
	return c.overtaken(ctx, next.policy.Version)
}

// report publishes the status after a load.
func (c *Client) report(l *loaded, err error) {
	s := PolicyStatus{Version: l.policy.Version, Source: l.bundle.Source, SignedBy: l.bundle.SignedBy,
		Stage: l.stage, Warnings: l.warnings, Watching: c.watched(), LoadedAt: time.Now()}
	for _, b := range l.policy.Breakers {
		s.Breakers = append(s.Breakers, BreakerMode{b.Name, b.Layer, b.Scope, b.Rule.Mode, b.Fallback})
	}
	if old := c.status.Load(); old != nil && old.Version == s.Version {
		s.LoadedAt = old.LoadedAt
	}
	if err != nil {
		s.FailedAt, s.Err = time.Now(), err
		c.parts.Log.Error("policy not loaded; the last good one stays in force", "in_force", s.Version, "error", err)
	} else {
		c.parts.Log.Info("policy in force", "version", s.Version, "source", s.Source, "stage", s.Stage)
	}
	c.status.Store(&s)
	if c.parts.OnPolicy != nil {
		c.parts.OnPolicy(s)
	}
}

// load reads and compiles the configured policy; prev lends unchanged modules.
func (c *Client) load(ctx context.Context, prev *loaded) (*loaded, error) {
	b, err := c.read()
	if err != nil {
		return nil, err
	}
	o := rego.Options{KeepInput: c.config.ReplayInputs(), Mismatch: c.mismatch}
	if !c.builtIn() {
		proofOf(b, &o)
	}
	return compile(ctx, b, prev, &c.parts, o)
}

// read opens the bundle. A folder that is being edited is read until two
// readings agree, so that no half-saved edit is taken for a policy.
func (c *Client) read() (*policies.Bundle, error) {
	keys, err := readKeys(c.config.Policies.Keys)
	if err != nil {
		return nil, err
	}
	o := policies.Options{Keys: keys, Watched: c.watched()}
	path := c.config.Policies.Path
	switch {
	case c.parts.Policy != nil:
		return policies.Open(c.parts.Policy, o)
	case c.builtIn():
		return policies.Embedded()
	default:
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("load policy %s: %w; policies.path must name a folder with policy.toml, or an archive made by fusebox policy build", path, errNoPolicy)
		}
		b, err := policies.OpenPath(path, o)
		for tries := 0; c.watched() && tries < 5; tries++ {
			time.Sleep(settle)
			again, aerr := policies.OpenPath(path, o)
			if err == nil && aerr == nil && slices.Equal(b.Lines(), again.Lines()) || err != nil && aerr != nil && err.Error() == aerr.Error() {
				break
			}
			b, err = again, aerr
		}
		return b, err
	}
}

// settle is the pause between two readings of a folder, and after a change.
const settle = 20 * time.Millisecond

// watched reports whether the policy's path is followed.
func (c *Client) watched() bool {
	p := c.config.Policies
	if p.Path == "" || c.parts.Policy != nil {
		return false
	}
	if p.Watch != nil {
		return *p.Watch
	}
	info, err := os.Stat(p.Path)
	return err == nil && info.IsDir()
}

// readKeys reads public keys, 64 hexadecimal digits each.
func readKeys(paths []string) ([]ed25519.PublicKey, error) {
	var out []ed25519.PublicKey
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			return nil, fmt.Errorf("read policy key: %w", err)
		}
		k, err := hex.DecodeString(strings.TrimSpace(string(b)))
		if err != nil || len(k) != ed25519.PublicKeySize {
			return nil, fmt.Errorf("read policy key %s: it must hold an Ed25519 public key as 64 hexadecimal digits", p)
		}
		out = append(out, k)
	}
	return out, nil
}

// watch follows the policy's path and reloads when it changes.
func (c *Client) watch() error {
	if !c.watched() {
		return nil
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch policy %s: %w; set policies.watch = false to go on without", c.config.Policies.Path, err)
	}
	if err := follow(w, c.config.Policies.Path); err != nil {
		_ = w.Close()
		return fmt.Errorf("watch policy %s: %w; set policies.watch = false to go on without", c.config.Policies.Path, err)
	}
	ctx, stop := context.WithCancel(context.Background())
	c.running.Go(func() { c.reloading(ctx, w) })
	// Before everything else: the engine must not be handed a policy while it closes.
	last := len(c.closers) - 1
	end := c.closers[last]
	c.closers[last] = func(closing context.Context) error {
		stop()
		err := w.Close()
		return errors.Join(err, end(closing))
	}
	return nil
}

// follow watches a folder with everything below it, or the folder of a file:
// editors and deployments replace files instead of writing them.
func follow(w *fsnotify.Watcher, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return w.Add(filepath.Dir(path))
	}
	return filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil // gone again; the folder above is watched
		}
		return w.Add(p)
	})
}

// reloading waits for changes. Many at once are one reload.
func (c *Client) reloading(ctx context.Context, w *fsnotify.Watcher) {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case ev, ok := <-w.Events:
			if !ok {
				return
			}
			if ev.Has(fsnotify.Chmod) && !ev.Has(fsnotify.Write) {
				continue
			}
			if ev.Has(fsnotify.Create) {
				_ = follow(w, ev.Name) // a new folder; a file's folder is watched already
			}
			timer.Reset(2 * settle)
		case err, ok := <-w.Errors:
			if !ok {
				return
			}
			c.parts.Log.Warn("watch policy", "error", err)
			timer.Reset(2 * settle) // events may be lost: look for ourselves
		case <-timer.C:
			_ = c.Reload(ctx) // PolicyStatus and the log say what became of it
		}
	}
}
