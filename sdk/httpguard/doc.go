// Package httpguard puts fusebox around HTTP: [Transport] inside a Go program,
// [Proxy] beside an agent of any language.
//
// Both walk the one path of package engine for each attempt: admit, make the
// dispatch durable, send, observe, settle. The facts come from the wire and not
// from error texts: net/http/httptrace says whether the request left, the
// body is looked at as it passes, compressed or not, streamed or not.
//
// A call that was not sent is answered with a response in the dialect of the
// API it was meant for, never with an error: the official Go SDKs retry an
// error from a transport, and do not retry the response.
//
// Nothing here retries. Each attempt of an SDK's own loop passes admission like
// any other call; net/http's own silent replays of a request with a body are
// switched off, because a retry that nobody sees is a call that nobody counted.
package httpguard
