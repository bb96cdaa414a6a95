// Package breaker holds the rule of one circuit and the process's working copy
// of all circuits.
//
// [Step] is the rule: a pure function from (rule, circuit, event, now) to the
// next circuit, a decision and the transitions that happened. It reads no
// clock, draws no random number, does no I/O and keeps no map, so the same
// inputs give the same answer in a test, in a replay and on another machine.
// Everything that differs from call to call (the instant, the draw that
// decides jitter and ramp, the token of a lease) arrives as an argument.
//
// [Registry] is the working copy: it turns an operation into a [Path] of
// circuits, one for every breaker and every prefix of its scope, answers
// admission from atomics while nothing is open, and applies Step under a lock
// when something is recorded.
//
// [Setting] is one [[breaker]] of a policy in Go.
package breaker
