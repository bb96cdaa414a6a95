package engine

import (
	"bytes"
	"testing"
	"time"
)

// A document is what was written, and nothing that is not one is taken for one.
func FuzzDocument(f *testing.F) {
	d := document{views: []docView{{rule: 7, epoch: 1, written: time.Unix(9, 5).UTC(), version: "v1@sha256:00", circuit: []byte("circuit")}, {rule: 8}}}
	d.sign(3, 4)
	d.sign(5, 6)
	f.Add(d.append(nil))
	f.Add([]byte{1, 0, 'x'})
	f.Add([]byte{2, 9})
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := readDocument(data)
		if err != nil || len(data) == 0 || data[0] == docBefore {
			return
		}
		if again := d.append(nil); !bytes.Equal(again, data) {
			t.Errorf("%x is read and written as %x", data, again)
		}
	})
}

// What an earlier program wrote is where a rule begins.
func TestDocumentOfTheFormatBefore(t *testing.T) {
	old := append([]byte{1, 1}, make([]byte, 16)...)
	d, err := readDocument(append(old, "circuit"...))
	v, own := d.view(7)
	if err != nil || v == nil || own || string(v.circuit) != "circuit" {
		t.Fatalf("%+v, %v", d, err)
	}
	if err := d.put(docView{rule: 7, written: time.Now()}); err != nil || len(d.views) != 1 {
		t.Errorf("%+v, %v", d.views, err)
	}
}
