//go:build !linux

package wasm

import "errors"

func reserve(n uint64) []byte { return make([]byte, n) }

func release([]byte) {}

func newImage(mem []byte) (*image, error) {
	return &image{bytes: append([]byte(nil), mem...), fd: -1}, nil
}

func (im *image) close() { im.bytes = nil }

func mapImage([]byte, int) error { return errors.ErrUnsupported }

type pageScan struct{}

func (l *linear) rewind([]byte) bool { return false }

func (l *linear) dropAll() bool { return false }
