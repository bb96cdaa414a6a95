package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/fusebox-dev/fusebox/policies"
	"github.com/fusebox-dev/fusebox/rego"
	"github.com/fusebox-dev/fusebox/sdk"
)

// bundleAt reads the bundle at a path; "" is the one that is built in.
func bundleAt(path string, o policies.Options) (*policies.Bundle, error) {
	if path == "" {
		return policies.Embedded()
	}
	b, err := policies.OpenPath(path, o)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w; name a folder with %s, or an archive made by fusebox policy build", err, policies.SettingsFile)
	}
	return b, err
}

// filesOf is what of a bundle goes into a snapshot.
func filesOf(b *policies.Bundle) (*rego.Files, rego.Options) {
	f := &rego.Files{Data: b.Data, Roots: b.Roots}
	for _, m := range b.Rego {
		f.Modules = append(f.Modules, rego.Module{Path: m.Path, Source: m.Bytes})
	}
	o := rego.Options{Version: sdk.Version(b)}
	for _, s := range b.Settings.Breakers {
		o.Breakers = append(o.Breakers, rego.Breaker{Name: s.Name, Layer: s.Layer, Scope: s.Scope})
	}
	return f, o
}

// snapshotOf compiles the rules of a bundle, for tools that ask them questions.
func snapshotOf(ctx context.Context, b *policies.Bundle) (*rego.Snapshot, error) {
	f, o := filesOf(b)
	s, err := rego.Compile(ctx, f, o)
	if err != nil {
		return nil, fmt.Errorf("compile policy %s: %w", b.Source, err)
	}
	return s, nil
}

// first is the first argument, or "".
func first(args []string) string {
	if len(args) > 0 {
		return args[0]
	}
	return ""
}
