package receipts_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/fusebox-dev/fusebox/receipts"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

func Example() {
	data, _ := os.MkdirTemp("", "fusebox")
	defer os.RemoveAll(data)
	ctx := context.Background()

	l, slot, _, err := receipts.OpenSlot(ctx, filepath.Join(data, "receipts"), receipts.Options{Origin: "example.com/prod"})
	if err != nil {
		log.Fatal(err)
	}
	ref, err := l.Commit(ctx, &receipts.Receipt{
		Kind: receipts.KindIntent, RequestID: "run-42-step-7", Tenant: "t_9c41",
		Operation: "crm.update_contact", Effect: receipts.Some(taxonomy.NonRepeatable),
		Decision: receipts.Some(taxonomy.DecideAllow),
	})
	if err != nil {
		log.Fatal(err) // not durable: do not dispatch
	}
	if err := l.Close(ctx); err != nil {
		log.Fatal(err)
	}

	verdicts, err := receipts.Verify(ctx, filepath.Join(data, "receipts"), receipts.VerifyOptions{
		Trusted: []string{filepath.Join(data, "trusted")},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("slot", slot, "index", ref.Index, "exit", verdicts.Exit)
	// Output: slot 0 index 1 exit 0
}

func ExampleLog_Begin() {
	data, _ := os.MkdirTemp("", "fusebox")
	defer os.RemoveAll(data)
	ctx := context.Background()
	l, err := receipts.Open(ctx, filepath.Join(data, "log"), receipts.Options{KeyFile: filepath.Join(data, "key")})
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close(ctx)

	intent := &receipts.Receipt{ID: receipts.NewID(), Kind: receipts.KindIntent}
	pending, err := l.Begin(ctx, intent)
	if err != nil {
		log.Fatal(err)
	}
	// The state transaction runs here, beside the receipt, and may name intent.ID.
	ref, err := pending.Wait(ctx)
	fmt.Println(ref.ID == intent.ID, ref.Index, err)
	// Output: true 1 <nil>
}

func ExampleCheckProof() {
	data, _ := os.MkdirTemp("", "fusebox")
	defer os.RemoveAll(data)
	ctx := context.Background()
	dir := filepath.Join(data, "log")
	l, err := receipts.Open(ctx, dir, receipts.Options{Origin: "example.com/prod/0", KeyFile: filepath.Join(data, "key")})
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close(ctx)
	ref, _ := l.Submit(&receipts.Receipt{Kind: receipts.KindAdmission, RequestID: "run-42-step-8"})

	proof, err := l.Prove(ctx, ref.ID)
	if err != nil {
		log.Fatal(err)
	}
	text, _ := proof.MarshalText() // goes to the auditor, who has only the key

	keys, err := receipts.ReadKeys(filepath.Join(dir, "keys", "0001.vkey"))
	if err != nil {
		log.Fatal(err)
	}
	r, p, err := receipts.CheckProof(text, nil, keys)
	fmt.Println(r.RequestID, "is receipt", p.Index, "of", p.Checkpoint.Origin, err)
	// Output: run-42-step-8 is receipt 1 of example.com/prod/0 <nil>
}

func ExampleFingerprinter() {
	secret := []byte("32 bytes from a file or key store")
	f, err := receipts.NewFingerprinter(secret, 0)
	if err != nil {
		log.Fatal(err)
	}
	at := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	args := []byte(`{"amount":100,"to":"ann@example.com"}`)

	a := f.Sum("acme", "args", args, at)
	b := f.Sum("other", "args", args, at)
	fmt.Println(len(a), a == b, f.Match(a, "acme", "args", args))
	// Output: 37 false true
}

func ExampleReader_All() {
	data, _ := os.MkdirTemp("", "fusebox")
	defer os.RemoveAll(data)
	ctx := context.Background()
	dir := filepath.Join(data, "log")
	l, err := receipts.Open(ctx, dir, receipts.Options{KeyFile: filepath.Join(data, "key")})
	if err != nil {
		log.Fatal(err)
	}
	for i := range 3 {
		l.Submit(&receipts.Receipt{Kind: receipts.KindAdmission, Attempt: int64(i + 1), RequestID: "run-42-step-9"})
	}
	l.Close(ctx)

	logs, err := receipts.OpenReaders(dir)
	if err != nil {
		log.Fatal(err)
	}
	for e, err := range receipts.All(logs, receipts.Query{RequestID: "run-42-step-9", Newest: true, Limit: 2}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(e.Index, e.Receipt.Kind, e.Receipt.Attempt)
	}
	// Output:
	// 3 admission 3
	// 2 admission 2
}
