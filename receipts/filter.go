package receipts

// A filter says which values surely do not occur in a block: a Bloom filter of
// 8,192 bits and four hashes. A block of 256 receipts has about 900 distinct
// values of the filtered fields, so one of forty questions is answered with a
// needless read.
const (
	filterSize   = 1024
	filterHashes = 4
)

type filter [filterSize]byte

// filtered are the fields a filter knows, each with its own tag, so that a
// tenant is not taken for a scope.
func filterTag(key []byte) byte {
	switch string(key) {
	case "breaker":
		return 'b'
	case "parent":
		return 'p'
	case "request_id":
		return 'r'
	case "run_id":
		return 'n'
	case "scope":
		return 's'
	case "tenant":
		return 't'
	case "trace_id":
		return 'x'
	}
	return 0
}

// filterHash is 64-bit FNV-1a over tag and the value's bytes as they are
// written, finished by a multiplication that spreads them over all bits.
func filterHash(tag byte, raw []byte) uint64 {
	h := uint64(14695981039346656037)
	h = (h ^ uint64(tag)) * 1099511628211
	for _, c := range raw {
		h = (h ^ uint64(c)) * 1099511628211
	}
	h ^= h >> 32
	return h * 0x9e3779b97f4a7c15
}

func (f *filter) add(tag byte, raw []byte) {
	for h, i := filterHash(tag, raw), 0; i < filterHashes; i++ {
		bit := h % (8 * filterSize)
		f[bit/8] |= 1 << (bit % 8)
		h = h>>13 | h<<51
	}
}

func (f *filter) has(tag byte, raw []byte) bool {
	for h, i := filterHash(tag, raw), 0; i < filterHashes; i++ {
		if bit := h % (8 * filterSize); f[bit/8]&(1<<(bit%8)) == 0 {
			return false
		}
		h = h>>13 | h<<51
	}
	return true
}

// addAll adds the filtered fields of one receipt.
func (f *filter) addAll(receipt []byte) error {
	return eachField(receipt, func(key, v []byte) error {
		if tag := filterTag(key); tag != 0 {
			f.add(tag, v)
		}
		return nil
	})
}

// wants are the questions a query has for filters.
type want struct {
	tag byte
	raw []byte
}

func (q *Query) wants() (list []want) {
	for _, f := range []struct {
		tag  byte
		text string
	}{{'b', q.Breaker}, {'p', q.Parent.String()}, {'r', q.RequestID}, {'n', q.RunID}, {'s', q.Scope}, {'t', q.Tenant}, {'x', q.TraceID}} {
		if f.text != "" {
			raw, _ := appendString(nil, f.text, maxFrame)
			list = append(list, want{f.tag, raw[:len(raw)-1]})
		}
	}
	return list
}

// mayHold reports whether all wanted values may occur.
func (f *filter) mayHold(list []want) bool {
	for _, w := range list {
		if !f.has(w.tag, w.raw) {
			return false
		}
	}
	return true
}
