package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/sdk"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

func demoCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Watch a scripted agent against a misbehaving remote, under 30 seconds",
		Long: `Demo starts a server, a remote that misbehaves on schedule, and an agent that
works through both: a storm of 529 at the model provider, a mail service that
delivers and then says nothing, an agent in a loop, a payment nobody allowed.

Everything is the real path: HTTP, SQLite, Rego, a WebAssembly classifier, the
receipts log. Beside it the same script runs against a second remote with the
retries that SDKs and frameworks do by default, and both remotes count.

It needs no network, listens on free loopback ports, and leaves its data, its
policy and its receipts in the directory that it names.

--fleet shows something else: 200 workers and an outage of 60 seconds, on a
simulated clock. It prints how many probes hit the dependency while it is down,
how many at once, and how long it takes until every circuit is closed again, with
one circuit that all share and with one in each process.

Exit status: 0 shown, and the receipts verify; 1 it went wrong; 4 the directory
cannot be used.`,
		Example: `  fusebox demo
  fusebox demo --data ./demo --json
  fusebox demo --fleet`,
	}
	addData(cmd)
	many := cmd.Flags().Bool("fleet", false, "show 200 workers and one outage instead")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *many {
			return demoFleet(cmd, *asJSON)
		}
		ctx, stop := untilInterrupted(cmd.Context())
		defer stop()
		progress := cmd.OutOrStdout()
		if *asJSON {
			progress = io.Discard
		}
		dir, err := demoDir(cmd.Flag("data").Value.String())
		if err != nil {
			return err
		}
		d := &demo{out: progress, dir: dir, begun: time.Now()}
		report, err := d.run(ctx)
		if err != nil {
			return fmt.Errorf("demo in %s: %w", dir, err)
		}
		if *asJSON {
			err = writeJSON(cmd.OutOrStdout(), report)
		} else {
			err = report.write(cmd.OutOrStdout())
		}
		if err == nil && !report.Receipts.Verified {
			err = withStatus(report.Receipts.Exit, errors.New("the receipts of this demo did not verify"))
		}
		return err
	}
	return cmd
}

// demoDir is a fresh directory. One that was used is not written over: its
// receipts are evidence.
func demoDir(dir string) (string, error) {
	if dir == "" {
		d, err := os.MkdirTemp("", "fusebox-demo-")
		return d, withStatus(exitSetup, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "policies")); err == nil {
		return "", withStatus(exitSetup, fmt.Errorf("directory %s holds an earlier demo; name another one with --data, or remove it", dir))
	}
	return filepath.Abs(dir)
}

// A demo is one run of the script, guarded and plain.
type demo struct {
	out    io.Writer
	dir    string
	begun  time.Time
	wild   *wildRemote // behind fusebox
	bare   *wildRemote // of the plain retry loop
	srv    *running
	agent  *agent // with fusebox
	plain  *agent // without
	api    *serverClient
	modes  map[string]taxonomy.Mode // of the policy's breakers
	report demoReport
}

func (d *demo) run(ctx context.Context) (*demoReport, error) {
	if err := d.setUp(ctx); err != nil {
		return nil, errors.Join(err, d.tearDown())
	}
	for _, step := range []func(context.Context) error{d.storm, d.recovery, d.mail, d.loop, d.payment} {
		if err := step(ctx); err != nil {
			return nil, errors.Join(err, d.tearDown())
		}
		if err := ctx.Err(); err != nil {
			return nil, errors.Join(errors.New("interrupted"), d.tearDown())
		}
	}
	d.report.Damage = damageReport{MailsWanted: 2, MailsDelivered: d.wild.sent, MailsPlain: d.bare.sent, Paid: d.wild.paid, PaidPlain: d.bare.paid}
	d.modes = map[string]taxonomy.Mode{}
	for _, s := range d.srv.client.Registry().Settings() {
		d.modes[s.Name] = s.Rule.Mode
	}
	if err := d.tearDown(); err != nil {
		return nil, err
	}
	return &d.report, d.verify(ctx)
}

// setUp starts two remotes, the server, and both agents.
func (d *demo) setUp(ctx context.Context) (err error) {
	if d.wild, err = startRemote(); err != nil {
		return err
	}
	if d.bare, err = startRemote(); err != nil {
		return err
	}
	policy := filepath.Join(d.dir, "policies")
	if err := writeDemoPolicy(policy, d.wild.url); err != nil {
		return err
	}
	watch := false
	cfg := sdk.Config{
		Data:      d.dir,
		Policies:  sdk.PolicySource{Path: policy, Watch: &watch},
		Listen:    sdk.Listen{Agent: "127.0.0.1:0", Operator: "127.0.0.1:0"},
		Upstreams: []sdk.Upstream{{Name: "anthropic", Dialect: "anthropic", URL: d.wild.url}},
	}
	if d.srv, err = start(ctx, startOptions{Config: cfg, Logger: newLogger(io.Discard, sdk.LogConfig{})}); err != nil {
		return err
	}
	client := &http.Client{}
	api := d.srv.agent
	if d.api, err = newServerClient(api); err != nil {
		return err
	}
	d.agent = &agent{http: client, baseURL: api + "/anthropic", remote: d.wild.url, api: api, run: "demo-run", pause: 20 * time.Millisecond}
	d.plain = &agent{http: client, baseURL: d.bare.url, remote: d.bare.url, pause: 20 * time.Millisecond}
	d.report.V, d.report.Data, d.report.Policy = 1, d.dir, string(d.srv.client.Engine().Version())
	d.say("fusebox %s: a scripted agent, a misbehaving remote, %s\n", version, d.dir)
	return nil
}

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.out, format, args...) }

// begin announces an act and runs the plain loop's part of it.
func (d *demo) begin(i int) act {
	a := demoActs[i]
	d.say("\n%d  %s: %s\n", i+1, a.title, a.note)
	return a
}

// end counts an act at both remotes.
func (d *demo) end(a act, verdict string) {
	r := actReport{Name: a.name, Title: a.title, Wanted: a.wants, Guarded: d.wild.reached(a.name), Plain: d.bare.reached(a.name), Verdict: verdict}
	d.report.Acts = append(d.report.Acts, r)
	d.say("   wanted %d, reached the remote: %d with fusebox, %d with plain retries\n", r.Wanted, r.Guarded, r.Plain)
}

// storm: every model call is answered 529 until fusebox stops asking.
func (d *demo) storm(ctx context.Context) error {
	a := d.begin(0)
	d.wild.setStorm(true)
	d.bare.setStorm(true)
	refused := 0
	for i := range a.wants {
		if c := d.agent.model(ctx, demoPrompt(i+1)); c.decided == "reject" {
			if refused++; refused == 1 {
				d.say("   circuit opens: %s; the agent is told at once and does not retry\n", c.reason)
			}
		}
	}
	for i := range a.wants {
		d.plain.model(ctx, demoPrompt(i+1))
	}
	d.wild.setStorm(false)
	d.bare.setStorm(false)
	d.end(a, fmt.Sprintf("the circuit opened, and %d of %d calls were answered here", refused, a.wants))
	return nil
}

// recovery: after the cooldown one probe goes, and closes the circuit for all.
func (d *demo) recovery(ctx context.Context) error {
	a := d.begin(1)
	if err := d.cooldown(ctx); err != nil {
		return err
	}
	ok := 0
	for i := range a.wants {
		prompt := demoPrompt(demoActs[0].wants + i + 1)
		if d.agent.model(ctx, prompt).ok {
			if ok++; ok == 1 {
				d.say("   call %d is the probe; it succeeds and the circuit closes\n", i+1)
			}
		}
		d.plain.model(ctx, prompt)
	}
	d.end(a, fmt.Sprintf("%d of %d calls answered", ok, a.wants))
	if ok != a.wants {
		return fmt.Errorf("after the storm %d of %d calls were answered", ok, a.wants)
	}
	return nil
}

// cooldown waits until every open circuit of the provider may be probed.
func (d *demo) cooldown(ctx context.Context) error {
	for begin := time.Now(); ; {
		var answer struct{ Breakers []circuitDoc }
		if err := d.api.get(ctx, "/v1/breakers?layer=provider", &answer); err != nil {
			return err
		}
		wait := time.Duration(0)
		for _, c := range answer.Breakers {
			if c.State == "OPEN" && c.Mode == "enforce" {
				wait = max(wait, time.Until(c.RetryAt), 10*time.Millisecond)
			}
		}
		if wait == 0 {
			return nil
		}
		if time.Since(begin) > 15*time.Second {
			return errors.New("the provider circuit did not leave OPEN within 15 s")
		}
		if wait <= 10*time.Millisecond {
			return nil // its time has come; the next call is the probe
		}
		d.say("   waiting out the cooldown: %s\n", wait.Round(10*time.Millisecond))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(wait+20*time.Millisecond, 5*time.Second)):
		}
	}
}

// mail: the first is UNKNOWN and not sent again, the third is a matter of
// budget, as a team's own module knows.
func (d *demo) mail(ctx context.Context) error {
	a := d.begin(2)
	for i, m := range demoMails() {
		c, err := d.agent.guardedTool(ctx, m)
		if err != nil {
			return err
		}
		d.plain.plainTool(ctx, m)
		switch {
		case c.record == nil:
			return fmt.Errorf("mail %d was not admitted: %s %s", i+1, c.decided, c.reason)
		case i == 0:
			if err := d.reconcile(ctx, c); err != nil {
				return err
			}
		case i == 1:
			d.say("   mail 2: %s\n", c.record.Outcome)
		default:
			d.report.Module = moduleReport{By: c.record.ClassifiedBy, Class: c.record.Class.String(), Reason: c.record.Reason}
			module, _, _ := strings.Cut(c.record.ClassifiedBy, "@")
			d.say("   mail 3: HTTP 403, which the module %s knows to be a matter of %s (%s)\n", module, c.record.Class, c.record.Reason)
		}
	}
	d.end(a, "the mail that timed out was delivered once")
	return nil
}

// reconcile looks the silent mail up by its key. Only then is it known.
func (d *demo) reconcile(ctx context.Context, c called) error {
	u := unknownReport{Intent: c.permit, Outcome: c.record.Outcome.String(), Class: c.record.Class.String(), Resent: c.tries - 1}
	d.say("   mail 1: no answer in %s: %s (%s), next: %s; it is not sent again\n", demoTimeout, u.Outcome, u.Class, c.record.Next.Action)
	var in intentDoc
	if err := d.api.post(ctx, "/v1/reconcile", map[string]any{"v": 1, "permit": c.permit, "finding": "lookup"}, &in); err != nil {
		return err
	}
	u.Finding = in.Reason
	d.report.Unknown = u
	d.say("   status look-up by its key: %s, so the mail counts as %s\n", in.Reason, in.Outcome)
	if in.Outcome != "SUCCEEDED" {
		return fmt.Errorf("the look-up settled the mail as %s", in.Outcome)
	}
	return nil
}

// loop: the same question again and again.
func (d *demo) loop(ctx context.Context) error {
	a := d.begin(3)
	stopped := 0
	for i := range a.wants {
		c, err := d.agent.guardedTool(ctx, demoSearch())
		if err != nil {
			return err
		}
		if c.decided != "allow" {
			if stopped++; stopped == 1 {
				d.say("   call %d is stopped: %s; the tool stays healthy, the run is told to ask\n", i+1, c.reason)
			}
		}
		d.plain.plainTool(ctx, demoSearch())
	}
	d.end(a, fmt.Sprintf("%d of %d calls stopped", stopped, a.wants))
	return nil
}

// payment: denied by authority, so nothing is sent.
func (d *demo) payment(ctx context.Context) error {
	a := d.begin(4)
	c, err := d.agent.guardedTool(ctx, demoPayment())
	if err != nil {
		return err
	}
	d.plain.plainTool(ctx, demoPayment())
	d.say("   %s: %s\n", c.decided, c.reason)
	d.end(a, c.decided+": "+c.reason)
	return nil
}

// tearDown ends everything that runs; it may be called twice.
func (d *demo) tearDown() error {
	var err error
	if d.srv != nil {
		err = d.srv.stop()
		d.report.Receipts.Dir = d.srv.client.Config().Receipts.Dir
		d.report.Receipts.Checkpoint, d.report.Receipts.Head = d.srv.trusted(), d.srv.checkpointLine()
		d.srv = nil
	}
	for _, w := range []**wildRemote{&d.wild, &d.bare} {
		if *w != nil {
			(*w).close()
			*w = nil
		}
	}
	return err
}

// verify reads the evidence that was just left, as anybody could.
func (d *demo) verify(ctx context.Context) error {
	r := &d.report.Receipts
	v, err := receipts.Verify(ctx, r.Dir, receipts.VerifyOptions{})
	if err != nil {
		return err
	}
	r.Count, r.Verified, r.Exit = v.Receipts, v.Exit == receipts.ExitPass, v.Exit
	r.Command = verifyCommand(r.Dir)
	logs, err := openLogs(r.Dir)
	if err != nil {
		return err
	}
	d.report.Circuits = []circuitMove{}
	for e, err := range receipts.All(logs, receipts.Query{Kinds: []receipts.Kind{receipts.KindTransition}}) {
		if err != nil {
			return err
		}
		if t := &e.Receipt; t.PrevState != t.State {
			d.report.Circuits = append(d.report.Circuits, circuitMove{Scope: t.Scope, From: t.PrevState.String(), To: t.State.String(), Reason: t.Reason,
				Mode: d.modes[t.Breaker].String()})
		}
	}
	d.report.Took = time.Since(d.begun)
	return nil
}
