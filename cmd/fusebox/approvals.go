package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/taxonomy"
)

func approvalsCommand() *cobra.Command {
	return group("approvals", "See, give and refuse approvals", `An approval lets something go that policy wants a person's word for: an action
class ("refund"), one action ("mail.send"), or one request by its id. It says
who and why, and ends by itself. Nobody approves what they ask for themselves.
A denial is a person's no for as long: the latest word counts.`,
		approvalsListCommand(), approvalsGrantCommand(), approvalsDenyCommand())
}

func approvalsListCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List approvals, newest first", Example: "  fusebox approvals list"}
	addData(cmd)
	addServer(cmd)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, srv, err := where(cmd)
		if err != nil {
			return err
		}
		var doc approvalsDoc
		if srv != nil {
			err = srv.get(cmd.Context(), "/v1/approvals", &doc)
		} else {
			doc.Approvals, err = itemsIn(cmd, dir, func(o operations) ([]taxonomy.Approval, error) {
				return o.store.Approvals(cmd.Context(), mostIntents)
			})
		}
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), approvalsDoc{1, append([]taxonomy.Approval{}, doc.Approvals...)})
		}
		if len(doc.Approvals) == 0 {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "no approvals")
			return err
		}
		rows := make([][]string, 0, len(doc.Approvals))
		for _, a := range doc.Approvals {
			once := "lasting"
			switch {
			case a.Denies:
				once = "denied"
			case a.SingleUse && a.UsedBy != "":
				once = "used"
			case a.SingleUse:
				once = "once"
			}
			rows = append(rows, []string{a.ID, a.Scope, dash(a.Tenant), a.By, once, ago(time.Since(a.Until)), dash(a.Reason)})
		}
		return writeTable(cmd.OutOrStdout(), []string{"approval", "allows", "tenant", "by", "use", "ends", "why"}, rows)
	}
	return cmd
}

func approvalsGrantCommand() *cobra.Command {
	var req approvalRequest
	cmd := &cobra.Command{
		Use:   "grant SCOPE",
		Short: "Allow an action class, an action or one request, for a while",
		Example: `  fusebox approvals grant refund --tenant acme --for 1h --reason "ticket 4711"
  fusebox approvals grant REQUEST-ID --tenant acme --for 10m --once --reason "checked with the bank"`,
	}
	cmd.Flags().BoolVar(&req.SingleUse, "once", false, "it is used up by the first call")
	return approvalCommand(cmd, &req)
}

func approvalsDenyCommand() *cobra.Command {
	req := approvalRequest{Denies: true}
	return approvalCommand(&cobra.Command{
		Use:   "deny SCOPE",
		Short: "Refuse what asks for an approval, for a while",
		Long: `Deny answers a request for approval with a person's no: what asks for an approval
within the scope is refused with your reason until the denial ends. It takes
approvals of the same scope back that were given before. What policy allows
without asking is not touched; force a circuit open to stop that.`,
		Example: `  fusebox approvals deny REQUEST-ID --tenant acme --for 24h --reason "amount is wrong"`,
	}, &req)
}

// approvalCommand completes a command that says yes or no.
func approvalCommand(cmd *cobra.Command, req *approvalRequest) *cobra.Command {
	cmd.Args = cobra.ExactArgs(1)
	by := addChange(cmd)
	cmd.Flags().StringVar(&req.Tenant, "tenant", "", "for this `TENANT`")
	cmd.Flags().StringVar(&req.For, "for", "", "`HOW LONG`, such as 1h; at most 720h")
	cmd.Flags().StringVar(&req.Reason, "reason", "", "`WHY`, in one line; it stands with the approval")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		req.Scope = args[0]
		var a taxonomy.Approval
		err := change(cmd, "/v1/approvals", req, &a, func(ctx context.Context, o operations) (err error) {
			a, err = o.approve(ctx, *by, *req)
			return err
		})
		if err != nil {
			return err
		}
		if *asJSON {
			return writeJSON(cmd.OutOrStdout(), a)
		}
		word := "approval"
		if a.Denies {
			word = "denial"
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), word+" %s of %s until %s\n", a.ID, printable(a.Scope), a.Until.Format(time.RFC3339))
		return err
	}
	return cmd
}
