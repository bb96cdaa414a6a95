package receipts

import (
	"encoding/json"
	"testing"
	"time"
	"unsafe"
)

func BenchmarkEncode(b *testing.B) {
	r := typical(0)
	r.ID, r.Log, r.Seq = NewID(), "example.com/prod/0", 1
	buf := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		buf = r.AppendJSON(buf[:0])
	}
	b.SetBytes(int64(len(buf)))
}

func BenchmarkEncodeStdlib(b *testing.B) {
	r := typical(0)
	r.ID, r.Log, r.Seq = NewID(), "example.com/prod/0", 1
	doc := plainOf(&r)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		out, err := json.Marshal(doc)
		if err != nil {
			b.Fatal(err)
		}
		n = len(out)
	}
	b.SetBytes(int64(n))
}

func BenchmarkSubmit(b *testing.B) {
	p := newPlace(b)
	l := p.open(b, func(o *Options) { o.Depth = 1 << 16 })
	r := typical(0)
	r.ID, r.Log, r.Seq = NewID(), "example.com/prod/0", 1
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.Submit(&r); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(unsafe.Sizeof(r)), "struct-bytes")
}

func BenchmarkGlance(b *testing.B) {
	r := typical(0)
	r.ID, r.Log, r.Seq = NewID(), "example.com/prod/0", 1
	buf := r.AppendJSON(nil)
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	for b.Loop() {
		var g look
		if err := glance(&g, buf); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	r := typical(0)
	r.ID, r.Log, r.Seq = NewID(), "example.com/prod/0", 1
	buf := r.AppendJSON(nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(buf); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSealInput(b *testing.B) {
	in := OpenInputs(b.TempDir(), b.TempDir())
	input := []byte(`{"operation":{"kind":"model","name":"chat.completions","provider":"acme","model":"model-x","region":"eu","tenant":"t_9c41"}}`)
	id := NewID()
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if _, _, err := in.Seal("t_9c41", id, input); err != nil {
			b.Fatal(err)
		}
		if n++; n%1000 == 0 {
			if err := in.Flush(); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkFingerprint(b *testing.B) {
	f, err := NewFingerprinter(make([]byte, 32), 0)
	if err != nil {
		b.Fatal(err)
	}
	args := make([]byte, 1024)
	at := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		f.Sum("t_9c41", "args", args, at)
	}
}
