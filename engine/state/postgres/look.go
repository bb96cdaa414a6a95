package postgres

import (
	"context"
	"fmt"
	"strconv"

	"github.com/fusebox-dev/fusebox/engine/state"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A Report is what Look saw of a database, in the order of the questions.
type Report struct {
	Seen    []string // in words, for people
	Trouble []Trouble
	Refused bool // Open would refuse this database
}

// A Trouble is one thing that is wrong, and what to do about it.
type Trouble struct{ Text, Do string }

func (r *Report) saw(format string, args ...any) {
	r.Seen = append(r.Seen, fmt.Sprintf(format, args...))
}

func (r *Report) trouble(do, format string, args ...any) {
	r.Trouble = append(r.Trouble, Trouble{fmt.Sprintf(format, args...), do})
}

func (r *Report) refuse(do, format string, args ...any) {
	r.Refused = true
	r.trouble(do, format, args...)
}

// facts are what one query says of a server and of who asks.
type facts struct {
	version, number                                string
	standby                                        bool
	fsync, pages, commit, names                    string
	most, reserved, used                           int
	user, database                                 string
	schemaThere, makesSchema, usesSchema, inSchema bool
	tables, foreign                                int // of ours, and those that this user may not write
	control                                        bool
}

const factsSQL = `SELECT current_setting('server_version'), current_setting('server_version_num'), pg_is_in_recovery(),
	current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),
	current_setting('max_connections')::int, current_setting('superuser_reserved_connections')::int,
	(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')::int,
	current_user::text, current_database()::text,
	to_regnamespace($1::text) IS NOT NULL, has_database_privilege(current_database(), 'CREATE'),
	coalesce(has_schema_privilege(to_regnamespace($1::text)::oid, 'USAGE'), false), coalesce(has_schema_privilege(to_regnamespace($1::text)::oid, 'CREATE'), false),
	(SELECT count(*) FROM pg_tables WHERE schemaname = $1::text)::int,
	(SELECT count(*) FROM pg_class c WHERE c.relnamespace = to_regnamespace($1::text)::oid AND c.relkind = 'r'
		AND NOT has_table_privilege(c.oid, 'SELECT, INSERT, UPDATE, DELETE'))::int,
	has_function_privilege('pg_control_system()', 'EXECUTE')`

// Look looks a database over without changing anything of it, and says what it
// is, what is wrong with it and what to do. The error says why nothing could be
// seen.
func Look(ctx context.Context, url string, o Options) (Report, error) {
	var r Report
	if o.Schema == "" {
		o.Schema = "fusebox"
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return r, fmt.Errorf("look at state store: %w: %w", state.ErrInvalid, err) // pgx keeps passwords out of it
	}
	where := fmt.Sprintf("look at state store %s:%d/%s", config.ConnConfig.Host, config.ConnConfig.Port, config.ConnConfig.Database)
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return r, fmt.Errorf("%s: %w", where, explain(ctx, err))
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var f facts
	err = conn.QueryRow(ctx, factsSQL, o.Schema).Scan(&f.version, &f.number, &f.standby, &f.fsync, &f.pages, &f.commit, &f.names,
		&f.most, &f.reserved, &f.used, &f.user, &f.database, &f.schemaThere, &f.makesSchema, &f.usesSchema, &f.inSchema, &f.tables, &f.foreign, &f.control)
	if err != nil {
		return r, fmt.Errorf("%s: %w", where, explain(ctx, err))
	}
	r.server(&f)
	r.settings(&f)
	r.rights(&f, o.Schema)
	if err := r.tables(ctx, conn, &f, o.Schema); err != nil {
		return r, fmt.Errorf("%s: %w", where, explain(ctx, err))
	}
	r.connections(&f, int(config.MaxConns), o.Listen != "none")
	return r, nil
}

func (r *Report) server(f *facts) {
	r.saw("PostgreSQL %s, database %s, user %s", f.version, f.database, f.user)
	if n, _ := strconv.Atoi(f.number); n < oldestServer {
		r.refuse("use PostgreSQL 15 or newer", "the server has version %s, and 15 is the oldest that serves", f.version)
	}
	if f.standby {
		r.refuse("give the address of the primary, or several hosts with target_session_attrs=read-write", "the server is a standby")
	}
}

// settings are those without which an acknowledgement is worth nothing.
func (r *Report) settings(f *facts) {
	r.saw("fsync %s, full_page_writes %s, synchronous_commit %s", f.fsync, f.pages, f.commit)
	if f.fsync == "off" || f.pages == "off" {
		r.refuse("switch both on", "the server runs with fsync=%s and full_page_writes=%s and would lose what it acknowledged", f.fsync, f.pages)
	}
	switch {
	case f.commit == "off":
		r.refuse("switch it on for this user", "synchronous_commit is off for this user and would lose what was acknowledged")
	case f.names == "":
		r.saw("no synchronous standby: after a failover the last moments may be gone, which is noticed")
	case f.commit == "local":
		r.trouble("set synchronous_commit to on for this user", "synchronous_commit is local: the synchronous standby (%s) is not waited for, and a failover may lose what was acknowledged", f.names)
	default:
		r.saw("synchronous standby: %s", f.names)
	}
}

func (r *Report) rights(f *facts, schema string) {
	switch {
	case !f.schemaThere && !f.makesSchema:
		r.refuse("CREATE SCHEMA "+schema+" AUTHORIZATION "+f.user, "schema %s is not there, and user %s may not make it", schema, f.user)
	case !f.schemaThere:
		r.saw("schema %s is not there yet; who opens the store first makes it", schema)
	case !f.usesSchema || f.tables == 0 && !f.inSchema:
		r.refuse("GRANT USAGE, CREATE ON SCHEMA "+schema+" TO "+f.user, "user %s may not use schema %s, or may not make its tables", f.user, schema)
	case f.foreign > 0:
		r.refuse("make "+f.user+" their owner", "user %s may not read and write %d of the %s of schema %s", f.user, f.foreign, count(f.tables, "table"), schema)
	default:
		r.saw("user %s may use schema %s and its %s", f.user, schema, count(f.tables, "table"))
	}
	if !f.control {
		r.refuse("GRANT EXECUTE ON FUNCTION pg_control_system() TO "+f.user, "user %s may not ask which cluster this is (pg_control_system)", f.user)
	}
}

// tables reads the version of ours.
func (r *Report) tables(ctx context.Context, conn *pgx.Conn, f *facts, schema string) error {
	if f.tables == 0 || r.Refused {
		return nil
	}
	there, version := false, 0
	name := `"` + schema + `".version`
	if err := conn.QueryRow(ctx, "SELECT to_regclass($1::text) IS NOT NULL", name).Scan(&there); err != nil {
		return err
	}
	if !there {
		r.trouble("give fusebox a schema of its own", "schema %s has %s of somebody else's, and fusebox would make its own beside them", schema, count(f.tables, "table"))
		return nil
	}
	if err := conn.QueryRow(ctx, "SELECT coalesce(max(version), 0) FROM "+name).Scan(&version); err != nil {
		return err
	}
	switch known := len(migrations); {
	case version > known:
		r.refuse("use the newer program that wrote it", "the tables have version %d, and this program knows %d", version, known)
	case version < known:
		r.saw("the tables have version %d; who opens the store next brings them to %d", version, known)
	default:
		r.saw("the tables have version %d, the latest that this program knows", version)
	}
	return nil
}

// fewest is what one process needs: a watch keeps a connection, a second one
// while a canary runs, and work must go on beside them.
const fewest = 4

// connections compares the pool of one process with what the server takes.
func (r *Report) connections(f *facts, pool int, listens bool) {
	each := pool
	if listens {
		each++
	}
	room := f.most - f.reserved
	r.saw("pool_max_conns %d: one process uses up to %d of %d connections, so %d processes fit; %d are open now", pool, each, room, room/each, f.used)
	switch {
	case each > room:
		r.trouble("lower pool_max_conns in the connection string, or raise max_connections", "one process may open %d connections, and the server takes %d", each, room)
	case pool < fewest:
		r.trouble("set pool_max_conns to "+strconv.Itoa(fewest)+" or more in the connection string", "pool_max_conns is %d: watches keep one or two of them, and little is left to work with", pool)
	case f.used+each > room:
		r.trouble("raise max_connections, lower pool_max_conns everywhere, or put PgBouncer in between", "%d of %d connections are open: one more process finds no room for its %d", f.used, room, each)
	}
}

func count(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}
