// Package clients runs real, unchanged clients against a scripted upstream
// through a real fusebox: official SDKs, agent frameworks and MCP clients, each
// with its defaults. It is a module of its own, because building and installing
// them takes longer than all other tests. `make clients` runs it.
package clients
