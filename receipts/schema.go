package receipts

import _ "embed"

// Schema is the JSON Schema (draft 2020-12) of receipts of version 1. Readers
// must accept fields it does not name: newer writers may add optional ones.
//
//go:embed schema/receipt.v1.json
var Schema []byte
