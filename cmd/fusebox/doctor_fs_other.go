//go:build !linux

package main

// filesystemOf cannot tell on this system; opening the store still refuses what
// it knows to be unsafe.
func filesystemOf(string) (name string, network bool) { return "", false }
