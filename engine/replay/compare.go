package replay

import (
	"bytes"
	"encoding/json"
	"slices"
)

// The buckets of a replay.
const (
	Unchanged       = "unchanged"
	Stricter        = "stricter"
	Looser          = "looser"
	Reclassified    = "reclassified" // it would count elsewhere
	FallbackChanged = "fallback_changed"
	ReasonOnly      = "reason_only"
	Errored         = "error" // the policy could not answer
)

// Compare says how one canonical answer differs from another of the same
// entrypoint. Bytes decide whether anything differs at all.
func Compare(entrypoint string, was, would []byte) string {
	if bytes.Equal(was, would) {
		return Unchanged
	}
	switch entrypoint {
	case "authority":
		return byRank(was, would, "decision", []string{"deny", "require_approval", "allow"})
	case "admission":
		return byRank(was, would, "action", []string{"reject", "require_approval", "queue", "proceed"})
	case "routing":
		return byFeeds(was, would)
	case "fallback":
		return FallbackChanged
	}
	return Reclassified
}

// byRank compares decisions that are ordered from strict to loose.
func byRank(was, would []byte, member string, ranks []string) string {
	a, b := rank(was, member, ranks), rank(would, member, ranks)
	switch {
	case b < a:
		return Stricter
	case b > a:
		return Looser
	}
	return ReasonOnly
}

func rank(answer []byte, member string, ranks []string) int {
	var doc map[string]any
	if json.Unmarshal(answer, &doc) != nil {
		return 0 // what cannot be read is the strictest
	}
	s, _ := doc[member].(string)
	return max(slices.Index(ranks, s), 0)
}

type feed struct {
	Layer, Breaker, Level, Signal, Reason string
	Until                                 int64 `json:"until_ms"`
}

// byFeeds compares where an outcome counts. Circuits that are fed more are
// stricter, fed less looser; anything else is another classification.
func byFeeds(was, would []byte) string {
	var a, b []feed
	if json.Unmarshal(was, &a) != nil || json.Unmarshal(would, &b) != nil {
		return Reclassified
	}
	old, now := counted(a), counted(b)
	switch more, less := missing(now, old), missing(old, now); {
	case !more && !less:
		return ReasonOnly
	case more && !less:
		return Stricter
	case less && !more:
		return Looser
	}
	return Reclassified
}

// counted are the feeds that open circuits, without their reasons.
func counted(fs []feed) []feed {
	var out []feed
	for _, f := range fs {
		if f.Signal == "failure" || f.Signal == "open_now" {
			f.Reason = ""
			out = append(out, f)
		}
	}
	return out
}

func missing(of, in []feed) bool {
	return slices.ContainsFunc(of, func(f feed) bool { return !slices.Contains(in, f) })
}
