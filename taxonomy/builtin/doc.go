// Package builtin is the classifier that always answers: a table of rules that
// turns an observation into a verdict.
//
// The rules are data, in packs/*.rules, one pack per provider or kind of tool;
// README.md says how to read, change and add one. This package reads the
// evidence out of an observation (status, typed codes, wordings, the position
// in a stream, local facts, the run's history), lets the first matching rule in
// a total order decide the class, and derives the outcome from the class, the
// effect and what was dispatched.
//
// Rules are lines of words and not JSON or Go values, because the people who
// know a provider's errors should be able to read one rule aloud, diff it and
// copy it, and because a line can carry its own comment and number in an error.
//
// Everything here is pure: the same table and the same observation always give
// the same verdict, and no input makes it panic or work more than a fixed
// number of steps per byte.
package builtin
