// Package mcpguard puts fusebox around MCP, the Model Context Protocol: a
// [Relay] around a server that speaks over standard input and output, a [Proxy]
// in front of one that speaks over streamable HTTP, and a [Middleware] for
// servers and clients that are built with the Go SDK.
//
// All three are one filter over JSON-RPC messages. Every tools/call walks the
// one path of package engine: admit, make the dispatch durable, forward,
// observe, settle. Everything else passes byte for byte, also what this package
// has never heard of; a newer protocol needs no newer fusebox.
//
// A call that was not sent is answered with a result and not with an error: a
// host shows results to the model, which can change course, and hides errors or
// retries them. The result says in plain words and in a structure what is open,
// what to do next and when (see answer.go).
//
// What a server says about its own tools is believed only where it makes a call
// more careful. Effects come from [[tool]] entries of the policy; without one a
// call counts as non_repeatable, whatever readOnlyHint says, unless the policy
// trusts the annotations of that server by name (see effect.go). A tool whose
// description, schema or annotations change after first sight is noticed, leaves
// a receipt and loses that trust (see catalogue.go).
//
// A write whose end nobody knows is not sent again: not by this package, and not
// for an agent that asks again with the same arguments, also after a restart and
// under another session (see recall.go).
package mcpguard
