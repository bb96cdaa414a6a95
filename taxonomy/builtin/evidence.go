package builtin

import (
	"math/bits"
	"strings"
	"sync"
	"time"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// readersVersion changes whenever the code that reads evidence, derives the
// outcome or finds loops changes what it says; it is part of the digest.
const readersVersion = 1

// evidence is what was seen in one observation: atoms that rules ask for, and
// the few values that are more than seen or not seen.
type evidence struct {
	table *Table
	obs   *taxonomy.Observation
	seen  atoms
	marks uint64
	text  *words // scratch

	status   int   // of the answer, or the one inside it
	inner    int   // a status inside the body
	hint     int64 // milliseconds, from the body
	headers  headers
	spoken   int64 // the first wait told in words, in milliseconds
	messages int   // texts read

	topInner   int    // a status at the top of the body; it counts only in an error
	coded      bool   // … that is called a code
	statusSays string // the "status" at the top of the body
	others     int    // members at the top that no reader knows
	plain      bool   // a list of errors as plain texts
	pending    bool   // the answer is still being made
	cancelled  bool   // … or was cancelled
	thing      bool   // the body describes a thing with an identity
	rpc        bool   // a JSON-RPC message
	notified   bool   // … that only notifies
	answered   bool   // a result came

	top  [8]string // codes at the top of the body; evidence only if it is an error
	tops int
	tail [3]string // likewise texts

	stderr     string
	content    string // raw text of a model's answer, as it stands in JSON
	escaped    bool
	wait       time.Duration // what the answer asks to wait
	hasContent bool          // text, refusal, call or media
	called     bool
	args       [4]string // raw arguments of tool calls
	argsKind   [4]bool   // true where they are escaped text
	names      [4]string // names of the tools called
	calls      int

	wantsJSON  bool  // the answer has to be JSON
	score      int64 // an evaluator's, in thousandths
	least      int64 // and what it had to reach
	scored     bool
	limited    bool
	knownTools string // a JSON list, or ""

	streamOpen bool // an event stream without its terminal event so far
	steps      int  // work done, for the bound
}

// scratches are reused: an evidence is larger than most observations. It is
// cleared before it goes back, so that nothing is carried over or kept alive.
var scratches = sync.Pool{New: func() any { return &scratch{} }}

type scratch struct {
	evidence
	words words
}

func (t *Table) begin(o *taxonomy.Observation) *scratch {
	s := scratches.Get().(*scratch)
	s.text = &s.words
	t.look(&s.evidence, o)
	return s
}

func (s *scratch) end() {
	s.evidence = evidence{}
	scratches.Put(s)
}

func (e *evidence) mark(m mark)     { e.marks |= 1 << m }
func (e *evidence) has(m mark) bool { return e.marks>>m&1 != 0 }

// exact looks a value up in a slot that is compared whole, and reports whether
// some rule asks for it.
func (e *evidence) exact(s slot, v string) bool {
	m := e.table.exact[s]
	if m == nil || v == "" || len(v) > maxValue {
		return false
	}
	var buf [maxValue]byte
	n := 0
	for i := 0; i < len(v); i++ {
		c := v[i]
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		buf[n] = c
		n++
	}
	a := m[string(buf[:n])]
	if a != 0 {
		e.seen.add(a)
	}
	return a != 0
}

// maxValue is the longest value that is compared whole.
const maxValue = 80

// parts looks up a name and each of its words: "azure-openai" is also azure
// and openai.
func (e *evidence) parts(s slot, v string) {
	if len(v) > maxValue {
		v = v[:maxValue]
	}
	e.exact(s, v)
	from := 0
	for i := 0; i <= len(v); i++ {
		if i == len(v) || !wordByte(v[i]) {
			if i > from && i-from < len(v) {
				e.exact(s, v[from:i])
			}
			from = i + 1
		}
	}
}

// code takes a typed code. AWS writes "namespace#Code" and "Code:url".
func (e *evidence) code(v string) {
	if i := strings.LastIndexByte(v, '#'); i >= 0 {
		v = v[i+1:]
	}
	if i := strings.IndexByte(v, ':'); i >= 0 {
		v = v[:i]
	}
	e.exact(slotCode, v)
}

// message takes a text that says what went wrong.
func (e *evidence) message(v string, how int) { e.wording(&e.table.text, v, how) }

// wording looks for the wordings of an index in a text.
func (e *evidence) wording(x *index, v string, how int) {
	if e.messages >= maxMessages || v == "" {
		return
	}
	if len(v) > maxMessage {
		v = v[:maxMessage]
	}
	e.messages++
	e.steps += len(v)
	e.text.read(v, how)
	if e.spoken == 0 {
		e.spoken = e.text.wait
	}
	x.find(e.text, &e.seen)
}

const (
	maxMessage  = 4 << 10 // bytes of one text
	maxMessages = 12      // texts of one observation
)

// look reads everything an observation tells.
func (t *Table) look(e *evidence, o *taxonomy.Observation) {
	e.table, e.obs = t, o
	op := &o.Operation
	e.wantsJSON = op.Schema != ""
	e.exact(slotKind, op.Kind)
	e.parts(slotProvider, op.Provider)
	e.parts(slotName, op.Name)
	e.exact(slotEffect, op.Effect.String())
	if op.Effect.Writes() {
		e.exact(slotEffect, "write")
	}
	e.exact(slotSent, o.Transport.Dispatched.String())
	if op.PriorUnknown {
		e.mark(markPriorUnknown)
	}
	if len(o.Local) > 0 {
		e.readLocal(o.Local)
	}
	if r := o.Response; r != nil {
		e.mark(markAnswer)
		e.status = r.Status
		e.readHeaders(r.Headers)
		e.readBody(r)
	}
	e.readTransport(&o.Transport)
	if len(o.History) > 0 {
		e.readHistory()
	}
	e.settle()
}

// settle turns what the readers kept into atoms, once all was read.
func (e *evidence) settle() {
	e.plainErrors()
	if e.status >= 400 || e.inner >= 400 {
		e.mark(markErrorAnswer)
	}
	if e.has(markErrorAnswer) {
		for _, c := range e.top[:e.tops] {
			e.code(c)
		}
		for _, m := range e.tail {
			e.message(m, readRaw)
		}
		e.message(e.stderr, readRaw)
		if e.status < 400 && e.inner >= 400 {
			e.status = e.inner
		}
	} else if e.has(markModelAnswer) {
		e.judgeContent()
	}
	if e.has(markErrorAnswer) || e.has(markTransportError) || e.has(markLocal) {
		if e.wait = e.readHints(); e.wait > 0 {
			e.mark(markHint)
		}
	}
	if e.status >= 0 && e.status < 1000 {
		for _, a := range e.table.status[e.status] {
			e.seen.add(a)
		}
	}
	for w := e.marks; w != 0; w &= w - 1 {
		if a := e.table.marks[bits.TrailingZeros64(w)]; a != 0 {
			e.seen.add(a)
		}
	}
}

// plainErrors recognises errors that have no error object: JSend's
// {"status":"error","message":…} and {"code":500,"message":…}. Beside an
// identity they are data, such as the state of a job.
func (e *evidence) plainErrors() {
	text := e.tail[0] != ""
	if text && e.tops > 0 && e.status == 0 && !e.thing && !e.has(markSMTP) && !e.has(markExec) {
		e.mark(markErrorAnswer) // a client library's error, where the protocol has no status
	}
	if text && !e.thing && (e.statusSays == "error" || e.statusSays == "fail" || e.coded && e.topInner != 0) {
		e.mark(markErrorAnswer)
	}
	if e.plain && !e.thing && e.others == 0 && !e.has(markPartialData) {
		e.mark(markErrorAnswer)
	}
	if e.has(markErrorAnswer) && e.inner == 0 {
		e.inner = e.topInner
	}
	if e.rpc && e.has(markErrorObject) {
		e.mark(markRPCError)
	}
	if e.notified && !e.answered && !e.has(markErrorAnswer) {
		e.mark(markRPCPending)
	}
}

func (e *evidence) readTransport(t *taxonomy.Transport) {
	if t.ErrorKind == "" && t.Error == "" {
		return
	}
	e.mark(markTransportError)
	kind := t.ErrorKind
	if kind == "" {
		kind = "unknown"
	}
	if !e.exact(slotErrorKind, kind) {
		e.exact(slotErrorKind, "unknown") // a kind this table has never heard of
	}
	e.wording(&e.table.error, t.Error, readQuoted)
	if t.Error != "" {
		e.readTold(t)
	}
}

// headers are the response headers that say something, found in one walk.
type headers struct {
	contentType, retryAfter, date, rateLimit string
	millis                                   string // retry-after-ms and Azure's form of it
	usedUp                                   bool   // some remaining-header says 0
}

func (e *evidence) readHeaders(all map[string]string) {
	for name, v := range all {
		if v == "" || len(name) < 4 {
			continue
		}
		switch name[0] {
		case 'r':
			switch name {
			case "retry-after":
				e.headers.retryAfter = v
			case "retry-after-ms":
				e.headers.millis = v
			case "ratelimit":
				e.headers.rateLimit = v
			}
		case 'c':
			switch name {
			case "content-type":
				e.headers.contentType = v
			case "cf-mitigated":
				if v == "challenge" {
					e.code("cf-challenge")
					e.mark(markErrorAnswer)
				}
			}
		case 'd':
			if name == "date" {
				e.headers.date = v
			}
		case 'g':
			switch name {
			case "grpc-status":
				if v != "0" {
					e.mark(markErrorAnswer)
					e.code(grpcCode(v))
				}
			case "grpc-message":
				e.message(v, 0)
			}
		case 'w':
			if name == "www-authenticate" {
				e.challenge(v)
			}
		case 'x':
			e.vendorHeader(name, v)
		}
		if v == "0" && strings.Contains(name, "remaining") && strings.Contains(name, "rate") {
			e.headers.usedUp = true
			e.mark(markAllowanceUsedUp)
		}
	}
}

// challenge reads the error code of RFC 6750 section 3.
func (e *evidence) challenge(v string) {
	if _, rest, ok := strings.Cut(v, `error="`); ok {
		code, _, _ := strings.Cut(rest, `"`)
		e.code(code)
	}
}

func (e *evidence) vendorHeader(name, v string) {
	switch name {
	case "x-amzn-errortype", "x-ms-error-code":
		e.mark(markErrorAnswer)
		e.code(v)
	case "x-ms-retry-after-ms":
		if e.headers.millis == "" {
			e.headers.millis = v
		}
	case "x-final-url":
		if loginURL(v) {
			e.mark(markLoginURL)
		}
	}
}

// grpcCode names a gRPC status number.
func grpcCode(v string) string {
	names := [...]string{"ok", "cancelled", "unknown", "invalid_argument", "deadline_exceeded", "not_found", "already_exists",
		"permission_denied", "resource_exhausted", "failed_precondition", "aborted", "out_of_range", "unimplemented", "internal",
		"unavailable", "data_loss", "unauthenticated"}
	if n := number(v, 1); n > 0 && n < int64(len(names)) {
		return names[n]
	}
	return v
}

func loginURL(u string) bool {
	_, path, ok := strings.Cut(u, "://")
	if !ok {
		path = u
	}
	path, _, _ = strings.Cut(path, "?")
	_, path, _ = strings.Cut(path, "/")
	for part := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '/' || r == '.' || r == '_' || r == '-' }) {
		switch strings.ToLower(part) {
		case "login", "signin", "logon", "sso", "auth", "authorize", "saml", "sessions":
			return true
		}
	}
	return false
}
