package taxonomy

// An Observation is what came back from an attempt, or did not: raw, unjudged.
// Its document is "fusebox.observation/v1".
type Observation struct {
	Operation Operation `json:"operation"`
	Transport Transport `json:"transport"`
	Response  *Response `json:"response"` // nil when no response arrived
	Stream    Stream    `json:"stream"`
	History   []Call    `json:"history,omitempty"` // earlier calls of the run, oldest first
	Local     Raw       `json:"local,omitempty"`   // facts known here: a JSON object, or absent
	ElapsedMS int64     `json:"elapsed_ms"`
}

// Transport holds the facts the client's transport recorded.
type Transport struct {
	Dispatched Dispatched `json:"dispatched"`
	ErrorKind  string     `json:"error_kind,omitempty"` // "read_timeout", "dns", "reset", …; see ErrorKinds
	Error      string     `json:"error,omitempty"`      // the client's own words
}

// ErrorKinds are the transport error kinds that the Go transport records and
// the built-in table knows. Others are accepted and judged as "unknown".
var ErrorKinds = []string{"broken_pipe", "canceled", "connect_refused", "connect_timeout", "deadline", "dns", "eof",
	"h2_goaway", "h2_refused_stream", "h2_stream_error", "local", "local_limit", "pool_timeout", "protocol", "proxy",
	"read_timeout", "reset", "session", "tls", "unknown"}

// Response is an answer. Header names are lower case.
type Response struct {
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

// Stream says how far a streamed answer came. Started is true if and only if
// content bytes reached the caller.
type Stream struct {
	Started bool  `json:"started"`
	Bytes   int64 `json:"bytes"`
}

// Call is one earlier call of the same run.
type Call struct {
	Name       string  `json:"name"`
	ArgsHash   string  `json:"args_hash,omitempty"`
	Outcome    Outcome `json:"outcome"`
	Error      string  `json:"error,omitempty"`
	ResultHash string  `json:"result_hash,omitempty"`
	Declared   string  `json:"declared,omitempty"` // "poll" where the tool declares polling
}

// Raw is one JSON value kept as its bytes.
type Raw []byte

// MarshalJSON returns the bytes as they are, or null when there are none.
func (r Raw) MarshalJSON() ([]byte, error) {
	if len(r) == 0 {
		return []byte("null"), nil
	}
	return r, nil
}

// UnmarshalJSON keeps a copy of the bytes; null is absent.
func (r *Raw) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*r = nil
		return nil
	}
	*r = append((*r)[:0], b...)
	return nil
}
