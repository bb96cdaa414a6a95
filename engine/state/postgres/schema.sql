-- The fleet's state store, version 1. @ stands for the schema.
--
-- Times are nanoseconds since 1970, 0 is none. Effects, outcomes and classes
-- are stored by name. States of intents: 0 in flight, 1 UNKNOWN, 2 settled.
-- States of items: 0 waiting, 1 claimed, 2 done, 3 expired, 4 dead, 5 dropped.
-- No rule is written here; the program decides, the tables keep.
--
-- Rows that are written again and again leave room in their page and have no
-- index on what changes, so that an update stays in the page (HOT).

CREATE TABLE @version (
  version integer PRIMARY KEY,
  applied bigint NOT NULL
);

-- One row: the cluster that the tables lived in last, and how often they moved.
CREATE TABLE @store (
  one    integer PRIMARY KEY CHECK (one = 1),
  system bigint NOT NULL,
  base   bigint NOT NULL
);
INSERT INTO @store VALUES (1, 0, 0);

CREATE SEQUENCE @rev;

-- mode_xid is the transaction of the last change of mode, for watchers.
CREATE TABLE @doc (
  key      bytea PRIMARY KEY,
  rev      bigint NOT NULL,
  mode_xid xid8 NOT NULL,
  data     bytea NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX doc_mode ON @doc (mode_xid);

CREATE TABLE @intent (
  id              text PRIMARY KEY,
  request_id      text NOT NULL,
  attempt         bigint NOT NULL,
  home            text NOT NULL,
  slot            bigint NOT NULL,
  incarnation     text NOT NULL,
  tenant          text NOT NULL,
  action          text NOT NULL,
  effect          text NOT NULL,
  idempotency_key text NOT NULL,
  operation       bytea,
  policy          text NOT NULL,
  receipt         text NOT NULL,
  created         bigint NOT NULL,
  expires         bigint NOT NULL,
  state           integer NOT NULL,
  outcome         text NOT NULL,
  class           text NOT NULL,
  reason          text NOT NULL,
  settled_by      text NOT NULL,
  settled_receipt text NOT NULL,
  settled_at      bigint NOT NULL,
  tries           bigint NOT NULL,
  next_try        bigint NOT NULL,
  human_case      text NOT NULL
);
CREATE INDEX intent_age ON @intent (created, id);
CREATE INDEX intent_open ON @intent (created, id) WHERE state < 2;
CREATE INDEX intent_request ON @intent (request_id);
CREATE INDEX intent_key ON @intent (idempotency_key);

-- lines is a JSON array of {Account, Limit, Want}.
CREATE TABLE @reservation (
  id            text PRIMARY KEY,
  lines         text NOT NULL,
  expires       bigint NOT NULL,
  settled       boolean NOT NULL,
  used_cost     bigint NOT NULL,
  used_tokens   bigint NOT NULL,
  used_attempts bigint NOT NULL,
  used_time     bigint NOT NULL,
  settled_at    bigint NOT NULL
);

-- held_* is the sum of the open reservations, open their number.
CREATE TABLE @account (
  name          text PRIMARY KEY,
  used_cost     bigint NOT NULL DEFAULT 0,
  used_tokens   bigint NOT NULL DEFAULT 0,
  used_attempts bigint NOT NULL DEFAULT 0,
  used_time     bigint NOT NULL DEFAULT 0,
  held_cost     bigint NOT NULL DEFAULT 0,
  held_tokens   bigint NOT NULL DEFAULT 0,
  held_attempts bigint NOT NULL DEFAULT 0,
  held_time     bigint NOT NULL DEFAULT 0,
  open          bigint NOT NULL DEFAULT 0,
  touched       bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);

-- attempts is a JSON array of {At, Outcome, Reason}.
CREATE TABLE @item (
  id          text PRIMARY KEY,
  request_id  text NOT NULL,
  created     bigint NOT NULL,
  expires     bigint NOT NULL,
  priority    bigint NOT NULL,
  dependency  text NOT NULL,
  replay      text NOT NULL,
  tenant      text NOT NULL,
  operation   bytea,
  payload     bytea,
  attempts    text NOT NULL,
  state       integer NOT NULL,
  not_before  bigint NOT NULL,
  reason      text NOT NULL,
  claim       bigint NOT NULL,
  claim_until bigint NOT NULL,
  owner       text NOT NULL
);
CREATE INDEX item_ready ON @item (dependency, priority DESC, expires, id) WHERE state < 2;
CREATE INDEX item_due ON @item (expires) WHERE state < 2;

CREATE TABLE @approval (
  seq        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id         text NOT NULL UNIQUE,
  given_by   text NOT NULL,
  scope      text NOT NULL,
  tenant     text NOT NULL,
  until      bigint NOT NULL,
  single_use boolean NOT NULL,
  denies     boolean NOT NULL,
  reason     text NOT NULL,
  used_by    text NOT NULL
);
CREATE INDEX approval_scope ON @approval (tenant, scope);

CREATE TABLE @run (
  id      text PRIMARY KEY,
  last    bigint NOT NULL,
  stopped text NOT NULL,
  touched bigint NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX run_age ON @run (touched);

-- call is one JSON document.
CREATE TABLE @run_call (
  run  text NOT NULL,
  n    bigint NOT NULL,
  call text NOT NULL,
  PRIMARY KEY (run, n)
);
