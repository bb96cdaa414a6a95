package guest

import (
	"unsafe"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Verdict and Choice are the answers, with the host's own words for outcome and
// class: taxonomy.Failed, taxonomy.Budget, … Reason and facts must be in the
// vocabulary that the policy declares for the module.
type (
	Verdict = taxonomy.Verdict
	Choice  = taxonomy.Choice
	Fact    = taxonomy.Fact
)

// What an export returns instead of an answer.
const (
	NoOpinion      int64 = 0
	ErrInput       int64 = -1
	ErrSchema      int64 = -2
	ErrInternal    int64 = -3
	ErrOwn         int64 = -100 // a module's own codes begin here and go down
	maxInput             = 64 << 10
	maxAnswerBytes       = 4 << 10
)

// Both buffers are static, so that a call allocates nothing for them.
var (
	input  [maxInput]byte
	output [maxAnswerBytes]byte
)

// Classify is the body of fb_classify: it hands the document to judge and
// returns its verdict, or no opinion where judge says false.
func Classify(p *byte, n uint32, judge func(in Document) (Verdict, bool)) int64 {
	in := Document{unsafe.String(p, n)}
	if in.Text("schema") != taxonomy.ClassifySchema {
		return ErrSchema
	}
	v, ok := judge(in)
	if !ok {
		return NoOpinion
	}
	return give(taxonomy.AppendClassifyAnswer(output[:0], &v))
}

// Fallback is the body of fb_fallback: it hands the document to choose and
// returns its choice, or no opinion where choose says false.
func Fallback(p *byte, n uint32, choose func(in Document) (Choice, bool)) int64 {
	in := Document{unsafe.String(p, n)}
	if in.Text("schema") != taxonomy.FallbackSchema {
		return ErrSchema
	}
	c, ok := choose(in)
	if !ok {
		return NoOpinion
	}
	return give(taxonomy.AppendChoice(output[:0], &c))
}

// give packs the place and length of an answer; the memory stays untouched
// until the next call.
func give(b []byte) int64 {
	if len(b) > maxAnswerBytes {
		return ErrInternal
	}
	kept = b
	return int64(uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))<<32 | uint64(len(b)))
}

// kept keeps an answer from the collector that outgrew the static buffer.
var kept []byte
