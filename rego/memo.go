package rego

import (
	"bytes"
	"hash/maphash"
	"sync/atomic"
)

// maxKey is the longest key that is remembered. Agents choose the strings in
// it, and what they choose must not fill the memo.
const maxKey = 2 << 10

// A memo remembers answers by key. It is a table of small sets: a lookup reads
// one set without a lock and compares the key in full, never only its hash,
// since two operations with one hash would be an authorization bypass. It is
// bounded in bytes, and it needs no upkeep: an insertion replaces the entry of
// its set that was not used since the last time somebody looked for room.
type memo[A any] struct {
	seed    maphash.Seed // its own, so nobody outside can aim at one set
	sets    []set[A]
	limit   int64
	bytes   atomic.Int64
	entries atomic.Int64
	hand    atomic.Uint64 // the next set to make room in
}

const ways = 4

type set[A any] [ways]atomic.Pointer[slot[A]]

// A slot never changes once it is in a set, but for its mark.
type slot[A any] struct {
	hash   uint64
	used   atomic.Bool
	weight int64
	key    []byte
	answer A
}

func newMemo[A any](limit int64) *memo[A] {
	n := 64
	for n < 1<<16 && int64(n)*ways*256 < limit {
		n *= 2
	}
	return &memo[A]{seed: maphash.MakeSeed(), sets: make([]set[A], n), limit: limit}
}

func (m *memo[A]) hash(key []byte) uint64 { return maphash.Bytes(m.seed, key) }

func (m *memo[A]) get(hash uint64, key []byte) *A {
	s := &m.sets[hash&uint64(len(m.sets)-1)]
	for i := range s {
		e := s[i].Load()
		if e != nil && e.hash == hash && bytes.Equal(e.key, key) {
			if !e.used.Load() { // a plain read first: hits must not fight over the line
				e.used.Store(true)
			}
			return &e.answer
		}
	}
	return nil
}

func (m *memo[A]) put(hash uint64, key []byte, answer A, weight int64) {
	e := &slot[A]{hash: hash, key: bytes.Clone(key), answer: answer, weight: weight + int64(len(key))}
	at := hash & uint64(len(m.sets)-1)
	s := &m.sets[at]
	way, victim := m.choose(s, hash, key)
	if !s[way].CompareAndSwap(victim, e) {
		return // somebody else was here; nothing is lost but this memory
	}
	m.account(e, victim)
	for tries := 0; m.bytes.Load() > m.limit && tries < len(m.sets); tries++ {
		m.clear(&m.sets[m.hand.Add(1)&uint64(len(m.sets)-1)])
	}
}

// choose finds the way to replace: the same key, a free one, one that was not
// used lately, or any.
func (m *memo[A]) choose(s *set[A], hash uint64, key []byte) (int, *slot[A]) {
	free, idle := -1, -1
	for i := range s {
		e := s[i].Load()
		switch {
		case e == nil:
			free = i
		case e.hash == hash && bytes.Equal(e.key, key):
			return i, e
		case !e.used.Swap(false) && idle < 0:
			idle = i
		}
	}
	switch {
	case free >= 0:
		return free, nil
	case idle < 0:
		idle = int(hash>>60) % ways
	}
	return idle, s[idle].Load()
}

func (m *memo[A]) clear(s *set[A]) {
	for i := range s {
		if e := s[i].Load(); e != nil && !e.used.Swap(false) && s[i].CompareAndSwap(e, nil) {
			m.account(nil, e)
		}
	}
}

func (m *memo[A]) account(in, out *slot[A]) {
	if in != nil {
		m.entries.Add(1)
		m.bytes.Add(in.weight)
	}
	if out != nil {
		m.entries.Add(-1)
		m.bytes.Add(-out.weight)
	}
}
