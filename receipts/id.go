package receipts

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
)

// An ID names one receipt: a UUID of version 7 (RFC 9562), so that ids sort by
// the millisecond they were made in. The zero ID is none.
type ID uuid.UUID

// NewID makes the id of a receipt that is issued now.
func NewID() ID { return newID(time.Now()) }

// newID takes its random bits from the runtime's ChaCha8 generator, which is
// seeded by the operating system: unpredictable, and 50 times cheaper than a
// read of the kernel's generator for each receipt.
func newID(now time.Time) ID {
	var id ID
	ms := uint64(now.UnixMilli())
	a, b := rand.Uint64(), rand.Uint64()
	id[0], id[1], id[2] = byte(ms>>40), byte(ms>>32), byte(ms>>24)
	id[3], id[4], id[5] = byte(ms>>16), byte(ms>>8), byte(ms)
	id[6], id[7] = 0x70|byte(a>>8)&0x0f, byte(a)
	id[8] = 0x80 | byte(b>>56)&0x3f
	for i := 9; i < 16; i++ {
		id[i] = byte(b >> (8 * (15 - i)))
	}
	return id
}

// IsZero reports whether the id is none.
func (id ID) IsZero() bool { return id == ID{} }

// Millis is the Unix millisecond in which the id was made.
func (id ID) Millis() int64 {
	return int64(id[0])<<40 | int64(id[1])<<32 | int64(id[2])<<24 | int64(id[3])<<16 | int64(id[4])<<8 | int64(id[5])
}

// String is the usual form with hyphens; the zero ID is "".
func (id ID) String() string {
	if id.IsZero() {
		return ""
	}
	return string(id.append(make([]byte, 0, 36)))
}

func (id ID) append(b []byte) []byte {
	for i, c := range id {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			b = append(b, '-')
		}
		b = append(b, hexDigits[c>>4], hexDigits[c&0xf])
	}
	return b
}

// MarshalText writes the usual form.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads the usual form; empty text is the zero ID.
func (id *ID) UnmarshalText(t []byte) error {
	if len(t) == 0 {
		*id = ID{}
		return nil
	}
	v, err := parseID(t)
	if err != nil {
		return err
	}
	*id = v
	return nil
}

var errID = errors.New("a receipt id has the form 01936f2e-8c1a-7d3b-9a51-0c8f2b6d4e7a")

// ParseID reads the usual lower-case form with hyphens.
func ParseID(s string) (ID, error) {
	id, err := parseID([]byte(s))
	if err != nil {
		return ID{}, fmt.Errorf("read receipt id: %w", err)
	}
	return id, nil
}

func parseID(t []byte) (ID, error) {
	var id ID
	if len(t) != 36 || t[8] != '-' || t[13] != '-' || t[18] != '-' || t[23] != '-' {
		return ID{}, errID
	}
	at := 0
	for i := range id {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			at++
		}
		hi, lo := hexValue[t[at]], hexValue[t[at+1]] // lower case only, so that bytes compare
		if hi|lo > 0xf {
			return ID{}, errID
		}
		id[i] = hi<<4 | lo
		at += 2
	}
	return id, nil
}

// idMillis reads only the time out of an id's text.
func idMillis(t []byte) (ms int64, err error) {
	if len(t) != 36 || t[8] != '-' {
		return 0, errID
	}
	for _, c := range [...]byte{t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[9], t[10], t[11], t[12]} {
		v := hexValue[c]
		if v > 0xf {
			return 0, errID
		}
		ms = ms<<4 | int64(v)
	}
	return ms, nil
}

// hexValue is the value of a hexadecimal digit, 0xff of anything else.
var hexValue = func() (t [256]byte) {
	for i := range t {
		t[i] = 0xff
	}
	for i, c := range []byte(hexDigits) {
		t[c] = byte(i)
	}
	return
}()
