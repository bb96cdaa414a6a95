//go:build !linux

package main

import "time"

var begin = time.Now()

// cpu is the wall clock, where nothing better is at hand: measure on a quiet
// machine.
func cpu() time.Duration { return time.Since(begin) }
