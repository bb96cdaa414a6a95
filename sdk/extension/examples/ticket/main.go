// Command ticket is an approver: people approve a request by a file in a folder,
// which is kept under version control and reviewed. It answers at once; while
// there is no file the request waits for a person as it would without a plugin.
//
//	APPROVALS   the folder; REQUEST_ID.json is {"approve": true, "by": "ann", "ticket": "4711"}
package main

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"regexp"

	"github.com/fusebox-dev/fusebox/sdk/extension"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

var plain = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$`)

func main() {
	extension.ServeApprover(func(_ context.Context, q taxonomy.ApproveQuestion) (taxonomy.ApproveAnswer, error) {
		return ruling(os.Getenv("APPROVALS"), &q.Operation)
	})
}

func ruling(folder string, op *taxonomy.Operation) (a taxonomy.ApproveAnswer, err error) {
	if !plain.MatchString(op.RequestID) { // the caller chooses it, and it becomes the name of a file
		return a, nil
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return a, err
	}
	defer root.Close()
	b, err := root.ReadFile(op.RequestID + ".json")
	if errors.Is(err, fs.ErrNotExist) {
		return a, nil // pending
	} else if err != nil {
		return a, err
	}
	var file struct {
		Approve    *bool
		By, Ticket string
	}
	if err := json.Unmarshal(b, &file); err != nil {
		return a, err
	}
	if file.Approve == nil || file.By == "" || file.By == op.Agent || file.By == op.User {
		return a, nil // nobody said it, or somebody approves their own request
	}
	a.Ruling, a.Reason = taxonomy.RuleDeny, file.By+", ticket "+file.Ticket
	if *file.Approve {
		a.Ruling = taxonomy.RuleApprove
	}
	return a, nil
}
