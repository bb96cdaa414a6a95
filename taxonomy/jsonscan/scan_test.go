package jsonscan_test

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fusebox-dev/fusebox/taxonomy/jsonscan"
)

func TestWalk(t *testing.T) {
	s := jsonscan.Scan(` {"a":[1,-2.5e3,"x\n\u00e9\ud83d\ude00"],"b":{},"c":null,"d":true,"e":[]} `, jsonscan.Options{})
	if !s.EnterObject() {
		t.Fatal(s.Err())
	}
	var got []string
	for {
		k, ok := s.NextKey()
		if !ok {
			break
		}
		got = append(got, k)
		switch k {
		case "a":
			s.EnterArray()
			s.NextElement()
			if v := s.Int(); v != 1 {
				t.Errorf("a[0] = %d", v)
			}
			s.NextElement()
			if v := s.Number(); v != "-2.5e3" {
				t.Errorf("a[1] = %q", v)
			}
			s.NextElement()
			if v := s.Text(); v != "x\né😀" {
				t.Errorf("a[2] = %q", v)
			}
			if s.NextElement() {
				t.Error("a has a fourth element")
			}
		case "d":
			if !s.Bool() {
				t.Error("d is false")
			}
		default:
			s.Skip()
		}
	}
	if err := s.End(); err != nil {
		t.Fatal(err)
	}
	if strings.Join(got, "") != "abcde" {
		t.Errorf("keys %v", got)
	}
}

func TestErrorsNamePlaceAndWant(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`{"a" 1}`, "json offset 5: expected ':' after a key, found a number"},
		{`{"a":1,}`, "json offset 7: expected a string, found '}'"},
		{`[1 2]`, "json offset 3: expected ',' or ']', found a number"},
		{`[1,]`, "json offset 3: expected a value, found ']'"},
		{`"a`, `json offset 2: expected '"' at the end of a string, found the end of the text`},
		{"\"a\x01\"", "json offset 2: expected no control character in a string, found byte 1"},
		{"\"a\xff\"", "json offset 1: expected valid UTF-8 in a string, found 'a'"},
		{`"\ud800"`, "json offset 1: expected a whole surrogate pair, found '\\'"},
		{`"\q"`, "json offset 1: expected a known escape, found '\\'"},
		{`01`, "json offset 1: expected the end of the text, found a number"},
		{`1.`, "json offset 2: expected a digit after '.', found the end of the text"},
		{`1e+`, "json offset 3: expected a digit in the exponent, found the end of the text"},
		{`-`, "json offset 1: expected a digit, found the end of the text"},
		{`nul`, "json offset 0: expected null, found null"},
		{`{} x`, "json offset 3: expected the end of the text, found 'x'"},
		{``, "json offset 0: expected a value, found the end of the text"},
		{`{"a":1`, "json offset 6: expected ',' or '}', found the end of the text"},
	} {
		s := jsonscan.Scan(c.text, jsonscan.Options{})
		s.Skip()
		if err := s.End(); err == nil || err.Error() != c.want {
			t.Errorf("%s\n got %v\nwant %s", c.text, err, c.want)
		}
	}
}

func TestDepthIsBounded(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, c := range []struct {
		depth, n int
		ok       bool
	}{{8, 8, true}, {8, 9, false}, {0, 64, true}, {0, 65, false}, {1000, 64, true}, {1000, 65, false}} {
		s := jsonscan.Scan(deep(c.n), jsonscan.Options{Depth: c.depth})
		s.Skip()
		if ok := s.End() == nil; ok != c.ok {
			t.Errorf("limit %d, nesting %d: %v", c.depth, c.n, s.Err())
		}
	}
	// Mixed containers keep their own kind at each depth.
	mixed := strings.Repeat(`[{"a":`, 32) + "1" + strings.Repeat(`}]`, 32)
	s := jsonscan.Scan(mixed, jsonscan.Options{})
	s.Skip()
	if err := s.End(); err != nil {
		t.Error(err)
	}
}

func TestLenientTakesWhatTheWildSends(t *testing.T) {
	for _, text := range []string{"\"a\nb\"", "\"a\xffb\"", `"\ud800x"`, `"\udc00"`} {
		s := jsonscan.Scan(text, jsonscan.Options{Lenient: true})
		s.Text()
		if err := s.End(); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	s := jsonscan.Scan(`"\ud800x"`, jsonscan.Options{Lenient: true})
	if got := s.Text(); got != "\uFFFDx" {
		t.Errorf("lone surrogate read as %q", got)
	}
}

func TestInt(t *testing.T) {
	for _, c := range []struct {
		text string
		want int64
		ok   bool
	}{{"0", 0, true}, {"-0", 0, true}, {"9223372036854775807", math.MaxInt64, true}, {"9223372036854775808", 0, false},
		{"-9223372036854775808", math.MinInt64, true}, {"1.0", 0, false}, {"1e3", 0, false}, {`"1"`, 0, false}, {"", 0, false}} {
		s := jsonscan.Scan(c.text, jsonscan.Options{})
		if v := s.Int(); v != c.want || (s.Err() == nil) != c.ok {
			t.Errorf("%s: %d, %v", c.text, v, s.Err())
		}
	}
}

// The numbers and their forms are those of RFC 8785 appendix B.
func TestFloatsAsECMAScriptWritesThem(t *testing.T) {
	for bitsHex, want := range map[string]string{
		"0000000000000000": "0", "8000000000000000": "0", "0000000000000001": "5e-324", "8000000000000001": "-5e-324",
		"7fefffffffffffff": "1.7976931348623157e+308", "ffefffffffffffff": "-1.7976931348623157e+308",
		"4340000000000000": "9007199254740992", "c340000000000000": "-9007199254740992",
		"4430000000000000": "295147905179352830000", "44b52d02c7e14af5": "9.999999999999997e+22",
		"44b52d02c7e14af6": "1e+23", "44b52d02c7e14af7": "1.0000000000000001e+23",
		"444b1ae4d6e2ef4e": "999999999999999700000", "444b1ae4d6e2ef4f": "999999999999999900000",
		"444b1ae4d6e2ef50": "1e+21", "3eb0c6f7a0b5ed8c": "9.999999999999997e-7", "3eb0c6f7a0b5ed8d": "0.000001",
		"41b3de4355555553": "333333333.3333332", "becbf647612f3696": "-0.0000033333333333333333",
	} {
		u, err := strconv.ParseUint(bitsHex, 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(jsonscan.AppendFloat(nil, math.Float64frombits(u))); got != want {
			t.Errorf("%s: %s, want %s", bitsHex, got, want)
		}
	}
}

func TestCanonical(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{` { "b" : [ 1.0 , 1e2 , -0.0, 9007199254740993 ] , "a" : { "z":null, "y":"é\u000a\u001F\/" } } `,
			`{"a":{"y":"é\n\u001f/","z":null},"b":[1,100,0,9007199254740993]}`},
		// The key order of RFC 8785 section 3.2.3.
		{`{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}`,
			"{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u0080\":\"Control\",\"ö\":\"Latin Small Letter O With Diaeresis\",\"€\":\"Euro Sign\",\"😀\":\"Emoji: Grinning Face\",\"\ufb33\":\"Hebrew Letter Dalet With Dagesh\"}"},
	} {
		got, err := jsonscan.AppendCanonical(nil, c.in, jsonscan.Options{})
		if err != nil || string(got) != c.want {
			t.Errorf("%s\n got %s %v\nwant %s", c.in, got, err, c.want)
		}
	}
	for _, bad := range []string{`{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `[1e400]`, `[`, ``, `{"a":[1,2}`} {
		if out, err := jsonscan.AppendCanonical(nil, bad, jsonscan.Options{}); err == nil {
			t.Errorf("%s became %s", bad, out)
		}
	}
}

func TestFitKeepsTheBound(t *testing.T) {
	for _, in := range []string{strings.Repeat("é", 50), strings.Repeat("\x01", 50), strings.Repeat("a\"", 50), strings.Repeat("\xff", 50), "short"} {
		for most := range 40 {
			n := jsonscan.Fit(in, most)
			out, cut := jsonscan.AppendString(nil, in[:n]), n < len(in)
			if len(out)-2 > most {
				t.Fatalf("%q cut to %d bytes, allowed %d", in, len(out)-2, most)
			}
			var back string
			if err := json.Unmarshal(out, &back); err != nil {
				t.Fatalf("%q: %v", out, err)
			}
			if !cut && back != strings.ToValidUTF8(in, "\uFFFD") && back != strings.Repeat("\uFFFD", 50) {
				t.Errorf("%q came back as %q", in, back)
			}
		}
	}
}

// TestAgreesWithStandardLibrary walks awkward texts and checks that this
// scanner accepts what encoding/json accepts, apart from UTF-8 and depth,
// where it is stricter.
func TestAgreesWithStandardLibrary(t *testing.T) {
	pieces := []string{`{`, `}`, `[`, `]`, `,`, `:`, `"a"`, `"\u00e9"`, `1`, `-`, `0`, `.5`, `e9`, `true`, `nul`, `l`, ` `, "\n", `"`, `\`, `"\ud83d\ude00"`}
	n := 0
	var walk func(prefix string, left int)
	walk = func(prefix string, left int) {
		n++
		agree(t, []byte(prefix))
		if left == 0 {
			return
		}
		for _, p := range pieces {
			walk(prefix+p, left-1)
		}
	}
	walk("", 3)
	walk(`{"a":`, 2)
	walk(`[{"k":[1,`, 2)
	if n < 10000 {
		t.Fatalf("only %d texts", n)
	}
}

func agree(t *testing.T, b []byte) {
	t.Helper()
	s := jsonscan.ScanBytes(b, jsonscan.Options{})
	s.Skip()
	mine, theirs := s.End() == nil, json.Valid(b)
	if mine == theirs {
		return
	}
	if theirs && (!utf8.Valid(b) || bytes.Contains(bytes.ToLower(b), []byte(`\ud`)) || strings.Contains(s.Err().Error(), "nesting")) {
		return
	}
	t.Errorf("%q: here %v (%v), encoding/json %v", b, mine, s.Err(), theirs)
}

func FuzzScan(f *testing.F) {
	for _, seed := range []string{`{"a":[1,2.5,"x\u00e9",null,true]}`, `"\ud83d\ude00"`, `[[[[[[]]]]]]`, "\"\xff\"", `{"a":1,"a":2}`, `1e999`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		agree(t, b)
		for _, o := range []jsonscan.Options{{}, {Lenient: true}, {Depth: 3}} {
			s := jsonscan.ScanBytes(b, o)
			s.Skip()
			s.End()
			if s.Steps() > 8*len(b)+16 {
				t.Fatalf("%d steps for %d bytes", s.Steps(), len(b))
			}
			once, err := jsonscan.AppendCanonical(nil, string(b), o)
			if err != nil {
				continue
			}
			twice, err := jsonscan.AppendCanonical(nil, string(once), jsonscan.Options{})
			if err != nil || !bytes.Equal(once, twice) {
				t.Fatalf("not a fixed point: %s then %s (%v)", once, twice, err)
			}
		}
	})
}

func BenchmarkSkip(b *testing.B) {
	text := `{"error":{"message":"Rate limit reached for requests","type":"requests","param":null,"code":"rate_limit_exceeded"}}`
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		s := jsonscan.Scan(text, jsonscan.Options{Lenient: true})
		s.Skip()
		if s.End() != nil {
			b.Fatal(s.Err())
		}
	}
}
