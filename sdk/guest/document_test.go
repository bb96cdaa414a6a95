package guest

import (
	"strings"
	"testing"

	"github.com/fusebox-dev/fusebox/taxonomy/jsonscan"
)

const sample = `{"a":{"b":"x","c":[1,-2,{"d":"y"}],"long":"0123456789abcdef\"ghij\\","n":null},"e":true,"f":"é\n\u0041","g":42,"empty":"", "sp" : [ ] }`

func TestDocument(t *testing.T) {
	d := Parse(" " + sample)
	for _, c := range []struct{ got, want string }{
		{d.Text("a", "b"), "x"},
		{d.Text("a", "long"), `0123456789abcdef"ghij\`},
		{d.Text("f"), "é\nA"},
		{d.Text("empty"), ""},
		{d.Text("g"), ""},
		{d.Text("nope", "b"), ""},
		{d.Get("a", "c").Raw(), `[1,-2,{"d":"y"}]`},
		{d.Get("a").Raw(), `{"b":"x","c":[1,-2,{"d":"y"}],"long":"0123456789abcdef\"ghij\\","n":null}`},
		{d.Raw(), sample},
		{Document{}.Raw(), ""},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
	if d.Int("g") != 42 || d.Int("a") != 0 || !d.Bool("e") || d.Bool("g") {
		t.Error("numbers and booleans")
	}
	if d.Get("a", "n").Exists() || d.Get("zz").Exists() || !d.Get("a").Exists() {
		t.Error("existence")
	}
	var seen []string
	d.Each(func(i int, e Document) bool { seen = append(seen, e.Raw()); return true }, "a", "c")
	if strings.Join(seen, " ") != `1 -2 {"d":"y"}` {
		t.Errorf("elements %q", seen)
	}
	d.Each(func(int, Document) bool { t.Error("an empty array has an element"); return true }, "sp")
	if got := Parse(`{"body":"{\"error\":{\"code\":\"c\"}}"}`).Inner("body").Text("error", "code"); got != "c" {
		t.Errorf("inner %q", got)
	}
}

// FuzzDocument: no text makes a document panic, and on valid text it finds what
// the strict scanner finds.
func FuzzDocument(f *testing.F) {
	f.Add(sample, "a")
	f.Add(`{"a":`, "a")
	f.Add(`{"a":"\`, "a")
	f.Add(`[[[`, "")
	f.Add(`{"":"12345678\\"}`, "")
	f.Fuzz(func(t *testing.T, text, key string) {
		d := Parse(text)
		got := d.Get(key)
		_, _, _, _ = d.Raw(), got.Raw(), got.Text(), got.Int()
		d.Each(func(_ int, e Document) bool { _ = e.Raw(); return true })
		want, ok := strict(text, key)
		if ok && got.Raw() != want {
			t.Errorf("%q in %q: got %q, want %q", key, text, got.Raw(), want)
		}
	})
}

// strict finds a member with the scanner that checks everything; ok false when
// the text is no object, or has keys with escapes, which Document leaves alone.
func strict(text, key string) (value string, ok bool) {
	s := jsonscan.Scan(text, jsonscan.Options{})
	if s.Kind() != jsonscan.Object || strings.Contains(text, `\`) {
		return "", false
	}
	found := false
	s.EnterObject()
	for {
		k, more := s.NextKey()
		if !more {
			break
		}
		raw := s.Raw()
		if k == key && !found {
			value, found = raw, true
		}
	}
	return value, s.End() == nil
}

// FuzzText: texts come out as the strict scanner reads them.
func FuzzText(f *testing.F) {
	for _, s := range []string{`""`, `"a\nb\t\"\\\/"`, `"\u00e9\ud83d\ude00"`, `"\ud83d"`, `"\ud83d\u0041"`, `"0123456789\\abc"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := Parse(text).Text()
		s := jsonscan.Scan(text, jsonscan.Options{})
		if s.Kind() != jsonscan.String {
			return
		}
		if want := s.Text(); s.End() == nil && got != want && len(text) > 0 && text[0] == '"' {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	})
}

// FuzzQuoted: what the answer writer quotes, the scanner reads back.
func FuzzQuoted(f *testing.F) {
	f.Add("plain")
	f.Add("a\"\\\x01é😀")
	f.Fuzz(func(t *testing.T, text string) {
		if got, want := string(quoted(nil, text)), string(jsonscan.AppendString(nil, text)); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}
