package breaker_test

import (
	"fmt"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// The rule of one circuit needs nothing but values: here five failures in a row
// open it, and the next call learns when to come back.
func ExampleStep() {
	s := breaker.Defaults("provider", taxonomy.LayerProvider, "provider")
	s.Rule.Mode = taxonomy.ModeEnforce
	var c breaker.Circuit
	now := breaker.Instant(time.Hour)
	for range 5 {
		var changes breaker.Transitions
		c, _, changes = breaker.Step(&s.Rule, c, breaker.Event{Kind: breaker.Outcome, Outcome: breaker.Failed}, now)
		for _, t := range changes.All() {
			fmt.Println(t.From, "to", t.To, "by", t.Reason, "for", t.Cooldown)
		}
	}
	_, d, _ := breaker.Step(&s.Rule, c, breaker.Event{Kind: breaker.Peek}, now.Add(10*time.Second))
	fmt.Println(d.Allow, d.Reason, "for another", d.RetryAt.Sub(now.Add(10*time.Second)))
	// Output:
	// CLOSED to OPEN by consecutive_failures for 30s
	// false circuit_open for another 20s
}

// A registry turns an operation into the circuits it touches, and keeps them.
func ExampleRegistry() {
	s := breaker.Defaults("provider", taxonomy.LayerProvider, "provider", "region", "model")
	s.Rule.Mode, s.Fallback = taxonomy.ModeEnforce, "provider-open"
	registry, err := breaker.NewRegistry(breaker.Options{Settings: []breaker.Setting{s}})
	if err != nil {
		fmt.Println(err)
		return
	}
	op := &taxonomy.Operation{Kind: "model", Provider: "openai", Region: "eu", Model: "gpt-x", Effect: taxonomy.ReadOnly}
	now := breaker.Instant(time.Hour)
	path := registry.Path(op, now)
	ask := breaker.Ask{Operation: op}

	// A call goes, and the server says to wait a minute.
	ticket, _ := path.Admit(ask, now)
	path.Record(ticket, []taxonomy.Feed{{Layer: taxonomy.LayerProvider, Level: "region", Signal: taxonomy.SignalOpenNow,
		UntilMS: 60_000, Reason: "http_429"}}, breaker.Result{Outcome: taxonomy.Failed, Class: taxonomy.RateLimit}, now)

	if _, no := path.Admit(ask, now); no != nil {
		fmt.Println(no.Scope, no.State, no.Cause, no.Detail, no.RetryAt.Sub(now), no.Fallback)
	}
	// The cooldown is over: the next call is the probe, and needs a lease.
	now = now.Add(time.Minute)
	ticket, _ = path.Admit(ask, now)
	fmt.Println("needs a lease:", ticket.Needs())
	path.Lease(&ticket, ask, now)
	if _, no := path.Admit(ask, now); no != nil {
		fmt.Println(no.Scope, no.State, no.Reason)
	}
	// Output:
	// provider:openai/eu OPEN retry_after http_429 1m0s provider-open
	// needs a lease: true
	// provider:openai/eu HALF_OPEN probe_busy
}

// A person decides, with a reason and an end.
func ExampleRegistry_Override() {
	registry, _ := breaker.NewRegistry(breaker.Options{Settings: []breaker.Setting{
		breaker.Defaults("tool", taxonomy.LayerTool, "tool", "action")}})
	now := breaker.Instant(time.Hour)
	key, _ := registry.Find("tool:mail/send")
	_, err := registry.Override(key, breaker.Override{Kind: breaker.ForcedOpen, Until: now.Add(time.Hour), By: "ann"}, now)
	fmt.Println(err)
	changes, _ := registry.Override(key, breaker.Override{Kind: breaker.ForcedOpen, Until: now.Add(time.Hour), By: "ann", Why: "incident 7"}, now)
	fmt.Println(changes[0].Scope, changes[0].Override, "by", changes[0].By, "for", changes[0].Until.Sub(now))
	// Output:
	// override tool:mail/send: not a valid override: it must say who and why
	// tool:mail/send forced_open by ann for 1h0m0s
}

// Settings say what is wrong with them in the words of policy.toml.
func ExampleSetting_Validate() {
	s := breaker.Defaults("budget", taxonomy.LayerBudget, "tenant", "colour")
	s.Rule.Probe.Evidence = breaker.ModelCall
	s.OnStoreLoss = breaker.LossAllow
	s.Scope = []string{"tenant", "tenant"}
	fmt.Println(s.Validate())
	// Output:
	// breaker "budget": scope names "tenant" twice
	// breaker "budget": probe.evidence model_call does not match the budget layer; it can be replenished, capacity_changed
	// breaker "budget": on_store_loss must be "deny" for the budget layer, got "allow"
}
