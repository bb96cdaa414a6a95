package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// R-ADM-5: a permit token cannot be forged, moved to another permit or another
// operation, or stretched.
func TestPermitTokenIsBound(t *testing.T) {
	tokens, err := openPermitTokens(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	const id = "0198c5f0-7e0a-7b7e-8000-6f1d0c9a1b2c"
	op := []byte(`{"tool":"mail","action":"send"}`)
	now := time.UnixMilli(1_800_000_000_000)
	token := tokens.issue(id, op, now.Add(time.Minute))
	if err := tokens.check(token, id, op, now); err != nil {
		t.Fatalf("a good token is refused: %v", err)
	}
	exp, mac, _ := strings.Cut(strings.TrimPrefix(token, "v1."), ".")
	for name, c := range map[string]struct {
		token, id string
		op        []byte
		want      error
	}{
		"missing":            {"", id, op, errTokenMissing},
		"another permit":     {token, "0198c5f0-7e0a-7b7e-8000-6f1d0c9a1b2d", op, errTokenForged},
		"another operation":  {token, id, []byte(`{"tool":"bank","action":"pay"}`), errTokenForged},
		"a longer life":      {"v1.9" + exp + "." + mac, id, op, errTokenForged},
		"another version":    {"v2." + exp + "." + mac, id, op, errTokenForged},
		"a shorter mac":      {"v1." + exp + "." + mac[:20], id, op, errTokenForged},
		"an empty mac":       {"v1." + exp + ".", id, op, errTokenForged},
		"padding":            {token + "=", id, op, errTokenForged},
		"no number":          {"v1..", id, op, errTokenForged},
		"rubbish":            {"rubbish", id, op, errTokenForged},
		"another key's":      {mustTokens(t).issue(id, op, now.Add(time.Minute)), id, op, errTokenForged},
		"every bit of a mac": {flipLast(token), id, op, errTokenForged},
	} {
		if err := tokens.check(c.token, c.id, c.op, now); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
	if err := tokens.check(token, id, op, now.Add(time.Minute+time.Millisecond)); !errors.Is(err, errTokenExpired) {
		t.Errorf("after its end: got %v, want %v", err, errTokenExpired)
	}
}

func mustTokens(t *testing.T) *permitTokens {
	t.Helper()
	tokens, err := openPermitTokens(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

// flipLast changes one bit of the mac's first byte.
func flipLast(token string) string {
	i := strings.LastIndexByte(token, '.') + 1
	c := byte('A')
	if token[i] == 'A' {
		c = 'B'
	}
	return token[:i] + string(c) + token[i+1:]
}

func TestPermitKeyOutlivesARestart(t *testing.T) {
	dir := t.TempDir()
	first, err := openPermitTokens(dir)
	if err != nil {
		t.Fatal(err)
	}
	token := first.issue("id", []byte("op"), time.Now().Add(time.Hour))
	second, err := openPermitTokens(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.check(token, "id", []byte("op"), time.Now()); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	info, err := os.Stat(filepath.Join(dir, "permit.key"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		t.Errorf("permit.key has mode %v; others must not read it", info.Mode().Perm())
	}
	if err := os.WriteFile(filepath.Join(dir, "permit.key"), []byte("short\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openPermitTokens(dir); err == nil || !strings.Contains(err.Error(), "remove it to make a new one") {
		t.Errorf("a broken key file: got %v", err)
	}
}
