package guest

import "unsafe"

// What an export returns instead of an answer.
const (
	NoOpinion   int64 = 0
	ErrInput    int64 = -1
	ErrSchema   int64 = -2
	ErrInternal int64 = -3
	ErrOwn      int64 = -100 // a module's own codes begin here and go down
)

// Names of the documents.
const (
	ClassifySchema = "fusebox.classify/v1"
	FallbackSchema = "fusebox.fallback/v1"
)

const (
	maxInput  = 64 << 10
	maxAnswer = 4 << 10
)

// Both buffers are static, so that a call allocates nothing for them.
var (
	input  [maxInput]byte
	output [maxAnswer]byte
)

// Classify is the body of fb_classify: it hands the document to judge and
// returns its verdict, or no opinion where judge says false.
func Classify(p *byte, n uint32, judge func(in Document) (Verdict, bool)) int64 {
	used = 0
	in := Document{unsafe.String(p, n)}
	if !schema(in, ClassifySchema) {
		return ErrSchema
	}
	v, ok := judge(in)
	if !ok {
		return NoOpinion
	}
	return give(v.Append(output[:0]))
}

// Fallback is the body of fb_fallback: it hands the document to choose and
// returns its choice, or no opinion where choose says false.
func Fallback(p *byte, n uint32, choose func(in Document) (Choice, bool)) int64 {
	used = 0
	in := Document{unsafe.String(p, n)}
	if !schema(in, FallbackSchema) {
		return ErrSchema
	}
	c, ok := choose(in)
	if !ok {
		return NoOpinion
	}
	return give(c.Append(output[:0]))
}

// schema reports whether the document is of this kind. The host writes members
// sorted, so that this one is the last, and is found without a walk.
func schema(in Document, name string) bool {
	tail := `"schema":"` + name + `"}`
	if t := in.text; len(t) > len(tail) && t[len(t)-len(tail):] == tail {
		return true
	}
	return in.Text("schema") == name
}

// give packs the place and length of an answer; the memory stays untouched
// until the next call.
func give(b []byte) int64 {
	if len(b) > maxAnswer {
		return ErrInternal
	}
	return int64(uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))<<32 | uint64(len(b)))
}
