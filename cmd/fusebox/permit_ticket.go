package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A queue ticket proves that admission answered "queue" for exactly this
// operation. Its form is
//
//	q1.<end in Unix milliseconds>.<base64url of the scope>.<base64url of HMAC-SHA256>
//
// where the MAC covers the request id, the digest of the canonical operation
// document (its tenant too), the scope it waits for and the end. Using it twice
// queues nothing twice: an item is kept once under its request id.
func (t *permitTokens) ticket(requestID string, operation []byte, scope string, until time.Time) string {
	end := strconv.FormatInt(until.UnixMilli(), 10)
	at := base64.RawURLEncoding.EncodeToString([]byte(scope))
	return "q1." + end + "." + at + "." + base64.RawURLEncoding.EncodeToString(t.ticketMAC(requestID, operation, at, end))
}

func (t *permitTokens) ticketMAC(requestID string, operation []byte, at, end string) []byte {
	digest := sha256.Sum256(operation)
	h := hmac.New(sha256.New, t.key)
	// A request id is a caller's text without control characters, the rest
	// digits and base64: none can hold the separator.
	fmt.Fprintf(h, "fusebox.queue/v1\n%s\n%x\n%s\n%s", requestID, digest, at, end)
	return h.Sum(nil)
}

// checkTicket reads the scope and the end of a ticket for this operation.
func (t *permitTokens) checkTicket(ticket, requestID string, operation []byte, now time.Time) (scope string, until time.Time, err error) {
	parts := strings.Split(ticket, ".")
	if len(parts) != 4 || parts[0] != "q1" {
		return "", until, errTokenForged
	}
	got, err := base64.RawURLEncoding.Strict().DecodeString(parts[3])
	if err != nil || subtle.ConstantTimeCompare(got, t.ticketMAC(requestID, operation, parts[2], parts[1])) != 1 {
		return "", until, errTokenForged
	}
	ms, err := strconv.ParseInt(parts[1], 10, 64)
	text, serr := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil || serr != nil { // ours, by the MAC
		return "", until, errTokenForged
	}
	if until = time.UnixMilli(ms); !until.After(now) {
		return "", until, errTokenExpired
	}
	return string(text), until, nil
}
