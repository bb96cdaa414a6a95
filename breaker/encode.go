package breaker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// The stored form of a circuit, little endian:
//
//	0    u8   format, 1
//	1    u8   state, reason, reopened, probe successes, leases lost in a row, ramp step (6 bytes)
//	7    u8   position in the ring, window in use (2 bytes)
//	9    u16  evidence seen
//	11   u32  ramp successes, failures in a row, leases lost, decisions, window shape (5)
//	31   u64  version
//	39   i64  store's clock when written, Unix nanoseconds
//	47   i64  since, until, window start, window last (4)
//	79        leases: u64 token, i64 until (MaxProbes)
//	143  u32  ring: ok, slow, failed, unknown (MaxBuckets x 4)
//	303  u32  excluded by class (taxonomy.Classes)
//	359  u32  late, shadow ok, shadow failed
//	371  u8   override, followed by i64 until, text by, text why; 0 is none
//	     text detail
//
// A text is a u16 length and its bytes. Every instant is the time from the
// moment of writing, so that it means the same to another process; the least
// int64 is "none". The sum of the ring is not stored but counted again.
const format = 1

const none = -1 << 63

// Errors of stored circuits.
var (
	// ErrNoRecord: there is nothing stored. It does not mean closed: whoever
	// holds a copy goes on with it.
	ErrNoRecord  = errors.New("no stored circuit")
	ErrBadRecord = errors.New("not a stored circuit")
)

// Encode writes a circuit for a store whose clock shows at while this process's
// shows now.
func Encode(c *Circuit, now Instant, at time.Time) []byte {
	b := make([]byte, 0, 448)
	used := byte(0)
	if c.Window.Used {
		used = 1
	}
	b = append(b, format, byte(c.State), byte(c.Reason), c.Reopened, c.ProbeOK, c.LostRow, c.Step, c.Window.Pos, used)
	le := binary.LittleEndian
	b = le.AppendUint16(b, uint16(c.Seen))
	for _, v := range []uint32{c.RampOK, c.Row, c.Lost, c.Decided, c.Window.Shape} {
		b = le.AppendUint32(b, v)
	}
	b = le.AppendUint64(b, c.Version)
	b = le.AppendUint64(b, uint64(at.UnixNano()))
	when := func(i Instant, set bool) {
		v := int64(none)
		if set {
			v = int64(i - now)
		}
		b = le.AppendUint64(b, uint64(v))
	}
	when(c.Since, c.Version > 0)
	when(c.Until, c.Until != 0)
	when(c.Window.Start, c.Window.Used)
	when(c.Window.Last, c.Window.Used)
	for _, l := range c.Leases {
		b = le.AppendUint64(b, l.Token)
		when(l.Until, l.Token != 0)
	}
	for _, t := range c.Window.Ring {
		for _, v := range []uint32{t.OK, t.Slow, t.Failed, t.Unknown} {
			b = le.AppendUint32(b, v)
		}
	}
	for _, v := range c.Window.Excluded {
		b = le.AppendUint32(b, v)
	}
	for _, v := range []uint32{c.Window.Late, c.Window.ShadowOK, c.Window.ShadowFailed} {
		b = le.AppendUint32(b, v)
	}
	b = append(b, byte(c.forced()))
	if o := c.Override; o != nil {
		when(o.Until, true)
		b = appendText(appendText(b, o.By), o.Why)
	}
	return appendText(b, c.Detail)
}

func appendText(b []byte, s string) []byte {
	s = short(s)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(s)))
	return append(b, s...)
}

// Decode reads what Encode wrote, while the store's clock shows at and this
// process's shows now. The time since it was written passes in the circuit too.
// A store's clock that went back counts as no time, one that leapt ahead as
// maxAge; deadlines are bounded by what the rule could have set. Only an
// override ends when it was said to, however long nobody looked: what ended
// while every process was down must not come back with the next one.
func Decode(data []byte, r *Rule, now Instant, at time.Time) (Circuit, error) {
	if len(data) == 0 {
		return Circuit{}, ErrNoRecord
	}
	d := decoder{b: data, now: now}
	if v := d.u8(); v != format {
		return Circuit{}, fmt.Errorf("%w: format %d, expected %d", ErrBadRecord, v, format)
	}
	c := Circuit{State: State(d.u8()), Reason: Reason(d.u8()), Reopened: d.u8(), ProbeOK: d.u8(), LostRow: d.u8(), Step: d.u8()}
	c.Window.Pos, c.Window.Used = d.u8(), d.u8() == 1
	c.Seen = Evidence(d.u16())
	c.RampOK, c.Row, c.Lost, c.Decided, c.Window.Shape = d.u32(), d.u32(), d.u32(), d.u32(), d.u32()
	c.Version = d.u64()
	written := time.Unix(0, int64(d.u64()))
	age := min(max(at.Sub(written), 0), longest)
	d.age = Instant(min(age, maxAge(r)))
	c.Since, c.Until = d.when(), d.when()
	if c.Version == 0 {
		c.Since = 0 // it has never changed
	}
	c.Window.Start, c.Window.Last = d.when(), d.when()
	for i := range c.Leases {
		c.Leases[i] = Lease{Token: d.u64(), Until: d.when()}
		if c.Leases[i].Token == 0 {
			c.Leases[i] = Lease{}
		}
	}
	w := &c.Window
	for i := range w.Ring {
		w.Ring[i] = Tally{d.u32(), d.u32(), d.u32(), d.u32()}
	}
	for i := range w.Excluded {
		w.Excluded[i] = d.u32()
	}
	w.Late, w.ShadowOK, w.ShadowFailed = d.u32(), d.u32(), d.u32()
	if k := OverrideKind(d.u8()); k != NoOverride {
		d.age = Instant(age)
		c.Override = &Override{Kind: k, Until: d.when(), By: d.text(), Why: d.text()}
	}
	c.Detail = d.text()
	if d.short || len(d.b) != 0 {
		return Circuit{}, fmt.Errorf("%w: %d bytes, which is not its length", ErrBadRecord, len(data))
	}
	if err := c.sound(); err != nil {
		return Circuit{}, err
	}
	if err := w.restore(&r.Window, now); err != nil {
		return Circuit{}, err
	}
	c, _, _ = Step(r, c, Event{Kind: Restore}, now)
	c.High = 0
	return c, nil
}

// restore brings a stored window into the form that counting keeps it in.
func (w *Window) restore(r *WindowRule, now Instant) error {
	if !w.Used || w.Shape != r.shape() { // counted under another rule, as after a swap
		*w = Window{Late: w.Late, Excluded: w.Excluded, ShadowOK: w.ShadowOK, ShadowFailed: w.ShadowFailed}
		return nil
	}
	w.Start, w.Last = min(w.Start, now), min(w.Last, now)
	w.Pos = min(w.Pos, r.Buckets-1)
	var total uint64
	for i, t := range w.Ring {
		if i >= int(r.Buckets) {
			w.Ring[i] = Tally{}
			continue
		}
		total += t.Total()
	}
	if total > full {
		return fmt.Errorf("%w: its window holds more than %d outcomes", ErrBadRecord, full)
	}
	w.Sum = Tally{}
	for _, t := range w.Ring {
		w.Sum = Tally{w.Sum.OK + t.OK, w.Sum.Slow + t.Slow, w.Sum.Failed + t.Failed, w.Sum.Unknown + t.Unknown}
	}
	return nil
}

// maxAge is the longest time that may have passed unseen: enough to end every
// cooldown and empty every window.
func maxAge(r *Rule) time.Duration { return max(r.Cooldown.longest(), r.Forget, r.Window.Length) * 2 }

// sound refuses what no Step could have made.
func (c *Circuit) sound() error {
	switch {
	case c.State > Ramping, c.Reason >= reasons, c.Step >= MaxSteps, c.Window.Pos >= MaxBuckets, c.Seen >= evidenceEnd,
		c.Version >= 1<<55: // the registry publishes 56 bits of it
		return fmt.Errorf("%w: a value is out of range", ErrBadRecord)
	case c.State != HalfOpen && c.live() > 0:
		return fmt.Errorf("%w: leases outside HALF_OPEN", ErrBadRecord)
	case c.Override != nil && c.Override.Kind > ForcedClosed:
		return fmt.Errorf("%w: override %d", ErrBadRecord, c.Override.Kind)
	}
	return nil
}

// decoder reads little endian fields; after the end it reads zeros and says so.
type decoder struct {
	b     []byte
	now   Instant
	age   Instant
	short bool
}

func (d *decoder) take(n int) []byte {
	var zero [8]byte
	if len(d.b) < n {
		d.short, d.b = true, nil
		return zero[:min(n, 8)]
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) u8() uint8   { return d.take(1)[0] }
func (d *decoder) u16() uint16 { return binary.LittleEndian.Uint16(d.take(2)) }
func (d *decoder) u32() uint32 { return binary.LittleEndian.Uint32(d.take(4)) }
func (d *decoder) u64() uint64 { return binary.LittleEndian.Uint64(d.take(8)) }

func (d *decoder) when() Instant {
	v := int64(d.u64())
	if v == none {
		return 0
	}
	const far = int64(longest) * 4 // what is further away is as good as that far
	v = min(max(v, -far), far) - int64(d.age)
	return d.now + Instant(max(v, -far))
}

func (d *decoder) text() string {
	n := int(d.u16())
	if n > len(d.b) {
		d.short, d.b = true, nil
		return ""
	}
	return string(d.take(n))
}
