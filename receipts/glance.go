package receipts

// A look is what verification and indexes need of a receipt. Taking it costs a
// fraction of decoding all of it.
type look struct {
	id, parent   ID
	seq          int64
	timeUS       int64
	monoUS       int64
	kind         Kind
	attempted    bool
	prev, state  State
	stateEpoch   int64
	stateVersion int64
	breaker      []byte // slices of the receipt's bytes
	scope        []byte
	cohort       []byte
	object       []byte
	log          []byte
	effect       []byte
	requestID    []byte
	tenant       []byte
	flags        []byte
	gap          *GapNote
	boot         *BootNote
	key          *KeyNote
}

// glance reads one receipt's bytes with the same strictness as Decode where it
// looks, and checks the spelling of everything else.
func glance(b []byte) (look, error) {
	var g look
	var last []byte
	d := decoder{scanner{b: b}}
	for more := d.begin('{', '}'); more; more = d.next('}') {
		key := d.key(&last)
		if d.err != nil {
			break
		}
		switch string(key) {
		case "boot":
			g.boot = d.boot()
		case "breaker":
			g.breaker, _ = d.raw()
		case "cohort":
			g.cohort, _ = d.raw()
		case "effect":
			g.effect, _ = d.raw()
		case "flags":
			start := d.i
			d.skip(0)
			g.flags = b[start:d.i]
		case "gap":
			g.gap = d.gap()
		case "id":
			d.enum(&g.id)
		case "key":
			g.key = d.keyNote()
		case "kind":
			d.enum(&g.kind)
		case "log":
			g.log, _ = d.raw()
		case "mono_us":
			g.monoUS = d.int()
		case "object":
			g.object, _ = d.raw()
		case "parent":
			d.enum(&g.parent)
		case "prev_state":
			d.enum(&g.prev)
		case "remote_call_attempted":
			g.attempted = d.bool()
		case "request_id":
			g.requestID, _ = d.raw()
		case "scope":
			g.scope, _ = d.raw()
		case "seq":
			g.seq = d.int()
		case "state":
			d.enum(&g.state)
		case "state_epoch":
			g.stateEpoch = d.int()
		case "state_version":
			g.stateVersion = d.int()
		case "tenant":
			g.tenant, _ = d.raw()
		case "time_us":
			g.timeUS = d.int()
		default:
			d.skip(0)
		}
	}
	return g, d.end()
}
