package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/policies"
	"github.com/fusebox-dev/fusebox/sdk"
	"github.com/fusebox-dev/fusebox/taxonomy"
)

func rolloutCommand() *cobra.Command {
	return group("rollout", "Bring a new policy into force in stages", `A rollout tries a candidate beside the version in force before it binds anybody:

  observe   the version in force decides; the candidate is asked the same, and
            the report says what it would have stopped and how those calls ended
  shadow    the same, and both versions' figures are compared by the gates
  canary    the candidate decides for a share of the tenants (or runs), always
            the same ones, with circuits of its own
  enforce   it decides for all

A person takes each step, says why, and leaves a receipt. By itself a rollout only
ever goes back: when a gate breaks, when the candidate fails to decide, or at the
deadline. It comes into force only when the total risk falls: failures that users
see, writes that may have happened twice, fallbacks that lose something, people
who had to step in, and what had to be corrected downstream. More availability
alone is not enough. Denials and the rule for UNKNOWN writes hold in every stage.

Gates, share, unit, times and deadline stand in [rollout] of policy.toml, the
candidate's and that of the version in force; the stricter of both counts.
All commands work on a running server (--server) and on a data directory.`,
		rolloutStatusCommand(), rolloutStartCommand(),
		rolloutStepCommand("advance", "Take the next step, or enlarge the canary with --percent", `The next stage after canary is enforce, and it is refused unless the verdict of
fusebox rollout status is promote.`),
		rolloutStepCommand("hold", "Stay in this stage until somebody advances", `A rollout that was started with --auto stops going on by itself. Gates and the
deadline still take it back.`),
		rolloutStepCommand("rollback", "Take the candidate back; the version before it decides for all", `It works after a promotion too, while the configuration still names the version
that was in force before.`))
}

func rolloutStartCommand() *cobra.Command {
	var req sdk.StartRequest
	stage := ""
	cmd := &cobra.Command{
		Use:   "start CANDIDATE",
		Short: "Put a candidate on trial",
		Long: `CANDIDATE is a policy folder or an archive. A copy of it is kept, so that what is
on trial does not change when the folder does. Where policies.keys are configured
it must be signed.`,
		Example: `  fusebox rollout start ./policies-next --reason "opens later, ticket 4711"
  fusebox rollout start next.tar.gz --stage canary --percent 5 --reason "ticket 4711"`,
		Args: cobra.ExactArgs(1),
	}
	by := addChange(cmd)
	cmd.Flags().StringVar(&req.Why, "reason", "", "`WHY`, in one line; it stands in the receipt")
	cmd.Flags().StringVar(&stage, "stage", "observe", "begin in this `STAGE`: observe, shadow or canary")
	cmd.Flags().Float64Var(&req.Percent, "percent", 0, "the canary's `SHARE` of the units (default: rollout.canary_percent of the candidate)")
	cmd.Flags().BoolVar(&req.Auto, "auto", false, "go on by itself when the verdict is promote")
	cmd.Flags().BoolVar(&req.AllowLooser, "allow-looser", false, "authority may grant more than before")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := req.Stage.UnmarshalText([]byte(stage)); err != nil {
			return usageError(cmd, fmt.Errorf("--stage %w", err))
		}
		b, err := bundleAt(args[0], policies.Options{})
		if err != nil {
			return withStatus(exitSetup, err)
		}
		req.Source = args[0]
		if req.Archive, err = sdk.Archived(b, args[0]); err != nil {
			return withStatus(exitSetup, err)
		}
		return changeRollout(cmd, "start", req, *asJSON, func(ctx context.Context, o operations) (sdk.RolloutStatus, error) {
			req.By = *by
			return o.startRollout(ctx, req)
		})
	}
	return cmd
}

// rolloutStepCommand is one of the commands that move a rollout.
func rolloutStepCommand(use, short, long string) *cobra.Command {
	var req sdk.StepRequest
	cmd := &cobra.Command{Use: use, Short: short, Long: short + ".\n\n" + long,
		Example: "  fusebox rollout " + use + " --reason \"ticket 4711\""}
	by := addChange(cmd)
	cmd.Flags().StringVar(&req.Why, "reason", "", "`WHY`, in one line; it stands in the receipt")
	if use == "advance" {
		cmd.Flags().Float64Var(&req.Percent, "percent", 0, "the canary's `SHARE` of the units; in canary it must be larger than before")
		cmd.Example += "\n  fusebox rollout advance --percent 25 --reason \"calm for a day\""
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return changeRollout(cmd, use, req, *asJSON, func(ctx context.Context, o operations) (sdk.RolloutStatus, error) {
			req.By = *by
			return o.stepRollout(ctx, use, req)
		})
	}
	return cmd
}

// changeRollout takes a step and prints what then holds.
func changeRollout(cmd *cobra.Command, step string, body any, asJSON bool, local func(context.Context, operations) (sdk.RolloutStatus, error)) error {
	var after sdk.RolloutStatus
	err := change(cmd, "/v1/rollout/"+step, body, &after, func(ctx context.Context, o operations) (err error) {
		after, err = local(ctx, o)
		return err
	})
	if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(cmd.OutOrStdout(), after)
	}
	return writeRollout(cmd.OutOrStdout(), &after)
}

func rolloutStatusCommand() *cobra.Command {
	check := false
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show where a rollout stands, and its report",
		Long: `Status prints the stage, the figures of both arms, the gates, the verdict with its
reasons, and the review: which circuits would have opened, whether the calls that
they would have stopped failed, whether their scope was that of the fault, and
whether the fallback would have helped. Where nothing is on trial and the version
in force only observes, the review is of that one.

With --check the exit status tells the verdict: 0 promote, or promoted; 1 rolled
back, or about to be; 3 hold, or nothing is on trial.`,
		Example: `  fusebox rollout status
  fusebox rollout status --check && fusebox rollout advance --reason "figures hold"`,
	}
	addData(cmd)
	addServer(cmd)
	cmd.Flags().BoolVar(&check, "check", false, "let the exit status tell the verdict")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := rolloutOf(cmd)
		if err != nil {
			return err
		}
		if *asJSON {
			err = writeJSON(cmd.OutOrStdout(), s)
		} else {
			err = writeRollout(cmd.OutOrStdout(), &s)
		}
		if err == nil && check {
			err = withStatus(verdictStatus(&s), errSilent)
			if statusOf(err) == exitOK {
				return nil
			}
		}
		return err
	}
	return cmd
}

// rolloutOf asks the server, or reads the store of a directory without one.
func rolloutOf(cmd *cobra.Command) (s sdk.RolloutStatus, err error) {
	dir, srv, err := where(cmd)
	if err != nil {
		return s, err
	}
	if srv != nil {
		return s, srv.get(cmd.Context(), "/v1/rollout", &s)
	}
	store, err := openStore(cmd, dir)
	if err != nil {
		return s, err
	}
	s, err = sdk.ReadRollout(cmd.Context(), store)
	return s, errors.Join(err, store.Close())
}

func verdictStatus(s *sdk.RolloutStatus) int {
	switch r := s.Rollout; {
	case r == nil:
		return exitUnproven
	case r.State == "promoted":
		return exitOK
	case r.State == "rolled_back":
		return exitFailed
	}
	switch s.Verdict.Judgement.String() {
	case "promote":
		return exitOK
	case "roll_back":
		return exitFailed
	}
	return exitUnproven
}

// startRollout and stepRollout are what the commands and the operator plane do.
func (o operations) startRollout(ctx context.Context, req sdk.StartRequest) (sdk.RolloutStatus, error) {
	if err := checkWho(req.By, req.Why); err != nil {
		return sdk.RolloutStatus{}, err
	}
	if req.Percent < 0 || req.Percent > 100 || req.Stage == taxonomy.ModeEnforce {
		return sdk.RolloutStatus{}, &problem{Code: "bad_request", Field: "percent", Message: "must be between 0 and 100, and the stage observe, shadow or canary"}
	}
	_, err := o.client.StartRollout(ctx, req)
	return o.afterStep(ctx, err)
}

func (o operations) stepRollout(ctx context.Context, step string, req sdk.StepRequest) (sdk.RolloutStatus, error) {
	if err := checkWho(req.By, req.Why); err != nil {
		return sdk.RolloutStatus{}, err
	}
	do := map[string]func(context.Context, sdk.StepRequest) (*sdk.Rollout, error){
		"advance": o.client.AdvanceRollout, "hold": o.client.HoldRollout, "rollback": o.client.RollBack}[step]
	if do == nil {
		return sdk.RolloutStatus{}, &problem{Code: "not_found", Message: "a rollout is started, advanced, held or rolled back"}
	}
	if req.Percent < 0 || req.Percent > 100 {
		return sdk.RolloutStatus{}, &problem{Code: "bad_request", Field: "percent", Message: "must be between 0 and 100"}
	}
	_, err := do(ctx, req)
	return o.afterStep(ctx, err)
}

func (o operations) afterStep(ctx context.Context, err error) (sdk.RolloutStatus, error) {
	switch {
	case err == nil:
		return o.client.RolloutStatus(ctx)
	case errors.Is(err, sdk.ErrNoRollout):
		err = &problem{Code: "not_found", Message: oneLine(err)}
	case errors.Is(err, sdk.ErrCandidate):
		err = &problem{Code: "bad_candidate", Message: oneLine(err)}
	case errors.Is(err, sdk.ErrRefused):
		err = &problem{Code: "not_moved", Message: oneLine(err)}
	}
	return sdk.RolloutStatus{}, err
}
