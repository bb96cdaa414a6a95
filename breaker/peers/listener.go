package main

import (
	"fmt"
	"time"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// listeners: a change while a listener never returns and as many changes wait
// for it as may. It must cost no more than one nobody listens to, and a copy.
func listeners() {
	b := measure(rounds, changes("nobody listens", false), changes("a listener is blocked", true))
	fmt.Println("One circuit forced open and released, two changes:")
	show(b, "nobody listens", "a listener is blocked")
	ratio("changes_behind_blocked_listener/no_listener", b["a listener is blocked"]/b["nobody listens"], 2)
	fmt.Println()
}

// changes forces one circuit open and releases it.
func changes(name string, blocked bool) contender {
	s := breaker.Defaults("provider", taxonomy.LayerProvider, "provider")
	o := breaker.Options{Settings: []breaker.Setting{s}}
	if blocked {
		o.Listeners = []func(breaker.Change){func(breaker.Change) { select {} }}
	}
	g, err := breaker.NewRegistry(o)
	if err != nil {
		panic(err)
	}
	key, err := s.KeyOf("provider:openai")
	if err != nil {
		panic(err)
	}
	now := breaker.Instant(1)
	do := func(n int) {
		for range n {
			now++
			_, err := g.Override(key, breaker.Override{Kind: breaker.ForcedOpen, Until: now.Add(time.Minute), By: "bench", Why: "bench"}, now)
			if err != nil {
				panic(err)
			}
			if _, err = g.ClearOverride(key, "bench", "bench", now); err != nil {
				panic(err)
			}
		}
	}
	if blocked {
		do(40_000) // more than wait
		if lost, _ := g.Undelivered(); lost == 0 {
			panic("the backlog is not full")
		}
	}
	return contender{name, do}
}
