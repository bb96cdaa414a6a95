package rego

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	oparego "github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

// Compile builds a snapshot, or returns a *LoadError that lists every problem.
func Compile(ctx context.Context, f *Files, o Options) (*Snapshot, error) {
	if o.Deadline <= 0 {
		o.Deadline = 100 * time.Millisecond
	}
	if o.MemoBytes == 0 {
		o.MemoBytes = 8 << 20
	}
	if o.VerifyEvery == 0 {
		o.VerifyEvery = 4096
	}
	l := &loader{options: o}
	l.load(ctx, f)
	if len(l.problems) > 0 {
		return nil, l.failure()
	}
	s := &Snapshot{version: o.Version, compiler: l.compiler, data: l.document, files: f, loader: l}
	l.entries(ctx, s)
	if len(l.problems) > 0 {
		return nil, l.failure()
	}
	l.prove(ctx, f, s)
	if len(l.problems) > 0 {
		return nil, l.failure()
	}
	s.warnings = l.warnings
	return s, nil
}

// A loader carries one compilation and the problems found on the way.
type loader struct {
	options  Options
	caps     *ast.Capabilities
	compiler *ast.Compiler
	store    storage.Store
	txn      storage.Transaction
	document ast.Object
	problems []Problem
	warnings []Problem
}

func (l *loader) failure() error {
	slices.SortStableFunc(l.problems, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return &LoadError{Problems: slices.Compact(l.problems)}
}

func (l *loader) problem(code, file string, line int, format string, args ...any) {
	l.problems = append(l.problems, Problem{File: file, Line: line, Code: code, Text: fmt.Sprintf(format, args...)})
}

func (l *loader) load(ctx context.Context, f *Files) {
	var err error
	if l.caps, err = capabilities(l.options.Allow); err != nil {
		l.problem("builtin", "", 0, "%v", err)
		return
	}
	roots := f.Roots
	if roots == nil {
		roots = []string{"fusebox"}
	}
	data := l.data(f.Data, roots)
	modules := l.parse(f.Modules, roots, false)
	if len(l.problems) > 0 {
		return
	}
	l.document = data
	l.store = inmem.NewFromASTObject(data)
	if l.txn, err = l.store.NewTransaction(ctx); err != nil {
		l.problem("data", "", 0, "open the data: %v", err)
		return
	}
	l.compiler = l.newCompiler(ctx)
	l.compiler.Compile(modules)
	l.astErrors(l.compiler.Errors)
}

func (l *loader) newCompiler(ctx context.Context) *ast.Compiler {
	return ast.NewCompiler().
		WithCapabilities(l.caps).
		WithStrict(true).
		WithSchemas(schemaSet()).
		WithUseTypeCheckAnnotations(true).
		WithDefaultRegoVersion(ast.RegoV1).
		WithPathConflictsCheck(storage.NonEmpty(ctx, l.store, l.txn))
}

// parse reads the modules; tests are skipped unless they are wanted.
func (l *loader) parse(files []Module, roots []string, tests bool) map[string]*ast.Module {
	modules := map[string]*ast.Module{}
	size := 0
	for _, m := range files {
		if size += len(m.Source); size > MaxRegoBytes {
			l.problem("size", m.Path, 0, "the Rego of this policy exceeds %d bytes", MaxRegoBytes)
			return nil
		}
		if m.IsTest() && !tests {
			continue
		}
		if modules[m.Path] != nil {
			l.problem("duplicate", m.Path, 0, "this file is given twice")
			continue
		}
		parsed, err := ast.ParseModuleWithOpts(m.Path, string(m.Source), ast.ParserOptions{
			ProcessAnnotation: true, Capabilities: l.caps, RegoVersion: ast.RegoV1})
		if err != nil {
			l.parseErrors(m.Path, err)
			continue
		}
		if parsed == nil {
			l.problem("parse", m.Path, 1, "the file is empty; a Rego file begins with its package")
			continue
		}
		if at := parsed.Package; !under(constants(at.Path[1:]), roots) {
			l.problem("roots", m.Path, at.Location.Row, "package %s lies outside the roots of this policy (%s)",
				strings.TrimPrefix(at.Path.String(), "data."), strings.Join(roots, ", "))
			continue
		}
		modules[m.Path] = parsed
	}
	return modules
}

func under(path, roots []string) bool {
	for _, r := range roots {
		root := strings.FieldsFunc(r, func(c rune) bool { return c == '/' || c == '.' })
		if len(path) >= len(root) && slices.Equal(path[:len(root)], root) {
			return true
		}
	}
	return false
}

func (l *loader) parseErrors(path string, err error) {
	var list ast.Errors
	if errors.As(err, &list) {
		l.astErrors(list)
		return
	}
	var one *ast.Error
	if errors.As(err, &one) {
		l.astErrors(ast.Errors{one})
		return
	}
	l.problem("parse", path, 0, "%v", err)
}

var undefinedFunction = regexp.MustCompile(`undefined function ([A-Za-z0-9_.]+)`)

func (l *loader) astErrors(list ast.Errors) {
	for _, e := range list {
		p := Problem{Code: strings.TrimSuffix(strings.TrimPrefix(e.Code, "rego_"), "_error"), Text: e.Message}
		if e.Location != nil {
			p.File, p.Line = e.Location.File, e.Location.Row
		}
		if m := undefinedFunction.FindStringSubmatch(e.Message); m != nil && removed(m[1]) {
			p.Code = "builtin"
			p.Text = refused(m[1])
		}
		if e.Details != nil && !strings.Contains(p.Text, "\n") {
			if lines := e.Details.Lines(); len(lines) > 0 && p.Code != "parse" {
				p.Text += ": " + strings.Join(lines, " ")
			}
		}
		l.problems = append(l.problems, p)
	}
}

// data parses the data document, which must be one object under the roots.
func (l *loader) data(raw []byte, roots []string) ast.Object {
	if len(raw) == 0 {
		return ast.NewObject()
	}
	if len(raw) > MaxDataBytes {
		l.problem("size", "data", 0, "%d bytes of data, at most %d are accepted", len(raw), MaxDataBytes)
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		l.problem("data", "data", 0, "%v", err)
		return nil
	}
	if _, err := d.Token(); err != io.EOF {
		l.problem("data", "data", 0, "more than one JSON value")
		return nil
	}
	value, err := ast.InterfaceToValue(v)
	if err != nil {
		l.problem("data", "data", 0, "%v", err)
		return nil
	}
	o, ok := value.(ast.Object)
	if !ok {
		l.problem("data", "data", 0, "data must be a JSON object, got %s", ast.ValueName(value))
		return nil
	}
	for _, k := range o.Keys() {
		if name, _ := k.Value.(ast.String); !under([]string{string(name)}, firsts(roots)) {
			l.problem("roots", "data", 0, "data.%s lies outside the roots of this policy (%s)", string(name), strings.Join(roots, ", "))
		}
	}
	return o
}

// firsts are the first segments of the roots.
func firsts(roots []string) []string {
	var out []string
	for _, r := range roots {
		out = append(out, strings.FieldsFunc(r, func(c rune) bool { return c == '/' || c == '.' })[:1]...)
	}
	return out
}

// entries prepares the four questions.
func (l *loader) entries(ctx context.Context, s *Snapshot) {
	s.route = prepare(ctx, l, Routing, outcomeDocument, &entry[routeIn, taxonomy.RouteAnswer]{
		decode:     newRouter(l.options.Breakers).decode,
		evaluation: func(a *taxonomy.RouteAnswer) *taxonomy.Evaluation { return &a.Evaluation },
		nothing:    func(in routeIn) string { return missing(in == nil || in.Operation == nil, "operation") },
		parse:      parseRoute, samples: goldenRoutes})
	s.authz = prepare(ctx, l, Authority, operationDocument, &entry[authorityIn, taxonomy.AuthorityAnswer]{
		decode:     decodeAuthority,
		evaluation: func(a *taxonomy.AuthorityAnswer) *taxonomy.Evaluation { return &a.Evaluation },
		nothing:    func(in authorityIn) string { return missing(in == nil || in.Operation == nil, "operation") },
		parse:      parseAuthority, samples: goldenAuthority})
	s.admit = prepare(ctx, l, Admission, admissionDocument, &entry[admissionIn, taxonomy.AdmissionAnswer]{
		decode:     decodeAdmission,
		evaluation: func(a *taxonomy.AdmissionAnswer) *taxonomy.Evaluation { return &a.Evaluation },
		nothing:    func(in admissionIn) string { return missing(in == nil || in.Operation == nil, "operation") },
		parse:      parseAdmission, samples: goldenAdmissions})
	s.fall = prepare(ctx, l, Fallback, fallbackDocument, &entry[fallbackIn, taxonomy.FallbackAnswer]{
		decode:     decodeFallback,
		evaluation: func(a *taxonomy.FallbackAnswer) *taxonomy.Evaluation { return &a.Evaluation },
		nothing: func(in fallbackIn) string {
			if at := missing(in == nil || in.Operation == nil, "operation"); at != "" {
				return at
			}
			return missing(in.Rejection == nil, "rejection")
		},
		parse: parseFallback, samples: goldenFallbacks})
}

func missing(is bool, what string) string {
	if is {
		return what
	}
	return ""
}

// prepare completes one entry: it checks the entrypoint, finds what its rules
// read, and prepares its query.
func prepare[T, A any](ctx context.Context, l *loader, name Entrypoint, doc *document[T], e *entry[T, A]) *entry[T, A] {
	ref := ast.MustParseRef("data.fusebox." + string(name) + ".decision")
	if !l.total(name, ref) {
		return nil
	}
	reads, used := readsOf(l.compiler, ref)
	paths := l.check(name, doc.name, reads, func(p []string) (known, id bool, near string) {
		at, known := doc.find(p)
		for _, i := range at {
			id = id || doc.fields[i].id
		}
		if !known {
			near = doc.near(p)
		}
		return known, id, near
	})
	e.name, e.version = name, l.options.Version
	e.readSet = ReadSet{Paths: paths.list, Whole: paths.whole}
	e.seen, e.whole = project(doc, paths.list), project(doc, []string{""})
	e.keepInput, e.verifyEvery, e.mismatch = l.options.KeepInput, l.options.VerifyEvery, l.options.Mismatch
	var allowed []string
	for _, n := range l.options.Allow {
		if used[n] && removed(n) {
			allowed = append(allowed, n)
		}
	}
	switch off := func(why string) { e.memoOff.Store(&why) }; {
	case l.options.MemoBytes < 0:
		off("switched off by the caller")
	case len(allowed) > 0:
		off("it can call " + strings.Join(allowed, ", "))
	case len(paths.whole) > 0:
		off("it reads the whole input at " + strings.Join(paths.whole, ", "))
	default:
		e.memo = newMemo[A](l.options.MemoBytes)
	}
	prepared, err := oparego.New(oparego.ParsedQuery(ast.NewBody(ast.NewExpr(ast.NewTerm(ref)))),
		oparego.Compiler(l.compiler), oparego.Store(l.store), oparego.Transaction(l.txn)).PrepareForEval(ctx)
	if err != nil {
		l.problem("entrypoint", "", 0, "prepare %s: %v", ref, err)
		return nil
	}
	e.query = &query{prepared: prepared, txn: l.txn, annotations: l.compiler.GetAnnotationSet(),
		deadline: l.options.Deadline, allowed: len(allowed) > 0, untyped: e.seen.reads(attributes)}
	return e
}

// total checks that an entrypoint exists and always has a value: a set, or a
// rule with a default.
func (l *loader) total(name Entrypoint, ref ast.Ref) bool {
	rules := l.compiler.GetRulesExact(ref)
	if len(rules) == 0 {
		p := Problem{Code: "entrypoint", Text: fmt.Sprintf("%s has no rule; each of the four questions needs one (package fusebox.%s, rule decision)", ref, name)}
		for path, m := range l.compiler.Modules {
			if m.Package.Path.Equal(ref[:len(ref)-1]) {
				p.File, p.Line = path, m.Package.Location.Row
			}
		}
		l.problems = append(l.problems, p)
		return false
	}
	for _, r := range rules {
		if r.Default || r.Head.RuleKind() == ast.MultiValue {
			return true
		}
	}
	l.problem("entrypoint", rules[0].Location.File, rules[0].Location.Row,
		"%s may be undefined; give it a default, so that it always answers", ref)
	return false
}

type readPaths struct {
	list  []string // dotted; "" is the whole input
	whole []string // file:line
}

// check holds reads against the input document.
func (l *loader) check(name Entrypoint, schema string, reads []read, look func([]string) (known, id bool, near string)) (out readPaths) {
	for _, r := range reads {
		path := strings.Join(r.path, ".")
		known, id, near := look(r.path)
		switch {
		case !known:
			hint := ""
			if near != "" {
				hint = fmt.Sprintf("; did you mean input.%s?", near)
			}
			l.problem("schema", r.file, r.line, "input.%s does not exist in %s, which %s rules see%s", path, schema, name, hint)
			continue
		case len(r.path) == 0:
			out.whole = append(out.whole, fmt.Sprintf("%s:%d", r.file, r.line))
			l.warn(r, "%s reads the whole input here, so none of its answers can be remembered; name the fields instead", name)
		case id:
			l.warn(r, "%s reads input.%s here, which is different in nearly every call, so its answers are hardly ever remembered", name, path)
		}
		if !slices.Contains(out.list, path) {
			out.list = append(out.list, path)
		}
	}
	slices.Sort(out.list)
	return out
}

func (l *loader) warn(r read, format string, args ...any) {
	w := Problem{File: r.file, Line: r.line, Code: "memo", Text: fmt.Sprintf(format, args...)}
	if !slices.Contains(l.warnings, w) {
		l.warnings = append(l.warnings, w)
	}
}
