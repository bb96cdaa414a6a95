package breaker

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// A mutant is a fault seeded into the machine: in this file, this text is
// replaced by that. Each text must be in its file exactly once.
type mutant struct {
	file, from, to string
	what           string
}

// mutants are what a tired person could write. The tests of the machine must
// notice each of them.
var mutants = []mutant{
	{"step.go", "m.now >= o.Until", "m.now > o.Until", "an override lasts an instant too long"},
	{"step.go", "now = max(now, c.High)", "now = max(now, 0)", "a clock that runs backwards is believed"},
	{"step.go", "l.Token == 0 || m.now < l.Until", "l.Token == 0 || true", "leases never run out"},
	{"step.go", "c.Until = later(c.Until, l.Until.Add(p.Gap))", "c.Until = later(c.Until, m.now.Add(p.Gap))", "the gap counts from when the loss was noticed"},
	{"step.go", "c.Until = later(c.Until, l.Until.Add(p.Gap))", "c.Until = later(c.Until, l.Until)", "no gap after a lost probe"},
	{"step.go", "p.LostMax > 0 && c.LostRow >= p.LostMax", "p.LostMax > 0 && c.LostRow > p.LostMax", "one lost probe too many is forgiven"},
	{"step.go", "c.LostRow = inc(c.LostRow)", "c.LostRow = inc(0)", "lost probes are not added up"},
	{"step.go", "m.now < c.Until || c.RampOK < r.MinSuccesses", "m.now < c.Until", "the ramp climbs by time alone"},
	{"step.go", "m.now < c.Until || c.RampOK < r.MinSuccesses", "c.RampOK < r.MinSuccesses", "the ramp climbs by successes alone"},
	{"step.go", "c.Step+1 >= r.steps()", "c.Step+2 >= r.steps()", "the ramp's last step is left out"},
	{"step.go", "c.Step+1, m.now.Add(r.Every), 0", "c.Step+1, m.now.Add(r.Every), c.RampOK", "successes of one step count for the next"},
	{"step.go", "if c.State != Closed {\n\t\t// A", "if true {\n\t\t// A", "the first trip is already a failed recovery"},
	{"step.go", "if c.State != Closed {\n\t\t// A", "if c.State == HalfOpen {\n\t\t// A", "a failed ramp does not lengthen the cooldown"},
	{"step.go", "c.Reopened = inc(c.Reopened)", "c.Reopened = inc(0)", "the cooldown grows once only"},
	{"step.go", "if asked > end {", "if asked > 0 {", "a server's deadline shortens the cooldown"},
	{"step.go", "if asked > end {", "if false {", "a server's deadline is ignored"},
	{"step.go", "c.Until, t.Until = end, end", "c.Until, t.Until = c.Until, end", "the state is published without its end"},
	{"step.go", "c.Version++", "c.Version += 0", "the generation does not move"},
	{"step.go", "c.Leases = [MaxProbes]Lease{}", "_ = c.Leases", "leases outlive HALF_OPEN"},
	{"step.go", "c.ProbeOK, c.Seen = 0, 0", "c.Seen = 0", "successes of an earlier HALF_OPEN count again"},
	{"step.go", "if to != HalfOpen { // what", "if true { // what", "the cooldown's end voids what was proved"},
	{"step.go", "case HalfOpen:\n\t\tc.Window, c.Row = Window{}, 0", "case HalfOpen:", "the window of OPEN goes on in HALF_OPEN"},
	{"step.go", "case Closed:\n\t\tc.Window, c.Row = Window{}, 0", "case Closed:\n\t\tc.Row = 0", "the window of the ramp goes on in CLOSED"},
	{"step.go", "c.Reopened, c.Lost = 0, 0", "c.Lost = 0", "growth is kept after closing"},

	{"admit.go", "case ForcedOpen: // no leases either; binds in every mode\n", "case 99:\n", "forced open is ignored"},
	{"admit.go", "case ForcedClosed:\n", "case 98:\n", "forced closed is ignored"},
	{"admit.go", "if m.r.Mode != enforce {", "if true {", "every circuit only observes"},
	{"admit.go", "if m.r.Mode != enforce {", "if false {", "observe refuses"},
	{"admit.go", "m.ev.Draw < m.r.Ramp.Steps[c.Step]", "m.ev.Draw <= One", "the ramp admits everybody"},
	{"admit.go", "m.ev.Draw < m.r.Ramp.Steps[c.Step]", "m.ev.Draw < m.r.Ramp.Steps[0]", "the ramp stays at its first step"},
	{"admit.go", "case m.now < c.Until:\n\t\tm.refuse(CircuitOpen", "case m.now <= c.Until:\n\t\tm.refuse(CircuitOpen", "the cooldown ends an instant late"},
	{"admit.go", "case m.now < c.Until:\n\t\tm.refuse(CircuitOpen", "case m.now < c.Since:\n\t\tm.refuse(CircuitOpen", "there is no cooldown"},
	{"admit.go", "m.ev.Gives&Calls&m.r.Probe.Evidence != 0", "m.r.Probe.Evidence != 0", "the failed mutation may probe"},
	{"admit.go", "(m.ev.Until == 0 || m.ev.Until > m.now)", "true", "a call past its deadline may probe"},
	{"admit.go", "c.live() >= p.Budget", "c.live() > p.Budget", "one probe too many"},
	{"admit.go", "case c.Until != 0 && m.now < c.Until:\n\t\tm.refuse(ProbeGap", "case false:\n\t\tm.refuse(ProbeGap", "the gap is ignored"},
	{"admit.go", "if c.Leases[i].Token == 0 {", "if c.Leases[i].Token != m.ev.Token {", "a slot is handed out twice"},
	{"admit.go", "end = min(end, m.ev.Until)", "end = max(end, m.ev.Until)", "a lease outlives its call"},
	{"admit.go", "*l = Lease{}\n\t\tm.d.Fate = Applied", "m.d.Fate = Applied", "a released lease stays out"},
	{"admit.go", "l.Until = max(l.Until, m.leaseEnd())", "l.Until = max(l.Until, m.now)", "renewal does not lengthen"},
	{"admit.go", "if m.ev.Kind != Admit || m.ev.Token == 0 {", "if m.ev.Token == 0 {", "a question takes a slot"},

	{"outcome.go", "c.held(ev.Token); l != nil", "c.held(c.Leases[0].Token); l != nil", "whoever comes is taken for the lease's holder"},
	{"outcome.go", "ev.Token != 0 || ev.Version < c.Version", "ev.Token != 0", "the generation is not looked at"},
	{"outcome.go", "ev.Token != 0 || ev.Version < c.Version", "ev.Version < c.Version", "a lost lease is taken for an ordinary call"},
	{"outcome.go", "ev.Shadow || c.State == Open || c.State == HalfOpen", "c.State == Open || c.State == HalfOpen", "calls that should not have gone count"},
	{"outcome.go", "ev.Shadow || c.State == Open || c.State == HalfOpen", "ev.Shadow || c.State == Open", "half-open counts calls without a lease"},
	{"outcome.go", "case ev.Outcome == Excluded:\n", "case false:\n", "excluded outcomes are not set apart"},
	{"outcome.go", "if m.r.forgotten(m.c, m.now) {", "if false {", "nothing is ever forgotten"},
	{"outcome.go", "m.forget()\n\tm.c.Window.exclude", "m.c.Window.exclude", "an excluded outcome makes old counts look fresh"},
	{"outcome.go", "case OK, Slow:\n\t\tc.Row = 0", "case OK:\n\t\tc.Row = 0", "a slow success does not end a run of failures"},
	{"outcome.go", "case OK, Slow:\n\t\tc.Row = 0", "case OK, Slow:\n\t\tc.Row /= 2", "a success halves the run of failures"},
	{"outcome.go", "if m.r.Trip.Unknown == 0 { // other", "if true { // other", "UNKNOWN counts twice"},
	{"outcome.go", "row > 0 && c.Row >= row", "row > 0 && c.Row > row", "one failure too many in a row"},
	{"outcome.go", "t.Unknown > 0 && sum.Unknown >= t.Unknown", "t.Unknown > 0 && sum.Unknown > t.Unknown", "the first UNKNOWN is forgiven"},
	{"outcome.go", "samples < r.minSamples(c.State)", "samples <= r.minSamples(c.State)", "one sample too many is waited for"},
	{"outcome.go", "samples < r.minSamples(c.State)", "samples < 1", "no minimum sample"},
	{"outcome.go", "t.FailureRatio.reached(failures, samples)", "t.FailureRatio.reached((failures*100+samples/2)/samples*samples, samples*100)", "the ratio is rounded to two digits"},
	{"outcome.go", "t.SlowRatio > 0 &&", "false &&", "slowness is not watched"},
	{"outcome.go", "if r.Trip.Unknown == 0 {\n\t\tfailures", "if true {\n\t\tfailures", "UNKNOWN with its own limit is a failure as well"},
	{"outcome.go", "c.Until = later(c.Until, m.now.Add(p.Gap))", "_ = p.Gap", "excluded probes go on without end"},
	{"outcome.go", "if m.ev.Outcome != OK { // slow", "if m.ev.Outcome == Failed { // slow", "a slow or UNKNOWN probe is a success"},
	{"outcome.go", "c.LostRow = 0\n", "_ = c\n", "lost probes far apart add up"},
	{"outcome.go", "if m.r.Ramp.steps() > 0 {", "if false {", "there is no ramp"},
	{"outcome.go", "why = ByRampFailed", "why = ByConsecutive", "a failed ramp is called something else"},

	{"signal.go", "!ev.Unbound && ev.Version < c.Version && c.held(ev.Token) == nil", "false", "late signals open"},
	{"signal.go", "if until <= c.Until {", "if until == c.Until {", "a later signal shortens the cooldown"},
	{"signal.go", "c.Seen, c.ProbeOK = 0, 0", "_ = c.Seen", "evidence outlives a new offence"},
	{"signal.go", "min(until, most), until > most", "until, until > most", "a server can park the circuit for ever"},
	{"signal.go", "min(until, most), until > most", "min(until, most), false", "a capped wait does not say so"},
	{"signal.go", "m.ev.Gives &^ Calls & p.Evidence", "m.ev.Gives &^ Calls", "any evidence will do"},
	{"signal.go", "m.ev.Gives &^ Calls & p.Evidence", "m.ev.Gives & p.Evidence", "a health check closes without a lease"},
	{"signal.go", "o.Until <= m.now {", "false {", "an override in the past is taken"},
	{"signal.go", "m.now >= c.Until && m.r.Probe.byCalls()", "m.r.Probe.byCalls()", "a tick ends the cooldown early"},
	{"signal.go", "!old.Window.sameShape(r.Window)", "false", "counts are kept in another window"},
	{"signal.go", "c.Until = sooner(c.Until, m.now.Add(r.waits(c.State)))", "_ = r", "a stored deadline is believed"},

	{"rule.go", "successes >= p.Successes &&", "successes > p.Successes &&", "one success too many"},
	{"rule.go", "(!p.All || seen&p.Evidence == p.Evidence)", "true", "one kind of evidence stands for all"},
	{"rule.go", "return d + c.Jitter.of(min(draw, One).of(d))", "return d - c.Jitter.of(min(draw, One).of(d))", "jitter shortens"},
	{"rule.go", "d = min(d, c.Max)\n", "d = max(d, 0)\n", "growth has no cap"},

	{"window.go", "if age*n < r.Length {", "if age < r.Length {", "old outcomes stay until the window is over"},
	{"window.go", "w.Sum.sub(w.Ring[w.Pos])", "_ = w.Sum", "what leaves the ring stays in the sum"},
	{"window.go", "w.Pos++\n", "w.Pos += 2\n", "every second bucket is skipped"},
	{"window.go", "for w.Sum.Total()+uint64(n) > full {", "for false {", "counters wrap"},
}

// killers are the tests that a mutant meets, quick ones first.
const killers = "^(TestLifeOfACircuit|TestLimits|TestEvidenceMatches|TestAmbiguity|TestFault[0-6][0-9]|TestProperty0|TestProperty1|TestProperty2[0-5]|TestHistories|TestWalk)"

// spared are too slow for every mutant and say nothing that the others do not.
const spared = "TestFault(13|14|10|15|28|29|31|32|35)"

// TestMutants builds the tests once with every seeded fault in it behind a
// switch, and runs them against one fault at a time. All must be noticed. The
// machine itself knows nothing of this: the switch is in overlaid copies of its
// files, where each fault is a second copy of its function.
func TestMutants(t *testing.T) {
	if testing.Short() || os.Getenv("FUSEBOX_MUTANT") != "" {
		t.Skip("not in the short run")
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("needs the go tool")
	}
	bin := buildMutants(t, t.TempDir())
	if out, dead := meet(bin, 0); dead {
		t.Fatalf("the machine without a fault does not pass:\n%s", out)
	}
	var mu sync.Mutex
	var wait sync.WaitGroup
	next, killed := 1, 0
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for {
				mu.Lock()
				n := next
				next++
				mu.Unlock()
				if n > len(mutants) {
					return
				}
				_, dead := meet(bin, n)
				mu.Lock()
				if dead {
					killed++
				} else {
					t.Errorf("mutant %d lives (%s): %s", n, mutants[n-1].file, mutants[n-1].what)
				}
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	t.Logf("MUTANTS %d of %d killed", killed, len(mutants))
	fmt.Printf("MUTANTS %d of %d killed\n", killed, len(mutants))
}

// meet runs the killers against one mutant and reports whether they noticed. It
// draws the same histories every time: a mutant that only a lucky one kills
// needs a test of its own.
func meet(bin string, n int) (out []byte, dead bool) {
	cmd := exec.Command(bin, "-test.run", killers, "-test.skip", spared, "-test.failfast", "-test.timeout", "60s",
		"-rapid.checks", "40", "-rapid.nofailfile", "-rapid.seed", "1", "-rapid.shrinktime", "1ms")
	cmd.Env = append(os.Environ(), "FUSEBOX_MUTANT="+strconv.Itoa(n), "FUSEBOX_WALK=400")
	out, err := cmd.CombinedOutput()
	return out, err != nil
}

// buildMutants compiles the package's tests over files in which every mutant
// can be switched on.
func buildMutants(t *testing.T, dir string) string {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	byFile := map[string][]int{}
	for i, m := range mutants {
		byFile[m.file] = append(byFile[m.file], i)
	}
	replace := map[string]string{}
	put := func(name, text string) {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(here, name)] = path
	}
	for file, which := range byFile {
		put(file, seed(t, file, which))
	}
	put("seeded.go", "package breaker\n\nimport (\n\t\"os\"\n\t\"strconv\"\n)\n\nvar seeded, _ = strconv.Atoi(os.Getenv(\"FUSEBOX_MUTANT\"))\n")
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	path, bin := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "mutants.test")
	if err := os.WriteFile(path, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "test", "-c", "-vet=off", "-overlay", path, "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("build the mutants: %v\n%s", err, out)
	}
	return bin
}

// seed gives each function that has mutants a switch at its beginning, and adds
// a copy of the function for each of them.
func seed(t *testing.T, file string, which []int) string {
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	src := string(b)
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, file, src, 0)
	if err != nil {
		t.Fatal(err)
	}
	at := func(p token.Pos) int { return set.Position(p).Offset }
	switches := map[*ast.FuncDecl]string{}
	copies := ""
	for _, i := range which {
		m := mutants[i]
		if n := strings.Count(src, m.from); n != 1 {
			t.Fatalf("mutant %d (%s): its text is %d times in %s", i+1, m.what, n, file)
		}
		pos := strings.Index(src, m.from)
		var in *ast.FuncDecl
		for _, d := range tree.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && at(f.Pos()) <= pos && pos < at(f.End()) {
				in = f
			}
		}
		if in == nil {
			t.Fatalf("mutant %d (%s) is in no function", i+1, m.what)
		}
		name := in.Name.Name + strconv.Itoa(i+1)
		start, end := at(in.Pos()), at(in.End())
		body := src[start:pos] + m.to + src[pos+len(m.from):end]
		rel := at(in.Name.Pos()) - start
		copies += "\n" + body[:rel] + name + body[rel+len(in.Name.Name):] + "\n"
		switches[in] += " if seeded == " + strconv.Itoa(i+1) + " { " + call(in, name) + " };"
	}
	for i := len(tree.Decls) - 1; i >= 0; i-- { // from the end, so that offsets stay right
		if f, ok := tree.Decls[i].(*ast.FuncDecl); ok && switches[f] != "" {
			p := at(f.Body.Lbrace) + 1
			src = src[:p] + switches[f] + src[p:]
		}
	}
	return src + copies
}

// call writes the call of a function's copy from inside the function.
func call(f *ast.FuncDecl, name string) string {
	var args []string
	for _, p := range f.Type.Params.List {
		for _, n := range p.Names {
			args = append(args, n.Name)
		}
	}
	c := name + "(" + strings.Join(args, ", ") + ")"
	if f.Recv != nil {
		c = f.Recv.List[0].Names[0].Name + "." + c
	}
	if f.Type.Results != nil {
		return "return " + c
	}
	return c + "; return"
}
