-- The embedded state store, version 1.
--
-- Times are nanoseconds since 1970, 0 is none. Effects, outcomes and classes
-- are stored by name. States of intents: 0 in flight, 1 UNKNOWN, 2 settled.
-- States of items: 0 waiting, 1 claimed, 2 done, 3 expired, 4 dead, 5 dropped.
-- No rule is written here; the program decides, the tables keep.

CREATE TABLE schema (
  version INTEGER PRIMARY KEY,
  applied INTEGER NOT NULL
) STRICT;

-- One row: the last version given to a document, and the machine's restarts.
CREATE TABLE store (
  one   INTEGER PRIMARY KEY CHECK (one = 1),
  seq   INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  boot  TEXT NOT NULL
) STRICT;
INSERT INTO store VALUES (1, 0, 0, '');

-- mode_rev is the version of the last change of mode, for watchers.
CREATE TABLE doc (
  key      BLOB PRIMARY KEY,
  rev      INTEGER NOT NULL,
  mode_rev INTEGER NOT NULL,
  data     BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX doc_mode ON doc (mode_rev);

CREATE TABLE intent (
  id              TEXT PRIMARY KEY,
  request_id      TEXT NOT NULL,
  attempt         INTEGER NOT NULL,
  home            TEXT NOT NULL,
  slot            INTEGER NOT NULL,
  incarnation     TEXT NOT NULL,
  tenant          TEXT NOT NULL,
  action          TEXT NOT NULL,
  effect          TEXT NOT NULL,
  idempotency_key TEXT NOT NULL,
  operation       BLOB,
  policy          TEXT NOT NULL,
  receipt         TEXT NOT NULL,
  created         INTEGER NOT NULL,
  expires         INTEGER NOT NULL,
  state           INTEGER NOT NULL,
  outcome         TEXT NOT NULL,
  class           TEXT NOT NULL,
  reason          TEXT NOT NULL,
  settled_by      TEXT NOT NULL,
  settled_receipt TEXT NOT NULL,
  settled_at      INTEGER NOT NULL,
  tries           INTEGER NOT NULL,
  next_try        INTEGER NOT NULL,
  human_case      TEXT NOT NULL
) STRICT;
CREATE INDEX intent_age ON intent (created, id);
CREATE INDEX intent_open ON intent (created, id) WHERE state < 2;
CREATE INDEX intent_request ON intent (request_id);
CREATE INDEX intent_key ON intent (idempotency_key);

-- lines is a JSON array of {Account, Limit, Want}.
CREATE TABLE reservation (
  id            TEXT PRIMARY KEY,
  lines         TEXT NOT NULL,
  expires       INTEGER NOT NULL,
  settled       INTEGER NOT NULL,
  used_cost     INTEGER NOT NULL,
  used_tokens   INTEGER NOT NULL,
  used_attempts INTEGER NOT NULL,
  used_time     INTEGER NOT NULL,
  settled_at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- held_* is the sum of the open reservations, open their number.
CREATE TABLE account (
  name          TEXT PRIMARY KEY,
  used_cost     INTEGER NOT NULL,
  used_tokens   INTEGER NOT NULL,
  used_attempts INTEGER NOT NULL,
  used_time     INTEGER NOT NULL,
  held_cost     INTEGER NOT NULL,
  held_tokens   INTEGER NOT NULL,
  held_attempts INTEGER NOT NULL,
  held_time     INTEGER NOT NULL,
  open          INTEGER NOT NULL,
  touched       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- attempts is a JSON array of {At, Outcome, Reason}.
CREATE TABLE item (
  id          TEXT PRIMARY KEY,
  request_id  TEXT NOT NULL,
  created     INTEGER NOT NULL,
  expires     INTEGER NOT NULL,
  priority    INTEGER NOT NULL,
  dependency  TEXT NOT NULL,
  replay      TEXT NOT NULL,
  tenant      TEXT NOT NULL,
  operation   BLOB,
  payload     BLOB,
  attempts    TEXT NOT NULL,
  state       INTEGER NOT NULL,
  not_before  INTEGER NOT NULL,
  reason      TEXT NOT NULL,
  claim       INTEGER NOT NULL,
  claim_until INTEGER NOT NULL,
  owner       TEXT NOT NULL
) STRICT;
CREATE INDEX item_ready ON item (dependency, priority DESC, expires, id) WHERE state < 2;
CREATE INDEX item_due ON item (expires) WHERE state < 2;

CREATE TABLE approval (
  seq        INTEGER PRIMARY KEY AUTOINCREMENT,
  id         TEXT NOT NULL UNIQUE,
  given_by   TEXT NOT NULL,
  scope      TEXT NOT NULL,
  tenant     TEXT NOT NULL,
  until      INTEGER NOT NULL,
  single_use INTEGER NOT NULL,
  denies     INTEGER NOT NULL,
  reason     TEXT NOT NULL,
  used_by    TEXT NOT NULL
) STRICT;
CREATE INDEX approval_scope ON approval (tenant, scope);

CREATE TABLE run (
  id      TEXT PRIMARY KEY,
  last    INTEGER NOT NULL,
  stopped TEXT NOT NULL,
  touched INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX run_age ON run (touched);

-- call is one JSON document.
CREATE TABLE run_call (
  run  TEXT NOT NULL,
  n    INTEGER NOT NULL,
  call TEXT NOT NULL,
  PRIMARY KEY (run, n)
) STRICT, WITHOUT ROWID;
