package policies

import (
	"slices"
	"strings"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

const (
	leastTimeout = 10 * time.Millisecond // below it no call over a network is ever answered
	longest      = 24 * time.Hour
	mostParallel = 100_000
	mostLookups  = 1000
)

func (c *checker) tools() {
	seen := map[string]bool{}
	for i := range c.s.Tools {
		t, p := &c.s.Tools[i], at("tool", i)
		if t.Tool == "" {
			c.fail(p+".tool", "must name the tool")
		}
		if key := t.Tool + "/" + t.Action; seen[key] {
			c.fail(p, "%q is described by an earlier [[tool]]", key)
		} else {
			seen[key] = true
		}
		c.oneOf(p+".loop", t.Loop, "", "watch", "poll", "off")
		c.oneOf(p+".condition", t.Condition, "", "live_key", "precondition", "status_lookup")
		if t.Effect == taxonomy.ConditionallyRepeatable && t.Condition == "" {
			c.fail(p+".condition", "must say when it may be repeated; else declare it non_repeatable")
		}
		if t.Effect == taxonomy.ReadOnly {
			c.readsOnly(p, t)
		}
		if t.Idempotency != "" {
			c.carrier(p+".idempotency", t.Idempotency)
		}
		if t.MaxParallel < 0 || t.MaxParallel > mostParallel {
			c.fail(p+".max_parallel", "must be between 1 and %d, or left out where nothing is bounded, got %d", mostParallel, t.MaxParallel)
		}
		c.timeout(p+".timeout", t.Timeout)
		c.compensation(p, t)
		c.reconcile(p+".reconcile", &t.Reconcile)
	}
}

// readsOnly refuses what only a write can use: whoever wrote it believes that the
// tool changes something, or meant another entry.
func (c *checker) readsOnly(p string, t *Tool) {
	if t.Idempotency != "" {
		c.fail(p+".idempotency", "is for writes, and this tool is read_only; leave it out, or declare the effect that it has")
	}
	if t.Condition != "" {
		c.fail(p+".condition", "is for effect = \"conditionally_repeatable\", and this tool is read_only; leave it out, or declare the effect that it has")
	}
}

// compensation: what cannot be taken back has to be found out, or approved.
func (c *checker) compensation(p string, t *Tool) {
	if t.Compensate != NoCompensation || !t.Effect.Writes() || t.Reconcile.By != "" {
		return
	}
	if m := c.s.Impact(t.ActionClass); m == nil || m.Impact != "high" {
		c.fail(p+".compensate", "is %q: what cannot be taken back needs reconcile, or an action_class whose [[impact]] is high, so that somebody approves it first", NoCompensation)
	}
}

// timeout is of one attempt; 0 leaves it to the profile.
func (c *checker) timeout(p string, d time.Duration) {
	if d != 0 && (d < leastTimeout || d > longest) {
		c.fail(p, "must be between %s and %s, got %s; an attempt that is given less time cannot be answered", leastTimeout, longest, d)
	}
}

// withheld are headers that a key must not travel in: those that frame a message
// or belong to one hop (RFC 9110, section 7.6.1; RFC 9112, section 6), and those
// that carry credentials. The key would break the request, or replace what
// authorizes it.
var withheld = map[string]string{
	"connection": "frames the message", "keep-alive": "frames the message", "te": "frames the message", "trailer": "frames the message",
	"transfer-encoding": "frames the message", "upgrade": "frames the message", "host": "frames the message", "expect": "frames the message",
	"http2-settings": "frames the message", "accept-encoding": "frames the message", "date": "frames the message", "via": "frames the message",
	"authorization": "carries credentials", "www-authenticate": "carries credentials", "authentication-info": "carries credentials",
	"cookie": "carries credentials", "cookie2": "carries credentials", "set-cookie": "carries credentials", "set-cookie2": "carries credentials",
	"x-api-key": "carries credentials", "api-key": "carries credentials", "apikey": "carries credentials", "x-goog-api-key": "carries credentials",
	"x-auth-token": "carries credentials", "x-amz-security-token": "carries credentials", "x-access-token": "carries credentials",
	"x-csrf-token": "carries credentials",
}

// secrets are arguments that a key must not replace.
var secrets = []string{"authorization", "password", "passwd", "secret", "client_secret", "token", "access_token", "refresh_token", "api_key", "apikey", "cookie", "credential", "credentials"}

// carrier checks where an idempotency key travels.
func (c *checker) carrier(p, text string) {
	where, name, _ := strings.Cut(text, ":")
	lower := strings.ToLower(name)
	ours := strings.HasPrefix(lower, "fusebox-") || strings.HasPrefix(lower, "fusebox_") || strings.HasPrefix(lower, "x-fusebox-")
	switch {
	case where != "header" && where != "argument":
		c.fail(p, "must be \"header:NAME\" or \"argument:NAME\", got %q", text)
	case name == "" || len(name) > 128:
		c.fail(p, "must name the %s, in at most 128 bytes, like \"header:Idempotency-Key\" or \"argument:request_id\", got %q", where, text)
	case ours:
		c.fail(p, "%q is a name that fusebox itself uses and takes off; name what the tool reads", name)
	case where == "header":
		c.header(p, name, lower)
	case !argument(name):
		c.fail(p, "an argument is named with letters, digits, '_', '-', '.' and '$', and begins with none of '-' and '.', got %q", name)
	case slices.Contains(secrets, lower):
		c.fail(p, "argument %q carries credentials, which a key must not replace; name the argument that the tool reads as its idempotency key", name)
	}
}

func (c *checker) header(p, name, lower string) {
	why := withheld[lower]
	switch {
	case strings.HasPrefix(lower, "content-"), strings.HasPrefix(lower, "sec-"):
		why = "frames the message"
	case strings.HasPrefix(lower, "proxy-"):
		why = "belongs to one hop"
	}
	switch {
	case !token(name):
		c.fail(p, "%q is no header name: letters, digits and !#$%%&'*+-.^_`|~ (RFC 9110, section 5.6.2)", name)
	case why != "":
		c.fail(p, "header %q %s, so a key must not travel in it; name the header that the tool reads, like Idempotency-Key", name, why)
	}
}

// token reports whether a name is one of RFC 9110, section 5.6.2.
func token(name string) bool {
	for i := range len(name) {
		if b := name[i]; !alphanumeric(b) && strings.IndexByte("!#$%&'*+-.^_`|~", b) < 0 {
			return false
		}
	}
	return name != ""
}

func argument(name string) bool {
	for i := range len(name) {
		if b := name[i]; !alphanumeric(b) && strings.IndexByte("_-.$", b) < 0 {
			return false
		}
	}
	return name != "" && name[0] != '-' && name[0] != '.'
}

func alphanumeric(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9'
}

func (c *checker) reconcile(p string, r *Reconcile) {
	c.oneOf(p+".by", r.By, "", "http", "plugin", "tool", "callback", "human")
	switch r.By {
	case "http":
		if !strings.HasPrefix(r.URL, "http://") && !strings.HasPrefix(r.URL, "https://") {
			c.fail(p+".url", "must be an http or https URL, got %q", r.URL)
		}
	case "plugin":
		if !slices.ContainsFunc(c.s.Plugins, func(g Plugin) bool { return g.Name == r.Plugin && g.Role == "reconciler" }) {
			c.fail(p+".plugin", "%q is no [[plugin]] with role \"reconciler\"", r.Plugin)
		}
	case "tool":
		if r.Tool == "" {
			c.fail(p+".tool", "must name the lookup, \"tool/action\"")
		}
	}
	if r.Tries < 0 || r.Tries > mostLookups {
		c.fail(p+".tries", "must be between 1 and %d, or left out (6), got %d; after the last a person is asked", mostLookups, r.Tries)
	}
	if r.After > longest {
		c.fail(p+".after", "must be at most %s, got %s", longest, r.After)
	}
	if _, written := c.d.lines[p+".every"]; written && (r.Every < leastTimeout || r.Every > longest) {
		c.fail(p+".every", "must be between %s and %s, or left out (10s), got %s; it doubles up to five minutes", leastTimeout, longest, r.Every)
	}
}
