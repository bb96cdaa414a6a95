package replay

import (
	"encoding/binary"

	"github.com/fusebox-dev/fusebox/breaker"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// places remember where calls lie: for each call, in each breaker, the scope
// that it counts in. A day has few scopes and a million calls, so a call holds
// one number for each breaker.
type places struct {
	breakers []scopes
	spots    []int32 // one for each breaker, call after call; nowhere where its scope is not known
}

// scopes are those of one breaker that calls lie in.
type scopes struct {
	parts []string
	ops   []taxonomy.Operation // the operation as far as this breaker reads it
	known map[string]int32
}

const nowhere = -1

func newPlaces(settings []breaker.Setting) places {
	p := places{breakers: make([]scopes, len(settings))}
	for i := range settings {
		p.breakers[i] = scopes{parts: settings[i].Scope, known: map[string]int32{}}
	}
	return p
}

// add places a call that is new.
func (p *places) add(f *fields) (place int) {
	place = len(p.spots)
	p.spots = append(p.spots, make([]int32, len(p.breakers))...)
	p.set(place, f)
	return place
}

// set places a call of which more is known.
func (p *places) set(place int, f *fields) {
	for i := range p.breakers {
		p.spots[place+i] = p.breakers[i].spot(f)
	}
}

// of is where a call lies, a spot for each breaker.
func (p *places) of(x *call) []int32 { return p.spots[x.place : x.place+len(p.breakers)] }

func (s *scopes) spot(f *fields) int32 {
	var space [256]byte
	key := space[:0]
	for _, name := range s.parts {
		text, known := f.get(name)
		if !known {
			return nowhere
		}
		key = append(binary.AppendUvarint(key, uint64(len(text))), text...)
	}
	at, ok := s.known[string(key)]
	if !ok {
		at = int32(len(s.ops))
		s.known[string(key)] = at
		s.ops = append(s.ops, f.only(s.parts).operation())
	}
	return at
}
