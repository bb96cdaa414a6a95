// Package sdk is the front door of fusebox: wiring in, a running engine out.
//
// [Open] takes a [Config], which is what fusebox.toml says, and [Parts], which
// is what an embedder hands in by itself. It opens the state store and the
// receipts log under one data directory, loads a policy bundle (Rego, settings
// and modules under one version) and returns a [Client]. [Client.Do] and the
// generic [Do] carry an operation through admission, dispatch and settlement;
// [Client.Admit] gives a permit to callers that send by themselves, such as
// streams and proxies.
//
// It is the only room that knows every room. Drivers and plugins are parts, so
// that an embedder links what it uses: SQLite is the default and linked here,
// everything else is handed in.
package sdk
