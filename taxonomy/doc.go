// Package taxonomy holds the nouns of fusebox and the few pure rules that
// belong to them.
//
// Every room speaks these words, so the package imports nothing but the pull
// parser beside it: no encoding/json, no I/O, no clock. It compiles for
// wasip1, where guest modules use the same types.
//
// Every zero value is the careful one: an undeclared [Effect] cannot be
// repeated, an undecided [Outcome] is UNKNOWN, an unanswered [Authority]
// question is a denial, and absent [Retry] advice is never.
package taxonomy
