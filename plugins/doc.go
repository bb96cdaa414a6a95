// Package plugins runs extensions in processes of their own, over go-plugin and
// gRPC: classifiers, reconcilers, approvers, evaluators and receipt sinks (SPEC
// R-OPS-7). Each is pinned by the checksum of its binary, says in a versioned
// handshake what it is, and is asked one JSON document at a time under a
// deadline.
//
// A plugin that hangs, crashes, floods its log or answers nonsense costs only
// itself: the call fails with a code, the process is replaced with a growing
// pause, and after repeated failures a circuit of its own keeps calls away for
// a while. What an answer may say is the caller's to judge; this package
// carries it.
//
// A plugin is no sandbox. It runs as the user that fusebox runs as, and can do
// what that user can; the checksum says whose code that is.
package plugins
