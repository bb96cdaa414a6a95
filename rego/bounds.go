package rego

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// One call of a builtin cannot be interrupted where OPA does not look at the
// clock inside it, and memory that ran out ends the process, which nothing can
// recover from. So what a call would make is estimated before it is made. Rules
// that decide about one operation come nowhere near these bounds; beyond one the
// call is a builtin error like any other, which makes the answer an error.
const (
	mostText   = 1 << 20 // bytes of text that one call may make
	mostItems  = 1 << 20 // elements of a collection that one call may make
	mostDigits = 4096    // of a number that is calculated with
)

// boundedKey marks the evaluations of this package. A program that links fusebox
// and evaluates Rego of its own keeps OPA's builtins as they are.
type boundedKey struct{}

func bounded(ctx context.Context) context.Context {
	return context.WithValue(ctx, boundedKey{}, true)
}

// bounds are the builtins that are needed and that OPA lets grow without end.
// Those that nobody needs are not in the capabilities at all (see unbounded).
var bounds = map[string]func([]*ast.Term) error{
	"plus": digitsOfEach, "minus": digitsOfEach, "div": digitsOfEach, "rem": digitsOfEach,
	"abs": digitsOfEach, "ceil": digitsOfEach, "floor": digitsOfEach, "round": digitsOfEach,
	"sum": digitsOfEach, "mul": digitsOfAll, "product": digitsOfAll,
	"format_int": digitsOfEach, "numbers.range": digitsOfEach, "numbers.range_step": digitsOfEach,
	"bits.and": digitsOfEach, "bits.or": digitsOfEach, "bits.xor": digitsOfEach, "bits.negate": digitsOfEach, "bits.rsh": digitsOfEach,
	"units.parse": exponent, "units.parse_bytes": exponent,
	"concat": joined, "replace": replaced, "sprintf": formatted,
	"json.marshal": printed, "yaml.marshal": printed, "urlquery.encode_object": printed,
	"array.concat": itemsOf, "array.flatten": itemsWithin, "net.cidr_contains_matches": pairs,
}

func init() {
	for name, check := range bounds {
		call := topdown.GetBuiltin(name)
		if call == nil {
			panic("rego: this OPA has no builtin " + name)
		}
		ast.BuiltinMap[name].CanSkipBctx = false // the context says whose evaluation it is
		topdown.RegisterBuiltinFunc(name, func(b topdown.BuiltinContext, operands []*ast.Term, iter func(*ast.Term) error) error {
			if b.Context != nil && b.Context.Value(boundedKey{}) != nil {
				if err := check(operands); err != nil {
					return err
				}
			}
			return call(b, operands, iter)
		})
	}
}

func tooMuch(n, most int, what string) error {
	if n <= most {
		return nil
	}
	return fmt.Errorf("this call would make more than %d %s", most, what)
}

// plus adds sizes that may be huge.
func plus(a, b int) int { return min(a+b, 1<<40) }

func times(a, b int) int {
	if a > 0 && b > (1<<40)/a {
		return 1 << 40
	}
	return a * b
}

// digits is how long a number is when it is written out.
func digits(n ast.Number) int {
	s := string(n)
	at := strings.IndexAny(s, "eE")
	if at < 0 {
		return len(s)
	}
	e, err := strconv.Atoi(s[at+1:])
	if err != nil {
		return 1 << 40
	}
	return plus(at, min(max(e, -e), 1<<40))
}

// eachNumber calls f with the numbers among the operands and directly inside them.
func eachNumber(operands []*ast.Term, f func(ast.Number)) {
	inside := func(t *ast.Term) {
		if n, ok := t.Value.(ast.Number); ok {
			f(n)
		}
	}
	for _, t := range operands {
		switch v := t.Value.(type) {
		case ast.Number:
			f(v)
		case *ast.Array:
			v.Foreach(inside)
		case ast.Set:
			v.Foreach(inside)
		}
	}
}

// digitsOfEach bounds every number: OPA writes results out in decimal, which
// takes time that grows faster than their length (golang/go#11068).
func digitsOfEach(operands []*ast.Term) error {
	most := 0
	eachNumber(operands, func(n ast.Number) { most = max(most, digits(n)) })
	return tooMuch(most, mostDigits, "digits")
}

// digitsOfAll bounds a product.
func digitsOfAll(operands []*ast.Term) error {
	sum := 0
	eachNumber(operands, func(n ast.Number) { sum = plus(sum, digits(n)) })
	return tooMuch(sum, mostDigits, "digits")
}

// exponent bounds what is written with one: "1e999999" is nine bytes.
func exponent(operands []*ast.Term) error {
	s, _ := operands[0].Value.(ast.String)
	number := strings.TrimRight(strings.ToLower(strings.Trim(string(s), `" `)), "kmgtpib")
	return tooMuch(digits(ast.Number(strings.TrimSuffix(number, "e"))), mostDigits, "digits")
}

func length(t *ast.Term) int {
	s, _ := t.Value.(ast.String)
	return len(s)
}

// joined: OPA makes room for all of it at once.
func joined(operands []*ast.Term) error {
	n, count := 0, 0
	part := func(t *ast.Term) { n, count = plus(n, length(t)), count+1 }
	switch v := operands[1].Value.(type) {
	case *ast.Array:
		v.Foreach(part)
	case ast.Set:
		v.Foreach(part)
	}
	return tooMuch(plus(n, times(count, length(operands[0]))), mostText, "bytes of text")
}

func replaced(operands []*ast.Term) error {
	s, _ := operands[0].Value.(ast.String)
	old, _ := operands[1].Value.(ast.String)
	n := len(s)
	if with := length(operands[2]); with > len(old) {
		n = plus(n, times(strings.Count(string(s), string(old)), with-len(old)))
	}
	return tooMuch(n, mostText, "bytes of text")
}

// formatted adds up widths, precisions and what verbs print.
func formatted(operands []*ast.Term) error {
	f, _ := operands[0].Value.(ast.String)
	widest := 0
	if a, ok := operands[1].Value.(*ast.Array); ok {
		for i := range a.Len() {
			widest = max(widest, sizeOf(a.Elem(i), mostText))
		}
	}
	n := len(f)
	for rest := string(f); ; {
		at := strings.IndexByte(rest, '%')
		if at < 0 {
			return tooMuch(n, mostText, "bytes of text")
		}
		rest = rest[at+1:]
		width := 0
		for len(rest) > 0 && strings.IndexByte("+-# 0123456789.*[]", rest[0]) >= 0 {
			switch c := rest[0]; {
			case c == '*':
				n = plus(n, 1_000_000) // the most that package fmt allows
			case c >= '0' && c <= '9':
				width = min(width*10+int(c-'0'), 1_000_000)
			default:
				n, width = plus(n, width), 0
			}
			rest = rest[1:]
		}
		n = plus(n, width)
		if strings.HasPrefix(rest, "%") {
			rest = rest[1:]
			continue
		}
		n = plus(n, widest)
	}
}

// printed is for what writes a whole value out.
func printed(operands []*ast.Term) error {
	return tooMuch(sizeOf(operands[0], mostText), mostText, "bytes of text")
}

var errBig = errors.New("big")

// sizeOf is about how long a value is when it is written out. It stops counting
// beyond a bound: a value can hold the same part many times, and then it is much
// larger than what it takes in memory.
func sizeOf(t *ast.Term, most int) int {
	n := 0
	var walk func(*ast.Term) error
	pair := func(k, v *ast.Term) error {
		if err := walk(k); err != nil {
			return err
		}
		return walk(v)
	}
	walk = func(t *ast.Term) (err error) {
		n += 2
		switch v := t.Value.(type) {
		case ast.String:
			n += len(v)
		case ast.Number:
			n += digits(v)
		case *ast.Array:
			err = v.Iter(walk)
		case ast.Set:
			err = v.Iter(walk)
		case ast.Object:
			err = v.Iter(pair)
		}
		if err == nil && n > most {
			err = errBig
		}
		return err
	}
	_ = walk(t)
	return n
}

func itemsOf(operands []*ast.Term) error {
	n := 0
	for _, t := range operands {
		n = plus(n, count(t))
	}
	return tooMuch(n, mostItems, "elements")
}

func itemsWithin(operands []*ast.Term) error {
	n := 0
	if a, ok := operands[0].Value.(*ast.Array); ok {
		a.Foreach(func(t *ast.Term) { n = plus(n, max(count(t), 1)) })
	}
	return tooMuch(n, mostItems, "elements")
}

// pairs: each of one side is held against each of the other.
func pairs(operands []*ast.Term) error {
	return tooMuch(times(max(count(operands[0]), 1), max(count(operands[1]), 1)), mostItems, "comparisons")
}

func count(t *ast.Term) int {
	switch v := t.Value.(type) {
	case *ast.Array:
		return v.Len()
	case ast.Set:
		return v.Len()
	case ast.Object:
		return v.Len()
	}
	return 0
}
