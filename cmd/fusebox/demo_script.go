package main

import (
	"fmt"
	"time"
)

// The acts of the demo, as the table and the counters name them.
const (
	actStorm    = "storm"
	actRecovery = "recovery"
	actMail     = "mail"
	actLoop     = "loop"
	actPayment  = "payment"
)

// An act is one misfortune, and what the agent wants meanwhile.
type act struct {
	name  string
	title string
	wants int
	note  string // what to look at
}

var demoActs = []act{
	{actStorm, "A 529 storm at the model provider", 8,
		"every call is answered \"529 overloaded\""},
	{actRecovery, "The storm passes", 4,
		"one probe after the cooldown decides for everybody"},
	{actMail, "A mail service that delivers and then says nothing", 3,
		"the first mail times out after it was delivered, the third is over the plan's volume"},
	{actLoop, "An agent that asks the same question again and again", 8,
		"the same search, the same arguments, the same empty answer"},
	{actPayment, "A payment nobody allowed", 1,
		"60,000.00 to an account that the policy caps at 50,000.00"},
}

const (
	// demoTimeout is the agent's patience with the mail that is not answered, and
	// demoPatience with everything that is: a busy machine must not look like a
	// silent remote.
	demoTimeout  = 250 * time.Millisecond
	demoPatience = 10 * time.Second
	// sdkTries is what the official model SDKs do on 429, 5xx and broken
	// connections unless they are told otherwise: two retries.
	sdkTries = 3
)

// toolCall is one call of a tool that the script wants.
type toolCall struct {
	act    string
	tool   string // of the operation document
	action string
	class  string // action class
	effect string
	amount int64
	path   string // at the remote
	body   string
	key    string // the same on every attempt
	wait   time.Duration
}

func demoMails() []toolCall {
	mail := func(key, to, mood string) toolCall {
		return toolCall{act: actMail, tool: "acme-mail", action: "send", class: "mail.send", effect: "non_repeatable",
			path: "/mail/send", key: key, body: `{"to":"` + to + `","mood":"` + mood + `"}`, wait: demoPatience}
	}
	silent := mail("ticket-17", "ann@example.com", "silent")
	silent.wait = demoTimeout
	return []toolCall{silent, mail("ticket-18", "ben@example.com", ""), mail("ticket-19", "cy@example.com", "plan")}
}

func demoSearch() toolCall {
	return toolCall{act: actLoop, tool: "search", action: "query", class: "search.query", effect: "read_only",
		path: "/search", body: `{"q":"refund policy for ticket 17"}`, wait: demoPatience}
}

func demoPayment() toolCall {
	return toolCall{act: actPayment, tool: "bank", action: "transfer", class: "payment", effect: "non_repeatable",
		amount: 6_000_000, path: "/payments", key: "payment-1", body: `{"iban":"DE00","amount":6000000}`, wait: demoPatience}
}

// demoPrompt asks for another ticket each time: the agent is not in a loop here.
func demoPrompt(ticket int) string {
	return fmt.Sprintf(`{"model":"demo-model","max_tokens":100,"messages":[{"role":"user","content":"Summarise ticket %d."}]}`, ticket)
}
