package policies

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/fusebox-dev/fusebox/breaker"
)

// A Size is a number of bytes. In policy.toml it is a text with a unit: "16MiB".
type Size int64

// A decoder fills structs from parsed TOML. It does so itself, rather than
// leaving it to the library, in order to name every mistake at once, each with
// its line, and to know where an unknown key is and which one was meant.
type decoder struct {
	file  string
	lines map[string]int
	found problems
}

// parseTOML reads the text into plain values and finds the lines of its keys.
func parseTOML(file string, text []byte) (map[string]any, *decoder) {
	d := &decoder{file: file}
	raw := map[string]any{}
	if len(text) > MaxSettingsBytes {
		d.found.add(file, 0, "%d bytes, at most %d are accepted", len(text), MaxSettingsBytes)
		return nil, d
	}
	if line := tooDeep(text); line > 0 {
		d.found.add(file, line, "nested deeper than %d", maxDepth)
		return nil, d
	}
	if err := toml.Unmarshal(text, &raw); err != nil {
		line := 0
		if pe, ok := errors.AsType[toml.ParseError](err); ok {
			line = pe.Position.Line
			d.found.add(file, line, "%s", strings.TrimPrefix(pe.Message, "toml: "))
			if pe.Message == "" {
				d.found[len(d.found)-1].Text = strings.TrimPrefix(pe.Error(), "toml: ")
			}
			return nil, d
		}
		d.found.add(file, line, "%v", err)
		return nil, d
	}
	d.lines = locate(string(text))
	return raw, d
}

func (d *decoder) add(path, format string, args ...any) {
	d.found.add(d.file, lineOf(d.lines, path), "%s", path+" "+fmt.Sprintf(format, args...))
}

// into fills a struct from a table. Fields are named by their toml tags.
func (d *decoder) into(path string, table map[string]any, to reflect.Value) {
	t := to.Type()
	fields := map[string]int{}
	var known []string
	for i := range t.NumField() {
		if tag := t.Field(i).Tag.Get("toml"); tag != "" {
			fields[tag] = i
			known = append(known, tag)
		}
	}
	keys := make([]string, 0, len(table))
	for k := range table {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		at := join(path, []string{k})
		if path == "" {
			at = k
		}
		i, ok := fields[k]
		if !ok {
			hint := fmt.Sprintf("; known here: %s", strings.Join(known, ", "))
			if near := nearest(k, known); near != "" {
				hint = fmt.Sprintf("; did you mean %q?", near)
			}
			d.add(at, "is not a known key%s", hint)
			continue
		}
		d.value(at, table[k], to.Field(i))
	}
}

var (
	textType     = reflect.TypeFor[encoding.TextUnmarshaler]()
	durationType = reflect.TypeFor[time.Duration]()
	sizeType     = reflect.TypeFor[Size]()
	shareType    = reflect.TypeFor[share]()
	evidenceType = reflect.TypeFor[evidence]()
)

// value converts one TOML value.
func (d *decoder) value(path string, v any, to reflect.Value) {
	switch {
	case to.Type() == durationType:
		d.duration(path, v, to)
		return
	case to.Type() == sizeType:
		d.size(path, v, to)
		return
	case to.Type() == shareType:
		var f float64
		before := len(d.found)
		d.scalar(path, v, reflect.ValueOf(&f).Elem())
		if len(d.found) > before {
			return
		}
		p, err := breaker.Share(f)
		if err != nil {
			d.add(path, "%v", err)
			return
		}
		to.SetUint(uint64(p))
		return
	case to.Type() == evidenceType:
		d.evidence(path, v, to)
		return
	case reflect.PointerTo(to.Type()).Implements(textType):
		s, ok := v.(string)
		if !ok {
			d.add(path, "must be a string, got %s", shown(v))
			return
		}
		if err := to.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(s)); err != nil {
			d.add(path, "%v", err)
		}
		return
	}
	switch to.Kind() {
	case reflect.Struct:
		table, ok := v.(map[string]any)
		if !ok {
			d.add(path, "must be a table, got %s", shown(v))
			return
		}
		d.into(path, table, to)
	case reflect.Slice:
		d.list(path, v, to)
	case reflect.Map:
		table, ok := v.(map[string]any)
		if !ok {
			d.add(path, "must be a table, got %s", shown(v))
			return
		}
		to.Set(reflect.MakeMap(to.Type()))
		for k, x := range table {
			item := reflect.New(to.Type().Elem()).Elem()
			d.value(join(path, []string{k}), x, item)
			to.SetMapIndex(reflect.ValueOf(k), item)
		}
	default:
		d.scalar(path, v, to)
	}
}

func (d *decoder) scalar(path string, v any, to reflect.Value) {
	switch to.Kind() {
	case reflect.String:
		if s, ok := v.(string); ok {
			to.SetString(s)
			return
		}
		d.add(path, "must be a string, got %s", shown(v))
	case reflect.Bool:
		if b, ok := v.(bool); ok {
			to.SetBool(b)
			return
		}
		d.add(path, "must be true or false, got %s", shown(v))
	case reflect.Int, reflect.Int64, reflect.Uint8, reflect.Uint32, reflect.Uint64:
		n, ok := v.(int64)
		switch {
		case !ok:
			d.add(path, "must be a whole number, got %s", shown(v))
		case to.CanUint() && (n < 0 || to.OverflowUint(uint64(n))), to.CanInt() && to.OverflowInt(n):
			d.add(path, "is out of range: %d", n)
		case to.CanUint():
			to.SetUint(uint64(n))
		default:
			to.SetInt(n)
		}
	case reflect.Float64:
		switch n := v.(type) {
		case float64:
			if math.IsNaN(n) || math.IsInf(n, 0) {
				d.add(path, "must be a number, got %v", n)
				return
			}
			to.SetFloat(n)
		case int64:
			to.SetFloat(float64(n))
		default:
			d.add(path, "must be a number, got %s", shown(v))
		}
	default:
		panic("policies: no decoding for " + to.Type().String())
	}
}

func (d *decoder) list(path string, v any, to reflect.Value) {
	var items []any
	switch v := v.(type) {
	case []any:
		items = v
	case []map[string]any:
		for _, m := range v {
			items = append(items, m)
		}
	default:
		d.add(path, "must be a list, got %s", shown(v))
		return
	}
	out := reflect.MakeSlice(to.Type(), len(items), len(items))
	for i, x := range items {
		d.value(fmt.Sprintf("%s[%d]", path, i), x, out.Index(i))
	}
	to.Set(out)
}

func (d *decoder) duration(path string, v any, to reflect.Value) {
	s, ok := v.(string)
	if !ok {
		d.add(path, `must be a duration with its unit, like "30s", got %s`, shown(v))
		return
	}
	x, err := time.ParseDuration(s)
	switch {
	case err != nil:
		d.add(path, `must be a duration like "500ms", "30s" or "2m", got %q`, s)
	case x < 0:
		d.add(path, "must not be negative, got %q", s)
	default:
		to.SetInt(int64(x))
	}
}

func (d *decoder) size(path string, v any, to reflect.Value) {
	s, ok := v.(string)
	if !ok {
		d.add(path, `must be a size with its unit, like "16MiB", got %s`, shown(v))
		return
	}
	units := []struct {
		name string
		n    int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}
	for _, u := range units {
		if number, ok := strings.CutSuffix(s, u.name); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
			if err == nil && n >= 0 && n <= math.MaxInt64/u.n {
				to.SetInt(n * u.n)
				return
			}
			break
		}
	}
	d.add(path, `must be a size like "64KiB" or "16MiB", got %q`, s)
}

// evidence reads one kind or a list of kinds.
func (d *decoder) evidence(path string, v any, to reflect.Value) {
	names, ok := v.([]any)
	if !ok {
		names = []any{v}
	}
	var all breaker.Evidence
	for _, n := range names {
		var one breaker.Evidence
		d.value(path, n, reflect.ValueOf(&one).Elem())
		all |= one
	}
	to.SetUint(uint64(all))
}

// shown prints a TOML value and its type, for an error.
func shown(v any) string {
	switch v := v.(type) {
	case string:
		return fmt.Sprintf("the string %q", v)
	case int64, float64:
		return fmt.Sprintf("the number %v", v)
	case bool:
		return fmt.Sprintf("%v", v)
	case map[string]any:
		return "a table"
	case []any, []map[string]any:
		return "a list"
	}
	return fmt.Sprintf("%v", v)
}
