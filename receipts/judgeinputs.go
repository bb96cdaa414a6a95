package receipts

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// inputsRetention is the reason of an erasure receipt that says up to when days
// of sealed inputs were removed.
const inputsRetention = "inputs_retention"

// A sealedRef is what one receipt says about its sealed input, or an erasure
// about the inputs of others.
type sealedRef struct {
	of     Receipt // id, place and commitment only
	erased string  // of an erasure: the tenant's name in files
	before int64   // of retention, Unix microseconds
}

// sealedOf reads a whole receipt for the judgement of inputs; nil says nothing.
func sealedOf(r *Receipt) *sealedRef {
	switch {
	case r.InputRef != "":
		return &sealedRef{of: Receipt{ID: r.ID, InputRef: r.InputRef, InputCommit: r.InputCommit}}
	case r.Kind != KindErasure:
		return nil
	case r.Reason == inputsRetention && r.Retention != nil:
		return &sealedRef{before: r.Retention.BeforeUS}
	case r.Retention == nil:
		return &sealedRef{erased: tenantName(r.Tenant)}
	}
	return nil
}

// sealedInputs judges the inputs that receipts refer to. One that is gone must
// be explained: by the erasure of its tenant after it, or by retention of its
// day. One that is there must be whole; with the tenant's key it must also be
// the one that the receipt committed to.
type sealedInputs struct {
	reader *InputReader
	gone   map[string]int64 // the last missing one, by <tenant>/<day>
	erased map[string]int64 // the last erasure, by tenant
	before int64            // days that ended before this were removed
	opened int
	whole  int // looked at without a key
	lost   int
}

func newSealedInputs(dir, keys string) *sealedInputs {
	if keys != "" {
		if n, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			keys = SlotFile(keys, n)
		}
	}
	return &sealedInputs{reader: OpenInputs(dir, keys).Reader(), gone: map[string]int64{}, erased: map[string]int64{}}
}

// see judges what the receipt at index says.
func (s *sealedInputs) see(index int64, ref *sealedRef, f *finding) {
	if ref.erased != "" {
		s.erased[ref.erased] = index
		return
	}
	if ref.before > 0 {
		s.before = max(s.before, ref.before)
		return
	}
	name, day, path, off, err := s.reader.in.place(ref.of.InputRef)
	if err != nil {
		f.fail("malformed", "receipt %d: %v", index, err)
		return
	}
	sealed, err := s.reader.frame(path, off)
	switch {
	case errors.Is(err, ErrNotFound):
		s.gone[name+"/"+day] = index
		s.lost++
		return
	case errors.Is(err, errTorn), errors.Is(err, errFrame):
		f.fail("edited", "the sealed input of receipt %d is damaged", index)
		return
	case err != nil:
		f.fail("unreadable", "the sealed input of receipt %d: %v", index, err)
		return
	}
	if s.reader.in.keys == "" {
		s.whole++
		return
	}
	aead, err := s.reader.key(name, day)
	if err != nil {
		s.whole++
		return
	}
	if _, err := unseal(aead, sealed, &ref.of); err != nil {
		f.fail("edited", "the sealed input of receipt %d is not the one that it committed to", index)
		return
	}
	s.opened++
}

// close judges what is gone.
func (s *sealedInputs) close(f *finding) {
	s.reader.Close()
	for _, at := range slices.Sorted(maps.Keys(s.gone)) {
		index := s.gone[at]
		tenant, day := filepath.Dir(at), filepath.Base(at)
		if erased, ok := s.erased[tenant]; ok && erased > index {
			continue
		}
		ended, err := time.Parse(time.DateOnly, day)
		if err == nil && ended.AddDate(0, 0, 1).UnixMicro() <= s.before {
			continue
		}
		f.fail("missing", "the sealed input of receipt %d is gone, and no erasure receipt says why; an erasure that was cut short is finished by erasing again", index)
	}
}

// said describes what was found.
func (s *sealedInputs) said() string {
	out := fmt.Sprintf("; of the sealed inputs %d open with their keys", s.opened)
	if s.whole > 0 {
		out += fmt.Sprintf(", %d are whole and were not opened, for want of a key", s.whole)
	}
	if s.lost > 0 {
		out += fmt.Sprintf(", %d are erased as erasure receipts say", s.lost)
	}
	return out
}
