package sdk

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Duration is a length of time as text with its unit: "30s", "1m30s".
type Duration time.Duration

func (d Duration) String() string               { return time.Duration(d).String() }
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads a positive duration.
func (d *Duration) UnmarshalText(t []byte) error {
	v, err := time.ParseDuration(string(t))
	if err != nil {
		return fmt.Errorf("%q is not a duration; write a number with its unit, such as \"30s\" or \"5m\"", t)
	}
	if v <= 0 {
		return fmt.Errorf("%q is not positive; write a number with its unit, such as \"30s\"", t)
	}
	*d = Duration(v)
	return nil
}

// Size is a number of bytes as text with its unit: "64MiB".
type Size int64

var sizeUnits = []struct {
	name string
	n    int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}}

func (s Size) String() string               { return strconv.FormatInt(int64(s), 10) + "B" }
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a positive size of at most 1 TiB.
func (s *Size) UnmarshalText(t []byte) error {
	text := strings.TrimSpace(string(t))
	for _, u := range sizeUnits {
		digits, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n <= 0 || n > 1<<40/u.n {
			break
		}
		*s = Size(n * u.n)
		return nil
	}
	return fmt.Errorf("%q is not a size; write a whole number with its unit, such as \"64MiB\" or \"512KiB\"", t)
}

// Hash is the SHA-256 of a token. Tokens themselves stand in no file; they are
// long random texts, so that a plain hash is enough.
type Hash string

// HashToken is what fusebox.toml holds for a token.
func HashToken(token string) Hash {
	h := sha256.Sum256([]byte(token))
	return Hash("sha256:" + hex.EncodeToString(h[:]))
}

// Matches compares in constant time.
func (h Hash) Matches(token string) bool {
	return h != "" && subtle.ConstantTimeCompare([]byte(h), []byte(HashToken(token))) == 1
}

// UnmarshalText reads "sha256:" and 64 hexadecimal digits.
func (h *Hash) UnmarshalText(t []byte) error {
	digits, ok := strings.CutPrefix(string(t), "sha256:")
	b, err := hex.DecodeString(digits)
	if !ok || err != nil || len(b) != sha256.Size {
		// The text is not repeated: it may be the token itself.
		return fmt.Errorf("is not the hash of a token; write \"sha256:\" and 64 hexadecimal digits, as `fusebox token` prints them")
	}
	*h = Hash("sha256:" + strings.ToLower(digits))
	return nil
}

// Role says what an operator may do. The zero value may only look.
type Role uint8

const (
	Viewer            Role = iota // look
	OperatorRole                  // and override, manage the queue and reconcile
	ApproverRole                  // look, and approve
	AdministratorRole             // everything, policy promotion included
)

var roleNames = [...]string{"viewer", "operator", "approver", "admin"}

func (r Role) String() string               { return roleNames[min(int(r), len(roleNames)-1)] }
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads a role's name.
func (r *Role) UnmarshalText(t []byte) error {
	for i, n := range roleNames {
		if n == string(t) {
			*r = Role(i)
			return nil
		}
	}
	return fmt.Errorf("%q is not a role; write one of %s", t, quoted(roleNames[:]))
}

// quoted lists names for an error.
func quoted(names []string) string {
	q := make([]string, len(names))
	for i, n := range names {
		q[i] = strconv.Quote(n)
	}
	switch n := len(q); n {
	case 0:
		return "nothing"
	case 1:
		return q[0]
	default:
		return strings.Join(q[:n-1], ", ") + " or " + q[n-1]
	}
}
