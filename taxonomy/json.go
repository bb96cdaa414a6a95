package taxonomy

import (
	"strconv"

	"github.com/fusebox-dev/fusebox/taxonomy/jsonscan"
)

// Names of the documents, as their "schema" member carries them.
const (
	ObservationSchema = "fusebox.observation/v1"
	ClassifySchema    = "fusebox.classify/v1"
	FallbackSchema    = "fusebox.fallback/v1"
)

// Bounds of what a module may answer, and how deep our own documents nest.
const (
	MaxAnswer     = 4 << 10 // bytes of an answer
	maxAnswerDeep = 8
	maxReason     = 200 // characters of a reason
	maxDeep       = 32
)

// ParseObservation reads a fusebox.observation/v1 document. Absent members and
// nulls are zero values; an unknown member, a wrong type or an unknown name is
// a [FieldError] that says which member and what would have been right.
func ParseObservation(b []byte) (Observation, error) {
	var o Observation
	r := newReader("observation", string(b), maxDeep)
	readDocument(&r, observationFields(), &o, ObservationSchema)
	if err := r.finish(); err != nil {
		return Observation{}, err
	}
	if o.Stream.Bytes > 0 {
		o.Stream.Started = true // bytes that reached the caller are the fact
	}
	return o, nil
}

// ParseOperation reads the flat operation document, as it stands alone in the
// API or under "operation" in an observation.
func ParseOperation(b []byte) (Operation, error) {
	var o Operation
	r := newReader("operation", string(b), maxDeep)
	operationFields().read(&r, &o)
	if err := r.finish(); err != nil {
		return Operation{}, err
	}
	return o, nil
}

// ParseCandidates reads an array of declared candidates.
func ParseCandidates(b []byte) ([]Candidate, error) {
	var d fallbackInput
	r := newReader("candidates", string(b), maxDeep)
	r.array(func(int) {
		d.candidates = append(d.candidates, Candidate{})
		candidateFields().read(&r, &d.candidates[len(d.candidates)-1])
	})
	return d.candidates, r.finish()
}

// ParseClassifyInput reads a fusebox.classify/v1 document: what a classifier
// is asked. Modules written in Go use it.
func ParseClassifyInput(b []byte) (Observation, Verdict, error) {
	var d classifyInput
	r := newReader("classify input", string(b), maxDeep)
	classifyInputFields().read(&r, &d)
	return d.observation, d.builtin, r.finish()
}

// ParseFallbackInput reads a fusebox.fallback/v1 document: what a fallback
// chooser is asked.
func ParseFallbackInput(b []byte) (Operation, Rejection, []Candidate, error) {
	var d fallbackInput
	r := newReader("fallback input", string(b), maxDeep)
	fallbackInputFields().read(&r, &d)
	return d.operation, d.rejection, d.candidates, r.finish()
}

// ParseClassifyAnswer reads what a classifier answered, strictly: an unknown
// or repeated member, a name outside its list, a wrong type, invalid UTF-8,
// nesting beyond 8, more than [MaxAnswer] bytes or anything after the document
// is an error. Outcome and class must be there and must agree. The verdict's
// Retry is [RetryBackoff], which says that the classifier forbids nothing; the
// advice itself is made by [Advise].
func ParseClassifyAnswer(b []byte) (Verdict, error) {
	const document = "classify answer"
	v := Verdict{Retry: RetryBackoff}
	r, err := answerReader(document, b)
	if err != nil {
		return Verdict{}, err
	}
	had := readRequired(&r, classifyAnswerFields(), &v)
	if err := r.finish(); err != nil {
		return Verdict{}, err
	}
	for _, need := range []string{"outcome", "class"} {
		if !had[need] {
			return Verdict{}, &FieldError{document, need, "a value", "nothing"}
		}
	}
	if (v.Outcome == Succeeded) != (v.Class == NoClass) {
		return Verdict{}, &FieldError{document, "class", "none with SUCCEEDED and a class with every other outcome",
			v.Class.String() + " with " + v.Outcome.String()}
	}
	return v, nil
}

// ParseFallbackAnswer reads what a fallback chooser answered, as strictly as
// [ParseClassifyAnswer]. Whether the choice is a declared candidate is the
// caller's to check.
func ParseFallbackAnswer(b []byte) (Choice, error) {
	const document = "fallback answer"
	var c Choice
	r, err := answerReader(document, b)
	if err != nil {
		return Choice{}, err
	}
	readRequired(&r, choiceFields(), &c)
	if err := r.finish(); err != nil {
		return Choice{}, err
	}
	if c.ID == "" {
		return Choice{}, &FieldError{document, "choose", "the id of a candidate", "nothing"}
	}
	return c, nil
}

func newReader(document, text string, depth int) reader {
	return reader{Scanner: jsonscan.Scan(text, jsonscan.Options{Depth: depth}), document: document}
}

func answerReader(document string, b []byte) (reader, error) {
	if len(b) > MaxAnswer {
		return reader{}, &FieldError{document, "", "at most " + strconv.Itoa(MaxAnswer) + " bytes", strconv.Itoa(len(b)) + " bytes"}
	}
	r := newReader(document, string(b), maxAnswerDeep)
	r.strict = true
	return r, nil
}

// readDocument reads fields plus the "schema" member that names the document.
func readDocument[T any](r *reader, fs fields[T], v *T, schema string) {
	named := append(fields[T]{schemaField[T](schema)}, fs...)
	named.read(r, v)
}

// readRequired tells which members were there.
func readRequired[T any](r *reader, fs fields[T], v *T) map[string]bool {
	had := make(map[string]bool, len(fs))
	watched := make(fields[T], len(fs))
	for i, f := range fs {
		watched[i] = f
		watched[i].read = func(r *reader, v *T) { had[f.name] = true; f.read(r, v) }
	}
	watched.read(r, v)
	return had
}

// schemaField is the member that names a document; another name is an error.
func schemaField[T any](schema string) field[T] {
	return field[T]{"schema", "names this document", shape{kind: "string", enum: []string{schema}},
		func(r *reader, _ *T) {
			if got := r.text(quote(schema)); r.ok() && got != schema {
				r.refuse(quote(schema), quote(got))
			}
		},
		func(b []byte, _ *T) []byte { return jsonscan.AppendString(b, schema) }}
}

// AppendObservation appends the canonical document (RFC 8785 form, every
// member, keys sorted), without a "schema" member.
func AppendObservation(b []byte, o *Observation) []byte { return observationFields().write(b, o) }

// AppendOperation appends the canonical flat document.
func AppendOperation(b []byte, o *Operation) []byte { return operationFields().write(b, o) }

// AppendVerdict appends the canonical form of a verdict, with its advice.
func AppendVerdict(b []byte, v *Verdict) []byte { return verdictFields().write(b, v) }

// AppendClassifyAnswer appends what a classifier written in Go answers.
func AppendClassifyAnswer(b []byte, v *Verdict) []byte { return classifyAnswerFields().write(b, v) }

// AppendRejection appends the canonical form of a rejection.
func AppendRejection(b []byte, r *Rejection) []byte { return rejectionFields().write(b, r) }

// AppendCandidate appends the canonical form of a candidate.
func AppendCandidate(b []byte, c *Candidate) []byte { return candidateFields().write(b, c) }

// AppendChoice appends what a fallback chooser written in Go answers.
func AppendChoice(b []byte, c *Choice) []byte { return choiceFields().write(b, c) }

func appendInt(b []byte, v int) []byte     { return jsonscan.AppendInt(b, int64(v)) }
func appendUint(b []byte, v uint64) []byte { return strconv.AppendUint(b, v, 10) }
func appendText(b []byte, s string) []byte { return jsonscan.AppendString(b, s) }
