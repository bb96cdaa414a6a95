package receipts

import (
	"errors"
	"fmt"
	"time"
)

// Options say how a log is kept. Zero fields take the defaults named here.
type Options struct {
	// Origin names the log in every receipt and checkpoint, like
	// "example.com/prod/worker-7"; it is fixed when the log is made. Empty
	// makes one up. OpenSlot appends "/<slot>".
	Origin string
	// KeyFile is the file of the signing key, outside the log folder, mode
	// 0600; it is made where it is missing. OpenSlot inserts "-<slot>" before
	// its extension; there the default is keys/receipts.key beside the root.
	KeyFile string
	// TrustedFile remembers the newest checkpoint outside the log folder, so
	// that a log cut back or rewritten later is found out. OpenSlot inserts
	// "-<slot>"; there the default is trusted/receipts.checkpoint beside the
	// root. Open remembers nothing when it is empty.
	TrustedFile string
	// InputKeys is the folder of tenant keys, outside the log folder: with it,
	// Log.Inputs seals what replay needs. OpenSlot appends "-<slot>"; there the
	// default is keys/inputs beside the root.
	InputKeys string
	// Incarnation names the process start; empty makes one up.
	Incarnation string
	// Engine is written into boot and shutdown receipts.
	Engine string

	Depth            int           // receipts the ring holds; 2048
	MaxWait          time.Duration // how long a submit waits while the disk refuses; 5 s
	FlushEvery       time.Duration // how long a receipt may lie in the ring; 10 ms
	SyncEvery        time.Duration // how long a written receipt may wait for the disk; 100 ms
	CheckpointEvery  int           // a new head after so many receipts; 256
	CheckpointWithin time.Duration // … or after this time, when there is something new; 1 s
	SegmentBytes     int64         // a write-ahead file is closed at this size; 64 MiB
	SegmentAge       time.Duration // … or at this age; 1 h

	Sampling    Sampling      // opt-in; every receipt is written without it
	RollupEvery time.Duration // how often counts of sampled-out receipts are written; 10 s
	KeyAge      time.Duration // a new key epoch when the key is this old; 0 is only by RotateKey

	// Now is the clock of time_us and mono_us; time.Now.
	Now func() time.Time
	// OnCheckpoint is told every new head, on the writer's goroutine: it must
	// not block and not call the log.
	OnCheckpoint func(Checkpoint)
	// OnError is told what the writer could not do, on its goroutine, under
	// the same rule.
	OnError func(error)
}

func (o *Options) fill() error {
	def(&o.Depth, 2048)
	def(&o.MaxWait, 5*time.Second)
	def(&o.FlushEvery, 10*time.Millisecond)
	def(&o.SyncEvery, 100*time.Millisecond)
	def(&o.CheckpointEvery, 256)
	def(&o.CheckpointWithin, time.Second)
	def(&o.SegmentBytes, 64<<20)
	def(&o.SegmentAge, time.Hour)
	def(&o.RollupEvery, 10*time.Second)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Incarnation == "" {
		o.Incarnation = NewID().String()
	}
	if o.OnCheckpoint == nil {
		o.OnCheckpoint = func(Checkpoint) {}
	}
	if o.OnError == nil {
		o.OnError = func(error) {}
	}
	switch {
	case o.KeyFile == "":
		return errors.New("receipts: KeyFile is missing: name a file outside the log folder")
	case o.Depth < 8:
		return fmt.Errorf("receipts: Depth must be at least 8, got %d", o.Depth)
	case o.MaxWait < 0 || o.FlushEvery < 0 || o.SyncEvery < 0 || o.CheckpointWithin < 0 || o.SegmentAge < 0 || o.KeyAge < 0 || o.RollupEvery < 0 || o.Sampling.OneIn < 0:
		return errors.New("receipts: durations must be positive")
	case o.CheckpointEvery < 1 || o.SegmentBytes < 1:
		return errors.New("receipts: CheckpointEvery and SegmentBytes must be positive")
	}
	return nil
}

func def[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// Stats counts what happened to the receipts of this process. For every class
// Submitted = Written + Dropped + Sampled + what still waits in memory.
type Stats struct {
	Submitted, Written, Dropped [3]int64 // by Delivery: took a number, lie in the log file, are covered by a gap receipt
	Sampled                     int64    // of class sample: left out by Options.Sampling, counted in rollup receipts
	Own                         int64    // boot, gap, rollup, key and shutdown receipts of the log itself
	Size                        int64    // receipts in the log, this and earlier processes
	Synced                      int64    // … of them durable
	Sealed                      int64    // … of them under a checkpoint
	Waiting                     int      // in the ring
	UnsyncedBytes               int64
	LastCheckpoint              time.Time
	Degraded                    error // why the log cannot write now; nil when it can
}
