package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// What init says of its own work holds on a server: its circuits stop nobody, and
// a budget limit, authority and the UNKNOWN rule bind all the same.
func TestInitBindsWhatItSays(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "p")
	if status, _, errs := fusebox(t, "", "init", dir, "--defaults", "--tool", "mail/send=non_repeatable", "--effects", "read_only,non_repeatable,idempotent_write"); status != 0 {
		t.Fatal(errs)
	}
	r := inProcess(t, func(o *startOptions) { o.Config.Policies.Path = dir })
	read := `{"kind":"tool","name":"crm.read","tool":"crm","action":"read","effect":"read_only","agent":"a-1","tenant":"acme"}`
	for i := range 12 { // a circuit that bound would be open after five
		id, token := admitted(t, r.agent, read)
		ask(t, "POST", r.agent+"/v1/permits/"+id+"/dispatch", `{"token":"`+token+`"}`)
		if status, a := ask(t, "POST", r.agent+"/v1/record", `{"permit":"`+id+`","token":"`+token+`","observation":{"transport":{"dispatched":"yes"},"response":{"status":503,"headers":{},"body":""},"elapsed_ms":3}}`); status != 200 {
			t.Fatalf("call %d: %v", i, a)
		}
	}
	decided := func(change string) (string, string) {
		_, a := ask(t, "POST", r.agent+"/v1/admit", `{"operation":`+strings.Replace(read, `"effect":"read_only"`, change, 1)+`}`)
		return text(a, "decision"), text(a, "rejection", "reason")
	}
	if d, why := decided(`"effect":"non_repeatable"`); d == "allow" {
		t.Errorf("a write that nobody described: %s %s", d, why)
	}
	if d, why := decided(`"effect":"read_only","run_id":"r-1","estimate":{"cost_nano_usd":21000000000}`); d == "allow" {
		t.Errorf("a call above the limit of its run: %s %s", d, why)
	}
	mail := strings.Replace(mailOperation, `"agent":`, `"request_id":"q-1","idempotency_key":"k-1","agent":`, 1)
	id, token := admitted(t, r.agent, mail)
	ask(t, "POST", r.agent+"/v1/permits/"+id+"/dispatch", `{"token":"`+token+`"}`)
	ask(t, "POST", r.agent+"/v1/record", `{"permit":"`+id+`","token":"`+token+`",`+timedOut+`}`)
	if _, a := ask(t, "POST", r.agent+"/v1/admit", `{"operation":`+strings.Replace(mail, `"agent":`, `"attempt":2,"origin":"retry","agent":`, 1)+`}`); text(a, "decision") == "allow" {
		t.Errorf("an UNKNOWN write is sent again: %v", a)
	}
}
