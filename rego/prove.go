package rego

import (
	"cmp"
	"context"
	"time"
)

// prove is what a bundle has to pass beyond compiling, in bounded time.
func (l *loader) prove(ctx context.Context, f *Files, s *Snapshot) {
	o := &l.options
	tests := o.RunTests || o.RequireTests || o.MinCoverage > 0
	if !tests && !o.Differential {
		return
	}
	limited, stop := context.WithTimeout(ctx, o.proofTime())
	defer stop()
	if o.Differential {
		for _, ep := range Entrypoints {
			l.problems = append(l.problems, s.asker(ep).golden(limited)...)
		}
	}
	if tests {
		l.test(limited, f, s)
	}
	switch {
	case ctx.Err() != nil:
		l.problem("tests", "", 0, "stopped before the policy was tested: %v", ctx.Err())
	case limited.Err() != nil:
		l.problem("tests", "", 0, "the tests of the policy did not end within %s", o.proofTime())
	}
}

func (o *Options) proofTime() time.Duration { return cmp.Or(o.ProofTime, time.Minute) }
