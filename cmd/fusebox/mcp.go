package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fusebox-dev/fusebox/sdk"
	"github.com/fusebox-dev/fusebox/sdk/mcpguard"
)

func mcpCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mcp [flags] -- COMMAND [ARGUMENT...]",
		Short: "Put fusebox in front of an MCP server that runs as a command",
		Long: `Mcp starts COMMAND, an MCP server that speaks over standard input and output,
and stands between it and your agent. In the agent's configuration, put
"fusebox mcp --" before the server's own command; nothing else changes.

Every tools/call is decided before it is sent and judged when it comes back. A
call that is not sent is answered with a result that the model can read: why,
what to do next, and when. A write whose end nobody knows is not sent again,
also when the model asks again, also after a restart. Everything else passes
byte for byte.

What a tool does is said in the policy, in [[tool]] entries whose tool is the
name of the server and whose action is the name of the tool. Without an entry a
tool may do harm, and each call needs a person's approval; what the server says
of itself (readOnlyHint) changes that only where the policy trusts it:

  fusebox mcp --name mail --declare -- COMMAND    print entries to begin with
  fusebox approvals grant mail.send_mail --for 10m --once --reason "asked for"

A tool that changes its description, schema or annotations after it was first
seen leaves a receipt, and is not trusted until --repin takes it as it is.

Several wrappers may share one data directory, with each other and with
fusebox serve. Standard output belongs to the protocol; what fusebox has to say
goes to standard error, as what the server writes there.

The exit status is that of COMMAND, 128 and the signal's number where a signal
ended it. ` + "\n\n" + exitHelp,
		Example: `  fusebox mcp -- npx -y @modelcontextprotocol/server-everything
  fusebox mcp --name mail --tenant acme --agent support-1 -- ./mail-server --verbose`,
		Args: cobra.MinimumNArgs(1),
	}
	var o mcpOptions
	addData(cmd)
	f := cmd.Flags()
	f.SetInterspersed(false) // what follows COMMAND is the command's
	f.StringVar(&o.policies, "policies", "", "read the policy from this `PATH`, a folder or an archive (default: the one that is built in)")
	f.StringVar(&o.name, "name", "", "what policy calls the server; `NAME` is the tool of its [[tool]] entries (default: after COMMAND)")
	f.StringVar(&o.who.Tenant, "tenant", "", "calls are made for this `TENANT`")
	f.StringVar(&o.who.Agent, "agent", "", "calls are made by this `AGENT`")
	f.StringVar(&o.who.Run, "run", "", "calls belong to this `RUN`, for loops and budgets (default: one for each start)")
	f.DurationVar(&o.timeout, "timeout", 0, "wait so long for an answer where the tool's [[tool]] entry says nothing (default 10m)")
	f.BoolVar(&o.hide, "hide-open", false, "leave tools out of the list while a circuit of theirs is open")
	f.StringVar(&o.denials, "denials", "", `how the client is told of a denial: "result", which the model reads, or "error"`)
	f.BoolVar(&o.declare, "declare", false, "print [[tool]] entries for the server's tools, and end")
	f.BoolVar(&o.repin, "repin", false, "take the tools as they are now for their first sight")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) }
	return cmd
}

// mcpOptions are the flags of fusebox mcp.
type mcpOptions struct {
	policies, name, denials string
	who                     mcpguard.Identity
	timeout                 time.Duration
	hide, declare, repin    bool
}

func (o *mcpOptions) run(cmd *cobra.Command, args []string) error {
	if o.name == "" {
		o.name = serverNamedAfter(args)
	}
	if !mcpguard.ValidName(o.name) {
		return usageError(cmd, fmt.Errorf("--name %q: write letters, digits, '.', '_' and '-'", o.name))
	}
	// Without this, writing to a client that has gone would end the process at
	// once, and calls that are out would not be settled.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	defer signal.Stop(pipe)
	ctx, stop := untilInterrupted(cmd.Context())
	defer stop()
	if o.declare {
		return o.declareTools(ctx, cmd, args)
	}
	guard, client, err := o.open(ctx, cmd)
	if err != nil {
		return err
	}
	status, err := wrap(ctx, guard, o.who, args, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := errors.Join(err, client.Close(closing)); err != nil {
		return err
	}
	if status != 0 {
		return withStatus(status, errSilent)
	}
	return nil
}

// open starts the engine in this process, and the guard over it.
func (o *mcpOptions) open(ctx context.Context, cmd *cobra.Command) (*mcpguard.Guard, *sdk.Client, error) {
	cfg, err := readConfig(cmd)
	if err != nil {
		return nil, nil, err
	}
	override(cmd, "policies", &cfg.Policies.Path)
	server := cfg.MCPNamed(o.name)
	override(cmd, "denials", &server.Denials)
	log := newLogger(cmd.ErrOrStderr(), cfg.Log)
	client, err := sdk.Open(ctx, cfg, sdk.Parts{Build: buildName(), Log: log, Plugins: startPlugin})
	if err != nil {
		return nil, nil, withStatus(exitSetup, err)
	}
	g := guardOptions(server, client.Config(), log)
	var ok bool
	if g.Denials, ok = mcpguard.ParseDenials(server.Denials); !ok {
		err = usageError(cmd, fmt.Errorf(`--denials %q: write "result" or "error"`, server.Denials))
	}
	if o.timeout > 0 {
		g.Timeout = o.timeout
	}
	g.HideOpen = g.HideOpen || o.hide
	if o.repin && err == nil {
		if err = os.Remove(g.Pins); errors.Is(err, os.ErrNotExist) {
			err = nil
		}
	}
	var guard *mcpguard.Guard
	if err == nil {
		guard, err = mcpguard.New(client, g)
		err = withStatus(exitSetup, err)
	}
	if err != nil {
		return nil, nil, errors.Join(err, client.Close(context.WithoutCancel(ctx)))
	}
	return guard, client, nil
}

// launchers are commands that run what their first argument names.
var launchers = []string{"npx", "bunx", "uvx", "uv", "pipx", "node", "deno", "bun", "python", "python3", "docker", "podman", "go", "sh", "bash", "env"}

var notInNames = regexp.MustCompile(`[^a-z0-9_-]+`)

// serverNamedAfter makes a name out of the server's command.
func serverNamedAfter(args []string) string {
	word := args[0]
	if slices.Contains(launchers, strings.TrimSuffix(filepath.Base(word), ".exe")) {
		for _, a := range args[1:] {
			if !strings.HasPrefix(a, "-") && a != "run" && a != "exec" && a != "x" {
				word = a
				break
			}
		}
	}
	if i := strings.LastIndexByte(word, '@'); i > 0 { // a version
		word = word[:i]
	}
	word = filepath.Base(word)
	word = strings.ToLower(strings.TrimSuffix(word, filepath.Ext(word)))
	word = strings.Trim(notInNames.ReplaceAllString(word, "-"), "-_")
	if len(word) > 64 {
		word = word[:64]
	}
	if word == "" {
		return "mcp"
	}
	return word
}

// declareTools prints entries of policy.toml for the tools of a server.
func (o *mcpOptions) declareTools(ctx context.Context, cmd *cobra.Command, args []string) error {
	c, err := startChild(args, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	tools, err := mcpguard.Inspect(ctx, c.out, c.in)
	_ = c.in.Close()
	c.stop(ctx)
	if err != nil {
		return err
	}
	_, err = io.WriteString(cmd.OutOrStdout(), declarations(o.name, tools))
	return err
}

// declarations are [[tool]] entries to begin with. A tool that says of itself
// that it only reads is written down so, for a person to check.
func declarations(server string, tools []mcpguard.ToolHint) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# The tools of the MCP server %q, in its own words. Check each before you trust it,\n# then append this to policy.toml. Effects: read_only, idempotent_write,\n# conditionally_repeatable, non_repeatable.\n", server)
	for _, t := range tools {
		fmt.Fprintf(&b, "\n# %s\n[[tool]]\ntool = %s\naction = %s\n", firstLine(t.Description), tomlText(server), tomlText(t.Name))
		switch {
		case t.ReadOnly:
			b.WriteString("effect = \"read_only\"                # it says readOnlyHint\n")
		case t.Idempotent:
			b.WriteString("effect = \"idempotent_write\"         # it says idempotentHint\n")
		default:
			fmt.Fprintf(&b, "effect = \"non_repeatable\"\naction_class = %s   # goes without approval once authority.allowed in config/data.json names it\nreconcile = { by = \"human\" }        # who finds out what became of a call that timed out\n", tomlText(server+"."+t.Name))
		}
	}
	return b.String()
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	s = printable(s)
	if len(s) > 100 {
		s = strings.ToValidUTF8(s[:100], "") + "…"
	}
	if s == "" {
		return "(no description)"
	}
	return s
}

// tomlText is a basic string of TOML.
func tomlText(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String() + `"`
}
