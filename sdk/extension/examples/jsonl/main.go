// Command jsonl is a receipt sink: it appends every receipt to a file, one line
// each. A batch may come twice, after a restart or when an answer was late; the
// index in the log tells. What the sink missed is written down too.
//
//	JSONL_FILE   the file
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"github.com/fusebox-dev/fusebox/sdk/extension"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

func main() {
	s, err := openSink(os.Getenv("JSONL_FILE"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "open JSONL_FILE:", err)
		os.Exit(1)
	}
	extension.ServeReceipts(s.take)
}

type sink struct {
	mu   sync.Mutex
	file *os.File
	last map[string]int64 // by log: the index of its last receipt in the file
}

type line struct {
	Log     string          `json:"log"`
	Index   int64           `json:"index"`
	Missed  int64           `json:"missed,omitempty"`
	Receipt json.RawMessage `json:"receipt"`
}

func openSink(name string) (*sink, error) {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	s := &sink{file: f, last: map[string]int64{}}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var l line
		if json.Unmarshal(lines.Bytes(), &l) == nil { // a torn last line is told again
			s.last[l.Log] = l.Index
		}
	}
	return s, lines.Err()
}

func (s *sink) take(_ context.Context, batch taxonomy.ReceiptBatch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out bytes.Buffer
	last, known := s.last[batch.Log]
	missed := batch.Missed
	for _, e := range batch.Receipts {
		if known && e.Index <= last {
			continue
		}
		b, err := json.Marshal(line{batch.Log, e.Index, missed, json.RawMessage(e.Receipt)})
		if err != nil {
			return err
		}
		out.Write(append(b, '\n'))
		last, known, missed = e.Index, true, 0
	}
	if _, err := s.file.Write(out.Bytes()); err != nil {
		return err
	}
	if err := s.file.Sync(); err != nil { // taken is durable
		return err
	}
	s.last[batch.Log] = last
	return nil
}
