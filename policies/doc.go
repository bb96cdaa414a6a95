// Package policies holds the default policy bundle and reads, checks, digests,
// builds and verifies any bundle.
//
// A bundle is everything that decides: Rego, its data, and policy.toml with the
// breakers, modules, plugins, fallback contracts, tools, budgets, prices, queue,
// retry profiles and rollout. It has one version, "<revision>@sha256:<digest>",
// that is the same for the same policy in a folder, in an archive made by
// [Build], in an archive made by `opa build` with its settings beside it, and
// in the copy embedded in the binary.
//
// The package reads no Rego: package rego does. It opens no module: package
// wasm does. It says what they are given, and that their bytes are the pinned
// ones.
package policies
