// Package engine is the path of one request, one file per step:
//
//	admit.go     may it go? authorize.go (authority, approvals), sent.go (was it
//	             sent before?), progress.go (loops), blocked.go (circuits that
//	             refuse), budgets asked
//	dispatch.go  what must be durable first, then send
//	classify.go  modules, then the table, then the floor and the retry advice
//	route.go     which layers the outcome feeds
//	record.go    circuits stepped, intent, lease and reservation settled
//	receipt.go   evidence, at every exit
//
// Two doors, one path: [Engine.Do] takes a closure and owns the retries;
// [Engine.Admit] gives a [Permit], whose Dispatch, Settle and Abandon serve
// streams, proxies and other processes.
//
// Beside the path live the working sets it needs: permits.go (what is out),
// runs.go (the recent calls of each run), combine.go (one update of the store
// in flight per circuit) and budget.go (accounts).
//
// partition.go holds a policy with its circuits. There is one, and a second one
// while a candidate is on trial: rollout.go and the files beside it
// (rollout_path.go what the path does, rollout_shadow.go and rollout_ask.go the
// candidate that only watches, rollout_figures.go, rollout_review.go and
// rollout_gate.go what comes of it).
//
// The engine imports no policy engine, sandbox, database driver or file format:
// those are parts.
package engine
