package meter

import (
	"context"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// program is a module with one exported function "f" of type (i32) -> (), one
// local i32 more, a memory of one page, and two globals.
func program(instructions ...byte) []byte {
	sec := func(id byte, b ...byte) []byte { return append([]byte{id, byte(len(b))}, b...) }
	body := append([]byte{1, 1, 0x7f}, instructions...)
	body = append(body, 0x0b)
	code := append([]byte{1, byte(len(body))}, body...)
	out := []byte("\x00asm\x01\x00\x00\x00")
	for _, s := range [][]byte{sec(secType, 1, 0x60, 1, 0x7f, 0), sec(secFunction, 1, 0), sec(secMemory, 1, 0, 2),
		sec(secExport, 1, 1, 'f', 0, 0), sec(secCode, code...)} {
		out = append(out, s...)
	}
	return out
}

// TestFuelExactly holds the price list: what each program costs with n = 10. A
// change here changes the meaning of fuel in receipts, so Version must change
// with it.
func TestFuelExactly(t *testing.T) {
	if Version != "fuel1" {
		t.Fatal("the version changed: write down the new prices")
	}
	const entry = costEntry
	// Counts the local 0 down to zero: six instructions each time round, and one
	// for the loop itself.
	count := []byte{0x03, 0x40, 0x20, 0, 0x41, 1, 0x6b, 0x22, 0, 0x0d, 0, 0x0b}
	nop := []byte{0x01}
	join := func(parts ...[]byte) []byte {
		var b []byte
		for _, p := range parts {
			b = append(b, p...)
		}
		return b
	}
	for _, c := range []struct {
		name string
		body []byte
		want int64
	}{
		{"empty", nil, entry},
		{"three nops", join(nop, nop, nop), entry + 3},
		{"loop ten times", count, entry + 10*6},
		{"code behind a loop belongs to the function", join(count, nop, nop), entry + 10*6 + 2},
		{"code before a loop", join(nop, count), entry + 10*6 + 1},
		{"an inner loop is not charged with the outer one",
			join([]byte{0x03, 0x40, 0x20, 0, 0x21, 1}, []byte{0x03, 0x40, 0x20, 1, 0x41, 1, 0x6b, 0x22, 1, 0x0d, 0, 0x0b}, []byte{0x01, 0x20, 0, 0x41, 1, 0x6b, 0x22, 0, 0x0d, 0, 0x0b}),
			entry + 10*9 + (10+9+8+7+6+5+4+3+2+1)*6},
		{"both arms are charged", []byte{0x20, 0, 0x04, 0x40, 0x01, 0x05, 0x01, 0x01, 0x0b}, entry + 1 + 1 + 3},
		{"a division counts eight", []byte{0x20, 0, 0x41, 3, 0x6e, 0x1a}, entry + 2 + slow + 1},
		{"a square root counts eight", []byte{0x44, 0, 0, 0, 0, 0, 0, 0, 0, 0x9f, 0x1a}, entry + 1 + slow + 1},
		{"fill counts an eighth of its bytes", []byte{0x41, 0, 0x41, 0, 0x41, 0x80, 0xe0, 0, 0xfc, 11, 0}, entry + 3 + 1 + 12288/8},
		{"copy likewise", []byte{0x41, 0, 0x41, 0, 0x41, 0x80, 0xe0, 0, 0xfc, 10, 0, 0}, entry + 3 + 1 + 12288/8},
		{"growing is dear, also when refused", []byte{0x41, 0xff, 0xff, 3, 0x40, 0, 0x1a}, entry + 3 + costGrow},
		{"dead code is charged", []byte{0x0f, 0x01, 0x01}, entry + 1 + 2},
	} {
		if got := fuelOf(t, program(c.body...)); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func fuelOf(t *testing.T, wasm []byte) int64 {
	t.Helper()
	m, err := Parse(wasm, Pure())
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	r := wazero.NewRuntime(ctx)
	defer r.Close(ctx)
	mod, err := r.Instantiate(ctx, m.Rewrite(16).Wasm)
	if err != nil {
		t.Fatal(err)
	}
	fuel := mod.ExportedGlobal(FuelExport).(api.MutableGlobal)
	fuel.Set(uint64(plenty))
	mod.ExportedGlobal(StackExport).(api.MutableGlobal).Set(uint64(plenty))
	if _, err := mod.ExportedFunction("f").Call(ctx, 10); err != nil {
		t.Fatal(err)
	}
	return plenty - int64(fuel.Get())
}

// TestNothingRunsWithoutFuel: the counters begin at zero, so that code which
// runs before anybody gave it fuel traps.
func TestNothingRunsWithoutFuel(t *testing.T) {
	m, err := Parse(program(), Pure())
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	r := wazero.NewRuntime(ctx)
	defer r.Close(ctx)
	mod, err := r.Instantiate(ctx, m.Rewrite(16).Wasm)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mod.ExportedFunction("f").Call(ctx, 10); err == nil {
		t.Error("a function ran without fuel")
	}
}

// TestMemoryMaximum: the rewriter writes one, never below the minimum.
func TestMemoryMaximum(t *testing.T) {
	m, err := Parse(program(), Pure())
	if err != nil {
		t.Fatal(err)
	}
	for pages, want := range map[uint32]uint32{1: 2, 2: 2, 16: 16} {
		if got := m.Rewrite(pages).MemMax; got != want {
			t.Errorf("at most %d pages: %d, want %d", pages, got, want)
		}
	}
}
