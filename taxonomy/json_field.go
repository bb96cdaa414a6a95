package taxonomy

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/fusebox-dev/fusebox/taxonomy/jsonscan"
)

// A field is one member of a document, said once: its name, how it is read,
// how it is written and what its schema is.
type field[T any] struct {
	name  string
	doc   string
	shape shape
	read  func(*reader, *T)
	write func([]byte, *T) []byte
}

// fields are the members of one kind of object, in the order of their names.
type fields[T any] []field[T]

// lazy makes a table once, when it is first asked for.
type lazy[T any] struct {
	once sync.Once
	fs   fields[T]
}

func (l *lazy[T]) get(build func() fields[T]) fields[T] {
	l.once.Do(func() { l.fs = build() })
	return l.fs
}

// read fills v from an object. Members may stand in any order, an unknown or
// repeated one is an error.
func (fs fields[T]) read(r *reader, v *T) {
	var seen uint64 // no table has more than 64 members; a test holds that
	next := 0
	r.object(func(key string) {
		i := fs.find(key, next)
		switch {
		case i < 0:
			r.path = r.path[:len(r.path)-1]
			r.refuse("one of "+fs.names(), "the unknown member "+quote(key))
		case seen&(1<<i) != 0:
			r.refuse("this member once", "it twice")
		default:
			seen |= 1 << i
			next = i + 1
			fs[i].read(r, v)
		}
	})
}

// find looks at the place where a sorted document has the key, then anywhere.
func (fs fields[T]) find(key string, guess int) int {
	if guess < len(fs) && fs[guess].name == key {
		return guess
	}
	for i := range fs {
		if fs[i].name == key {
			return i
		}
	}
	return -1
}

func (fs fields[T]) names() string {
	out := ""
	for i := range fs {
		if i > 0 {
			out += ", "
		}
		out += fs[i].name
	}
	return out
}

// write appends v with all its members, sorted.
func (fs fields[T]) write(dst []byte, v *T) []byte {
	dst = append(dst, '{')
	for i := range fs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '"')
		dst = append(dst, fs[i].name...)
		dst = append(dst, '"', ':')
		dst = fs[i].write(dst, v)
	}
	return append(dst, '}')
}

// short is a text of at most so many characters.
func short[T any](name, doc string, most int, at func(*T) *string) field[T] {
	return field[T]{name, doc, shape{kind: "string", longest: most},
		func(r *reader, v *T) {
			if *at(v) = r.text("a string"); utf8.RuneCountInString(*at(v)) > most {
				r.refuse("at most "+strconv.Itoa(most)+" characters", strconv.Itoa(utf8.RuneCountInString(*at(v))))
			}
		},
		func(b []byte, v *T) []byte { return jsonscan.AppendString(b, *at(v)) }}
}

func text[T any](name, doc string, at func(*T) *string) field[T] {
	return field[T]{name, doc, shape{kind: "string"},
		func(r *reader, v *T) { *at(v) = r.text("a string") },
		func(b []byte, v *T) []byte { return jsonscan.AppendString(b, *at(v)) }}
}

func whole[T any](name, doc string, at func(*T) *int64) field[T] {
	return field[T]{name, doc, shape{kind: "integer"},
		func(r *reader, v *T) { *at(v) = r.whole() },
		func(b []byte, v *T) []byte { return jsonscan.AppendInt(b, *at(v)) }}
}

func flag[T any](name, doc string, at func(*T) *bool) field[T] {
	return field[T]{name, doc, shape{kind: "boolean"},
		func(r *reader, v *T) { *at(v) = r.boolean() },
		func(b []byte, v *T) []byte { return jsonscan.AppendBool(b, *at(v)) }}
}

// choice is a member with a closed list of names.
func choice[T any, E ~uint8](name, doc string, names []string, at func(*T) *E) field[T] {
	return field[T]{name, doc, shape{kind: "string", enum: names},
		func(r *reader, v *T) {
			if got := r.text("one of " + strings.Join(names, ", ")); r.ok() && (got != "" || r.strict) {
				i := slices.Index(names, got)
				if i < 0 {
					r.refuse("one of "+strings.Join(names, ", "), quote(got))
					return
				}
				*at(v) = E(i)
			}
		},
		func(b []byte, v *T) []byte {
			i := int(*at(v))
			if i >= len(names) {
				i = 0
			}
			return jsonscan.AppendString(b, names[i])
		}}
}

func texts[T any](name, doc string, at func(*T) *[]string) field[T] {
	return field[T]{name, doc, shape{kind: "array", items: &shape{kind: "string"}},
		func(r *reader, v *T) {
			r.array(func(int) { *at(v) = append(*at(v), r.text("a string")) })
		},
		func(b []byte, v *T) []byte {
			b = append(b, '[')
			for i, s := range *at(v) {
				if i > 0 {
					b = append(b, ',')
				}
				b = jsonscan.AppendString(b, s)
			}
			return append(b, ']')
		}}
}

func part[T, P any](name, doc string, fs func() fields[P], at func(*T) *P) field[T] {
	return field[T]{name, doc, shape{kind: "object", members: describing(fs)},
		func(r *reader, v *T) { fs().read(r, at(v)) },
		func(b []byte, v *T) []byte { return fs().write(b, at(v)) }}
}

// optional is an object or null.
func optional[T, P any](name, doc string, fs func() fields[P], at func(*T) **P) field[T] {
	return field[T]{name, doc, shape{kind: "object", members: describing(fs), null: true},
		func(r *reader, v *T) {
			if r.Kind() == jsonscan.Null {
				r.Null()
				return
			}
			*at(v) = new(P)
			fs().read(r, *at(v))
		},
		func(b []byte, v *T) []byte {
			if p := *at(v); p != nil {
				return fs().write(b, p)
			}
			return append(b, "null"...)
		}}
}

func list[T, P any](name, doc string, fs func() fields[P], at func(*T) *[]P) field[T] {
	return field[T]{name, doc, shape{kind: "array", items: &shape{kind: "object", members: describing(fs)}},
		func(r *reader, v *T) {
			r.array(func(i int) {
				*at(v) = append(*at(v), *new(P))
				fs().read(r, &(*at(v))[i])
			})
		},
		func(b []byte, v *T) []byte {
			b = append(b, '[')
			for i := range *at(v) {
				if i > 0 {
					b = append(b, ',')
				}
				b = fs().write(b, &(*at(v))[i])
			}
			return append(b, ']')
		}}
}

// strs is a map of strings; fold turns its keys into lower case and joins the
// values of keys that fall together, as RFC 9110 section 5.2 joins field lines.
func strs[T any](name, doc string, at func(*T) *map[string]string) field[T] {
	return field[T]{name, doc, shape{kind: "object", items: &shape{kind: "string"}},
		func(r *reader, v *T) {
			r.object(func(key string) {
				value := r.text("a string")
				if !r.ok() {
					return
				}
				if *at(v) == nil {
					*at(v) = make(map[string]string)
				}
				key = strings.ToLower(key)
				if old, twice := (*at(v))[key]; twice {
					value = old + ", " + value
				}
				(*at(v))[key] = value
			})
		},
		func(b []byte, v *T) []byte { return appendStrings(b, *at(v)) }}
}

func appendStrings(b []byte, m map[string]string) []byte {
	b = append(b, '{')
	for i, k := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = jsonscan.AppendString(b, k)
		b = append(b, ':')
		b = jsonscan.AppendString(b, m[k])
	}
	return append(b, '}')
}

// moment is a time as RFC 3339 text in UTC; "" is no time.
func moment[T any](name, doc string, at func(*T) *time.Time) field[T] {
	return field[T]{name, doc, shape{kind: "string"},
		func(r *reader, v *T) {
			s := r.text("a time")
			if s == "" || !r.ok() {
				return
			}
			when, err := time.Parse(time.RFC3339, s)
			if err != nil {
				r.refuse("an RFC 3339 time", quote(s))
			}
			*at(v) = when
		},
		func(b []byte, v *T) []byte {
			if t := *at(v); !t.IsZero() {
				return jsonscan.AppendString(b, t.UTC().Format(time.RFC3339Nano))
			}
			return append(b, `""`...)
		}}
}

// millis is a duration as whole milliseconds, never negative.
func millis[T any](name, doc string, at func(*T) *time.Duration) field[T] {
	return field[T]{name, doc, shape{kind: "integer", natural: true},
		func(r *reader, v *T) {
			ms := r.whole()
			if ms < 0 {
				r.refuse("milliseconds of at least 0", "a negative number")
				return
			}
			*at(v) = ClampRetryAfter(ms)
		},
		func(b []byte, v *T) []byte { return jsonscan.AppendInt(b, Milliseconds(*at(v))) }}
}
