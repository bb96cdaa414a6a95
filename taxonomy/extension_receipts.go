package taxonomy

import "github.com/fusebox-dev/fusebox/taxonomy/jsonscan"

// A ReceiptBatch is what a receipt sink is told: receipts of one log, in order.
type ReceiptBatch struct {
	Log      string // origin of the log
	Missed   int64  // receipts before these that the sink was not told, because it was too slow
	Receipts []ReceiptEntry
}

// A ReceiptEntry is one receipt in its canonical bytes, which are the leaf of
// the log's tree, and its place.
type ReceiptEntry struct {
	Index   int64
	Receipt Raw
}

var batchTable lazy[ReceiptBatch]

func batchFields() fields[ReceiptBatch] {
	return batchTable.get(func() fields[ReceiptBatch] {
		return fields[ReceiptBatch]{
			text("log", "origin of the log", func(b *ReceiptBatch) *string { return &b.Log }),
			whole("missed", "receipts before these that the sink was not told, because it was too slow", func(b *ReceiptBatch) *int64 { return &b.Missed }),
			list("receipts", "in the order of the log", entryFields, func(b *ReceiptBatch) *[]ReceiptEntry { return &b.Receipts }),
			schemaField[ReceiptBatch](ReceiptsSchema),
		}
	})
}

var entryTable lazy[ReceiptEntry]

func entryFields() fields[ReceiptEntry] {
	return entryTable.get(func() fields[ReceiptEntry] {
		return fields[ReceiptEntry]{
			whole("index", "its place in the log", func(e *ReceiptEntry) *int64 { return &e.Index }),
			field[ReceiptEntry]{"receipt", "the receipt", shape{kind: "object", open: true},
				func(r *reader, e *ReceiptEntry) {
					if r.is(jsonscan.Object, "an object") {
						e.Receipt = Raw(r.Raw())
					}
				},
				func(b []byte, e *ReceiptEntry) []byte { return append(b, e.Receipt...) }},
		}
	})
}

// AppendReceiptBatch appends the fusebox.receipts/v1 document.
func AppendReceiptBatch(b []byte, batch *ReceiptBatch) []byte { return batchFields().write(b, batch) }

// ParseReceiptBatch reads it.
func ParseReceiptBatch(b []byte) (batch ReceiptBatch, err error) {
	r := newReader("receipts", string(b), maxDeep)
	batchFields().read(&r, &batch)
	return batch, r.finish()
}
