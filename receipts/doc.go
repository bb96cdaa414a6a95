// Package receipts is the append-only evidence of fusebox: it encodes what was
// decided, writes it to a tamper-evident log, and lets anyone verify and prove it.
//
// A [Receipt] is one decision as typed fields: identifiers, enums, counts and
// digests, never a prompt, an argument or a result. Its bytes are canonical
// JSON (RFC 8785), and the stored bytes are the leaf of a Merkle tree in the
// shape of RFC 6962. The head of the tree is signed as a C2SP checkpoint
// (c2sp.org/tlog-checkpoint), so that every client of transparency logs can
// audit it.
//
// [Open] starts the one writer of a log directory, [Verify] judges directories
// without trusting the host, and [Reader] reads them, live or closed.
package receipts
