package main

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

func queueCommand() *cobra.Command {
	return group("queue", "See and settle work that waits", `Work that was answered "queue" may wait for its circuit, until it expires. A Go
program keeps it here (sdk.Client.Enqueue) and replays it (sdk.Client.Work), a
caller of the decision API with POST /v1/queue and /v1/queue/claim; a caller of
the proxy keeps it itself and asks again. Closing
a circuit replays nothing stale: permissions, budgets and circuits are checked
afresh. Payloads are not shown.`,
		queueListCommand("queue", "WAITING"), queueShowCommand("queue"), queueMoveCommand("queue", "retry"), queueMoveCommand("queue", "drop"))
}

func deadCommand() *cobra.Command {
	return group("dead", "See and settle dead letters", `Work that failed for good, and cases that a contract hands to a person, wait
here: retry it (through admission, like any other call), discard it, or
compensate it (what policy declares to take it back waits in the queue instead),
each with a reason.`,
		queueListCommand("dead", "DEAD"), queueShowCommand("dead"), queueMoveCommand("dead", "retry"), queueMoveCommand("dead", "discard"), queueMoveCommand("dead", "compensate"))
}

func queueListCommand(parent, state string) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List items, the most urgent first",
		Example: "  fusebox " + parent + " list\n  fusebox " + parent + " list --json",
	}
	addData(cmd)
	addServer(cmd)
	want := cmd.Flags().String("state", state, "WAITING, DONE, EXPIRED, DEAD, DROPPED or ALL")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		doc, err := listItems(cmd, *want)
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), queueDoc{1, append([]itemDoc{}, doc.Items...)})
		}
		if len(doc.Items) == 0 {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "no such items")
			return err
		}
		rows := make([][]string, 0, len(doc.Items))
		for _, it := range doc.Items {
			rows = append(rows, []string{it.ID, it.State, it.Operation, it.Dependency, strconv.FormatInt(it.Priority, 10),
				ago(time.Since(it.Created)), ago(time.Since(it.Expires)), strconv.Itoa(it.Attempts), dash(it.Reason)})
		}
		return writeTable(cmd.OutOrStdout(), []string{"item", "state", "operation", "waits for", "priority", "since", "expires", "tries", "why"}, rows)
	}
	return cmd
}

// listItems asks the server for items, or reads the store where none runs.
func listItems(cmd *cobra.Command, want string) (doc queueDoc, err error) {
	states, err := queueStates(want)
	if err != nil {
		return doc, usageError(cmd, err)
	}
	dir, srv, err := where(cmd)
	if err != nil {
		return doc, err
	}
	if srv != nil {
		return doc, srv.get(cmd.Context(), "/v1/queue?"+url.Values{"state": {want}}.Encode(), &doc)
	}
	doc.Items, err = itemsIn(cmd, dir, func(o operations) ([]itemDoc, error) {
		return items(cmd.Context(), o.store, states, mostIntents)
	})
	return doc, err
}

func queueShowCommand(parent string) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show ID",
		Short:   "Show one item with its attempts; its payload is not shown",
		Example: "  fusebox " + parent + " show ID --json",
		Args:    cobra.ExactArgs(1),
	}
	addData(cmd)
	addServer(cmd)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		doc, err := listItems(cmd, "ALL")
		if err != nil {
			return err
		}
		i := slices.IndexFunc(doc.Items, func(it itemDoc) bool { return it.ID == args[0] })
		if i < 0 {
			return fmt.Errorf("there is no item %s; fusebox %s list --state ALL shows those that are there", printable(args[0]), parent)
		}
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), doc.Items[i])
		}
		return showItem(cmd, doc.Items[i])
	}
	return cmd
}

func showItem(cmd *cobra.Command, it itemDoc) error {
	rows := [][]string{
		{"item", it.ID}, {"state", it.State}, {"why", dash(it.Reason)}, {"operation", it.Operation}, {"tenant", dash(it.Tenant)},
		{"request", it.RequestID}, {"waits for", dash(it.Dependency)}, {"priority", strconv.FormatInt(it.Priority, 10)},
		{"kept", it.Created.Format(time.RFC3339)}, {"expires", it.Expires.Format(time.RFC3339)}, {"worker", dash(it.Owner)},
	}
	for i, a := range it.History {
		rows = append(rows, []string{"attempt " + strconv.Itoa(i+1), a.At.Format(time.RFC3339) + " " + a.Outcome.String() + " " + a.Reason})
	}
	return writeTable(cmd.OutOrStdout(), nil, rows)
}

// itemsIn reads something of a data directory's state without an engine.
func itemsIn[T any](cmd *cobra.Command, dir string, read func(operations) (T, error)) (T, error) {
	var none T
	store, err := openStore(cmd, dir)
	if err != nil {
		return none, err
	}
	defer store.Close()
	return read(operations{store: store})
}

func queueMoveCommand(parent, action string) *cobra.Command {
	short := map[string]string{"retry": "Let an item wait its turn again; admission decides as for any call",
		"discard": "Drop an item for good", "drop": "Drop an item for good", "compensate": "Queue what takes a dead letter back, and drop it"}[action]
	cmd := &cobra.Command{
		Use:     action + " ID",
		Short:   short,
		Example: "  fusebox " + parent + " " + action + " ID --reason \"ticket 4711\"\n  fusebox " + parent + " " + action + " ID --reason \"ticket 4711\" --json",
		Args:    cobra.ExactArgs(1),
	}
	by := addChange(cmd)
	reason := cmd.Flags().String("reason", "", "`WHY`, in one line; it stands in the receipt")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		req := queueRequest{Action: action, Reason: *reason}
		if action == "drop" {
			req.Action = "discard"
		}
		var ignored any
		err := change(cmd, "/v1/queue/"+url.PathEscape(args[0]), req, &ignored, func(ctx context.Context, o operations) error { return o.move(ctx, *by, args[0], req) })
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), itemMovedDoc{1, args[0], action})
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", printable(args[0]), action)
		return err
	}
	return cmd
}

// An itemMovedDoc is the answer of the commands that move an item, with --json.
type itemMovedDoc struct {
	V      int    `json:"v"`
	ID     string `json:"id"`
	Action string `json:"action"` // retry, drop, discard, compensate
}
