// Command acme-billing is a classifier in Go: a 4xx of Acme's payment provider
// that is really a matter of budget.
package main

import (
	"github.com/fusebox-dev/fusebox/sdk/guest"
)

func main() {}

//go:wasmexport fb_classify
func classify(p *byte, n uint32) int64 { return guest.Classify(p, n, judge) }

// judge knows the codes of one provider and has no opinion on anything else.
func judge(in guest.Document) (guest.Verdict, bool) {
	obs := in.Get("observation")
	if obs.Text("operation", "provider") != "acme-pay" {
		return guest.Verdict{}, false
	}
	status := obs.Int("response", "status")
	if status < 400 || status > 499 {
		return guest.Verdict{}, false
	}
	switch code := obs.Inner("response", "body").Text("error", "code"); code {
	case "account_suspended", "invoice_overdue", "spending_cap":
		return guest.Verdict{Outcome: guest.Failed, Class: guest.Budget, Reason: code,
			Facts: []guest.Fact{{Name: "owner", Value: "finance"}}}, true
	case "card_declined":
		return guest.Verdict{Outcome: guest.Failed, Class: guest.Validation, Reason: code}, true
	}
	return guest.Verdict{}, false
}
