package httpguard

import "bytes"

// keep holds what classification needs of an answer within a bound: its
// beginning and its end. Errors stand at either, usage at the end; what lies
// between is content, which nobody here wants.
type keep struct {
	head, tail []byte
	most       int // bytes of the beginning, and of the end
	cut        bool
}

// add takes the next part. In a stream the parts are whole events, so that a
// cut falls between two.
func (k *keep) add(b []byte) {
	if k.tail == nil && len(k.head)+len(b) <= k.most {
		k.head = append(k.head, b...)
		return
	}
	if k.tail == nil {
		k.tail = make([]byte, 0, 2*k.most)
	}
	k.tail = append(k.tail, b...)
	if len(k.tail) > 2*k.most {
		from := len(k.tail) - k.most
		if n := bytes.Index(k.tail[from:], []byte("\n\n")); n >= 0 {
			from += n + 2
		}
		k.cut = true
		k.tail = k.tail[:copy(k.tail, k.tail[from:])]
	}
}

// text is what was kept.
func (k *keep) text() string { return string(k.head) + string(k.tail) }
