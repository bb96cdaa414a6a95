// Package rego answers the four questions of policy by evaluating Rego.
//
// [Compile] turns bytes of Rego and data into an immutable [Snapshot], or
// returns every problem with file and line. A snapshot is hermetic: no builtin
// that reads the network, the host, a clock or randomness exists in it, so an
// answer is a function of the snapshot and the input alone. That is what makes
// an answer replayable from its receipt, and what lets a snapshot remember
// answers without ever forgetting them by time: the memo is keyed by exactly
// those input fields that the compiled rules read, and every key is compared
// in full.
//
// A failure is an answer too. Authority fails to deny, admission to reject,
// routing to no feeds and fallback to no candidates, each with a code in
// [taxonomy.Evaluation] that says what happened.
//
// This is the only package of fusebox that links OPA.
package rego
