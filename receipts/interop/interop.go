// Package interop holds nothing but tests: it lets implementations of the C2SP
// formats and of RFC 8785 that others wrote judge what package receipts makes,
// and the other way round. It is a module of its own, so that fusebox does not
// depend on them:
//
//	cd receipts/interop && go test ./...
package interop
