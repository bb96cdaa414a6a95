package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/fusebox-dev/fusebox/policies"
)

// The demo runs the built-in bundle. Only what would take minutes is shortened,
// and the demo's own mail tool is declared, with a status look-up at the remote.

// demoSettings are lines of [[breaker]] blocks that the demo replaces.
var demoSettings = []struct{ breaker, key, line string }{
	{"provider", "cooldown", `cooldown = { base = "2s", growth = 1.5, max = "3s", jitter = 0.1, retry_after_max = "10s" }`},
	{"provider", "probe", `probe = { budget = 1, lease = "5s", successes = 1, gap = "50ms", evidence = "model_call" }`},
	{"provider", "ramp", `ramp = { steps = [] } # closed at once: the demo has no minute to spare`},
}

const demoTool = `
# ---- the demo's own mail tool ---------------------------------------------------

[[tool]]
tool = "acme-mail"
action = "send"
effect = "non_repeatable"
action_class = "mail.send"
idempotency = "header:Idempotency-Key"
reconcile = { by = "http", url = "%s/mail/status?key={key}", after = "1s", every = "5s", tries = 3 }
`

var breakerHeader = regexp.MustCompile(`(?m)^\[\[breaker\]\]\s*$`)

// writeDemoPolicy writes the demo's bundle into a folder, where it can be read
// and changed afterwards.
func writeDemoPolicy(dir, remote string) error {
	b, err := policies.Embedded()
	if err != nil {
		return err
	}
	text, err := demoPolicy(string(b.SettingsTOML), remote)
	if err != nil {
		return err
	}
	return writeBundle(dir, b, "demo", []byte(text))
}

// demoPolicy shortens the built-in settings. A line that is not where it is
// expected is an error, so that a changed default cannot silently make a slow
// or meaningless demo.
func demoPolicy(text, remote string) (string, error) {
	blocks := breakerHeader.Split(text, -1)
	for _, c := range demoSettings {
		done := false
		for i, block := range blocks {
			if i == 0 || !strings.Contains(block, fmt.Sprintf("\nname = %q\n", c.breaker)) {
				continue
			}
			line := regexp.MustCompile(`(?m)^` + c.key + ` = .*$`)
			if line.MatchString(block) {
				blocks[i] = line.ReplaceAllLiteralString(block, c.line)
				done = true
			}
		}
		if !done {
			return "", fmt.Errorf("make the demo's policy: the built-in policy.toml has no %s in breaker %q", c.key, c.breaker)
		}
	}
	return strings.Join(blocks, "[[breaker]]") + fmt.Sprintf(demoTool, remote), nil
}
