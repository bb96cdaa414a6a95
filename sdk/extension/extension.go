// Package extension is for authors of plugins: extensions of fusebox that run in
// a process of their own (SPEC R-OPS-7). One function serves each kind; what it
// is given and answers are the same documents that WebAssembly modules get, read
// and written here.
//
//	func main() {
//		extension.ServeReconciler(func(ctx context.Context, q taxonomy.ReconcileQuestion) (taxonomy.Found, error) {
//			…
//		})
//	}
//
// The process ends when fusebox closes it, or is gone. See plugins/README.md.
package extension

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fusebox-dev/fusebox/plugins"
	"github.com/fusebox-dev/fusebox/plugins/wire"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

// A Classifier says what an observation means; nil is no opinion. builtin is
// what the built-in table says of it.
type Classifier func(ctx context.Context, obs taxonomy.Observation, builtin taxonomy.Verdict) (*taxonomy.Verdict, error)

// A Reconciler looks up whether a write was applied. The careful answer is the
// zero value, still unknown; an error means the same.
type Reconciler func(ctx context.Context, q taxonomy.ReconcileQuestion) (taxonomy.Found, error)

// An Approver rules on one request. The careful answer is the zero value,
// pending; an error means the same.
type Approver func(ctx context.Context, q taxonomy.ApproveQuestion) (taxonomy.ApproveAnswer, error)

// An Evaluator says whether a result is good enough; nil is no opinion.
type Evaluator func(ctx context.Context, obs taxonomy.Observation) (*taxonomy.EvaluateAnswer, error)

// A Sink takes receipts. An error has them sent again.
type Sink func(ctx context.Context, batch taxonomy.ReceiptBatch) error

// A Handler answers one document with another; empty is no opinion. [Serve]
// takes one; tests can call it without a process.
type Handler func(ctx context.Context, document []byte) (answer []byte, err error)

// ServeClassifier serves until fusebox ends the process. It does not return.
func ServeClassifier(f Classifier) { Serve(plugins.Classifier, f.Handler()) }

// ServeReconciler serves until fusebox ends the process. It does not return.
func ServeReconciler(f Reconciler) { Serve(plugins.Reconciler, f.Handler()) }

// ServeApprover serves until fusebox ends the process. It does not return.
func ServeApprover(f Approver) { Serve(plugins.Approver, f.Handler()) }

// ServeEvaluator serves until fusebox ends the process. It does not return.
func ServeEvaluator(f Evaluator) { Serve(plugins.Evaluator, f.Handler()) }

// ServeReceipts serves until fusebox ends the process. It does not return.
func ServeReceipts(f Sink) { Serve(plugins.Receipts, f.Handler()) }

// Handler reads and writes the documents of a classifier.
func (f Classifier) Handler() Handler {
	return func(ctx context.Context, document []byte) ([]byte, error) {
		obs, builtin, err := taxonomy.ParseClassifyInput(document)
		if err != nil {
			return nil, err
		}
		v, err := f(ctx, obs, builtin)
		if v == nil || err != nil {
			return nil, err
		}
		return taxonomy.AppendClassifyAnswer(nil, v), nil
	}
}

// Handler reads and writes the documents of a reconciler.
func (f Reconciler) Handler() Handler {
	return func(ctx context.Context, document []byte) ([]byte, error) {
		q, err := taxonomy.ParseReconcileQuestion(document)
		if err != nil {
			return nil, err
		}
		found, err := f(ctx, q)
		if err != nil {
			return nil, err
		}
		return taxonomy.AppendReconcileAnswer(nil, found), nil
	}
}

// Handler reads and writes the documents of an approver.
func (f Approver) Handler() Handler {
	return func(ctx context.Context, document []byte) ([]byte, error) {
		q, err := taxonomy.ParseApproveQuestion(document)
		if err != nil {
			return nil, err
		}
		a, err := f(ctx, q)
		if err != nil {
			return nil, err
		}
		return taxonomy.AppendApproveAnswer(nil, &a), nil
	}
}

// Handler reads and writes the documents of an evaluator.
func (f Evaluator) Handler() Handler {
	return func(ctx context.Context, document []byte) ([]byte, error) {
		obs, err := taxonomy.ParseEvaluateQuestion(document)
		if err != nil {
			return nil, err
		}
		a, err := f(ctx, obs)
		if a == nil || err != nil {
			return nil, err
		}
		return taxonomy.AppendEvaluateAnswer(nil, a), nil
	}
}

// Handler reads the documents of a receipt sink.
func (f Sink) Handler() Handler {
	return func(ctx context.Context, document []byte) ([]byte, error) {
		batch, err := taxonomy.ParseReceiptBatch(document)
		if err != nil {
			return nil, err
		}
		return nil, f(ctx, batch)
	}
}

// Serve answers questions of one kind until fusebox ends the process, or is
// gone: our standard input is a pipe that ends with it. Serve does not return.
func Serve(kind string, h Handler) {
	if os.Getenv(plugins.Handshake.MagicCookieKey) != plugins.Handshake.MagicCookieValue {
		fmt.Fprintf(os.Stderr, "This is a %s plugin of fusebox, which starts it by itself: declare it in policy.toml and fusebox.toml.\n", kind)
		os.Exit(2)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // nothing is ever written to it
		os.Exit(0)
	}()
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: plugins.Handshake,
		Plugins:         plugins.Set(&server{kind: kind, handle: h}),
		GRPCServer:      func(o []grpc.ServerOption) *grpc.Server { return grpc.NewServer(o...) },
		Logger:          hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: os.Stderr}),
	})
	os.Exit(0)
}

type server struct {
	wire.UnimplementedExtensionServer
	kind   string
	handle Handler
}

// Describe says what this extension is.
func (s *server) Describe(context.Context, *wire.DescribeRequest) (*wire.Description, error) {
	return &wire.Description{Kind: s.kind, Version: plugins.DocumentVersion}, nil
}

// Ask answers one question. A panic costs this call, not the others that are out.
func (s *server) Ask(ctx context.Context, q *wire.Question) (_ *wire.Answer, err error) {
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(os.Stderr, "panic: %v\n%s", p, debug.Stack())
			err = status.Error(codes.Internal, "the extension panicked")
		}
	}()
	answer, err := s.handle(ctx, q.GetDocument())
	if err != nil {
		return nil, err
	}
	return &wire.Answer{Document: answer}, nil
}
