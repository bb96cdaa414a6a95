package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/engine"
	"github.com/fusebox-dev/fusebox/policies"
	"github.com/fusebox-dev/fusebox/rego"
	"github.com/fusebox-dev/fusebox/sdk"
)

// An exam is everything that doctor looks at, opened once.
type exam struct {
	cmd   *cobra.Command
	cfg   sdk.Config
	fleet bool

	config     string // path of fusebox.toml, "" without one
	configText string
	policyFile string // how findings name policy.toml

	bundle   *policies.Bundle // nil where the policy does not load
	snapshot *rego.Snapshot
	policy   *engine.Policy
	loadErr  error
	shipped  *policies.Bundle
	rehearse *rehearsal
}

// newExam reads the configuration and the policy. A policy that does not load is
// a finding; a configuration that cannot be read, or a path that is not there,
// leaves nothing to look at.
func newExam(cmd *cobra.Command, fleet bool) (*exam, error) {
	cfg, err := readConfig(cmd)
	if err != nil {
		return nil, err
	}
	override(cmd, "policies", &cfg.Policies.Path)
	if cfg.Data, err = dataDir(cfg); err != nil {
		return nil, err
	}
	x := &exam{cmd: cmd, cfg: cfg, fleet: fleet, config: cmd.Flag("config").Value.String()}
	if x.config != "" {
		text, err := os.ReadFile(x.config)
		if err != nil {
			return nil, withStatus(exitSetup, err)
		}
		x.configText = string(text)
	}
	if x.shipped, err = policies.Embedded(); err != nil {
		return nil, err
	}
	x.policyFile = policies.SettingsFile + " (built in)"
	if path := cfg.Policies.Path; path != "" {
		if _, err := os.Stat(path); err != nil {
			return nil, withStatus(exitSetup, errors.Join(err, errors.New("name a policy folder or archive with --policies")))
		}
		x.policyFile = filepath.Join(path, policies.SettingsFile)
	}
	x.load(cmd.Context())
	return x, nil
}

// load opens the policy as serve would.
func (x *exam) load(ctx context.Context) {
	if x.bundle, x.loadErr = bundleAt(x.cfg.Policies.Path, policies.Options{}); x.loadErr != nil {
		return
	}
	if x.snapshot, x.loadErr = provenAt(ctx, x.bundle); x.loadErr != nil {
		x.bundle = nil
		return
	}
	if x.policy, _, x.loadErr = sdk.LoadPolicy(ctx, x.cfg, sdk.Parts{Build: buildName()}); x.loadErr != nil {
		x.bundle = nil
	}
}

func (x *exam) close() {
	if x.policy != nil && x.policy.Close != nil {
		_ = x.policy.Close() // it was only read
	}
}

// examine asks everything. The order is that of SPEC R-OPS-8.
func (x *exam) examine() *doctorDoc {
	d := &doctorDoc{V: 1, Config: x.config, Policies: x.cfg.Policies.Path, Data: x.cfg.Data}
	if d.Policies == "" {
		d.Policies = "built in"
	}
	if x.bundle != nil {
		d.Policy = string(sdk.Version(x.bundle))
		x.rehearse = x.play()
	}
	d.Mistakes = x.points([]examQuestion{
		{"one_bucket", "one bucket for all failures", x.oneBucket},
		{"process_state", "state of one process for a fleet", x.processState},
		{"outer_retries", "retries outside the breaker", x.outerRetries},
		{"unequal_fallback", "writes sent through an unequal fallback", x.unequalFallback},
		{"destructive_probes", "destructive probes", x.destructiveProbes},
		{"hidden_degradation", "hidden degradation", x.hiddenDegradation},
		{"raised_thresholds", "thresholds raised until quiet", x.raisedThresholds},
		{"only_a_breaker", "a breaker as the whole safety system", x.onlyABreaker},
		{"queue_without_expiry", "a queue without expiry", x.queueWithoutExpiry},
	})
	d.Ready = x.points([]examQuestion{
		{"own_circuits", "each upstream has its own circuit", x.ownCircuits},
		{"bounded_attempts", "attempts are bounded by count and deadline", x.boundedAttempts},
		{"unknown_distinct", "UNKNOWN is distinct", x.unknownDistinct},
		{"durable_intents", "intents are durable", x.durableIntents},
		{"keyed_writes", "writes have a key or a reconciliation", x.keyedWrites},
		{"queue_expires", "queued work expires and says why it was dropped", x.queueExpires},
		{"serial_probes", "probes are serialised", x.serialProbes},
		{"telling_logs", "logs carry request, attempt, outcome, policy version and state", x.tellingLogs},
		{"counted_attempts", "failure injection counts remote attempts", x.countedAttempts},
	})
	d.Setup = x.setup()
	d.count()
	return d
}

// An examQuestion is one point of an exam and how it is looked at.
type examQuestion struct {
	name, title string
	look        func(*examPoint)
}

// points asks questions. Without a policy that loads, only what its problems say
// can be seen.
func (x *exam) points(qs []examQuestion) []*examPoint {
	out := make([]*examPoint, 0, len(qs))
	for _, q := range qs {
		p := newPoint(q.name, q.title)
		if x.bundle == nil {
			x.refused(p)
		} else {
			q.look(p)
		}
		out = append(out, p)
	}
	return out
}

// refusedFor are what a policy is refused for that is one of the nine mistakes.
var refusedFor = map[string][]string{
	"queue_without_expiry": {"no expiry, no entry"},
	"hidden_degradation":   {"nobody may take a fallback for the real answer", "must name freshness"},
	"one_bucket":           {"is both in counts and in excludes"},
	"destructive_probes":   {"to probe", "could probe"},
}

// refused looks for a mistake in the problems of a policy that does not load.
func (x *exam) refused(p *examPoint) {
	if e, ok := errors.AsType[*policies.LoadError](x.loadErr); ok {
		for _, q := range e.Problems {
			for _, text := range refusedFor[p.Name] {
				if strings.Contains(q.Text, text) {
					p.found(filepath.Join(x.cfg.Policies.Path, q.File), q.Line, "change the line; a server refuses the policy as it is", "%s", q.Text)
					break
				}
			}
		}
	}
	if p.Status == pointOK {
		p.cannot("the policy does not load (see setup)")
	}
}

// at is the line of a key inside the table that begins at a line of policy.toml;
// the table's own where the key is not written.
func (x *exam) at(header int, key string) int {
	return lineBelow(string(x.bundle.SettingsTOML), header, key)
}

// key is the line of a key of policy.toml such as "queue.expires", 0 where it is
// not written.
func (x *exam) key(path string) int {
	line, _ := x.bundle.Written(path)
	return line
}

// configLine is the line of a key in the n-th table of fusebox.toml that has this
// header ("[listen]", "[[upstream]]").
func (x *exam) configLine(header string, n int, key string) int {
	line := 0
	for text := range strings.Lines(x.configText) {
		line++
		if strings.HasPrefix(strings.TrimSpace(text), header) {
			if n == 0 {
				return lineBelow(x.configText, line, key)
			}
			n--
		}
	}
	return 0
}

func lineBelow(text string, header int, key string) int {
	lines := strings.Split(text, "\n")
	for i := header; i < len(lines); i++ { // lines[header] is the one after the header
		bare := strings.TrimSpace(lines[i])
		if strings.HasPrefix(bare, "[") {
			break
		}
		if rest, ok := strings.CutPrefix(bare, key); ok && strings.HasPrefix(strings.TrimSpace(rest), "=") {
			return i + 1
		}
	}
	return header
}
