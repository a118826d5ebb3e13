-- One row per run. While ended_at is null the row is an intent, afterwards it is a record.
-- Columns exist only for what is searched; everything known of the run is in body.
CREATE TABLE {schema}.run (
    id       text COLLATE "C" PRIMARY KEY,
    job      text COLLATE "C" NOT NULL,
    daemon   text COLLATE "C" NOT NULL,   -- the process that started it
    outcome  text COLLATE "C",
    ended_at bigint,                      -- microseconds since 1970, UTC
    seq      bigint,                      -- order of recording: the tie-break of ended_at, and what news are told by
    body     text NOT NULL                -- RunRecord as JSON
);
CREATE SEQUENCE {schema}.run_seq;
CREATE INDEX run_history ON {schema}.run (job, ended_at, seq) WHERE ended_at IS NOT NULL;
CREATE INDEX run_of_job ON {schema}.run (job, id);
CREATE INDEX run_unfinished ON {schema}.run (daemon, id) WHERE ended_at IS NULL;
CREATE INDEX run_unsuccessful ON {schema}.run (outcome, id) WHERE outcome <> 'success';
CREATE INDEX run_news ON {schema}.run (seq) WHERE seq IS NOT NULL;

-- Which jobs have records: without it the list would have to be gathered from all runs.
CREATE TABLE {schema}.job (name text COLLATE "C" PRIMARY KEY);

CREATE TABLE {schema}.job_state (
    job   text COLLATE "C" NOT NULL,
    key   text COLLATE "C" NOT NULL,
    value text NOT NULL,
    PRIMARY KEY (key, job)
);

-- A row stays when its lease is released: the fence must never fall.
CREATE TABLE {schema}.lease (
    name          text COLLATE "C" PRIMARY KEY,
    holder        text COLLATE "C",
    node          text NOT NULL,
    fence         bigint NOT NULL,
    lapses_at     timestamptz NOT NULL,   -- by the clock of this server, and no other
    silent_holder text COLLATE "C",       -- whom it was taken from at the last change, if it had lapsed
    silent_node   text,
    silent_fence  bigint
);

CREATE TABLE {schema}.signal (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    recipient text COLLATE "C" NOT NULL,
    sent_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    body      text NOT NULL
);
CREATE INDEX signal_recipient ON {schema}.signal (recipient, id);

CREATE TABLE {schema}.node (
    id           text COLLATE "C" PRIMARY KEY,
    seen_at      timestamptz NOT NULL,
    clock_offset double precision NOT NULL,   -- seconds that its clock was ahead of the server's
    body         text NOT NULL
);

CREATE TABLE {schema}.fire (
    job           text COLLATE "C" NOT NULL,
    scheduled_for timestamptz NOT NULL,
    claimed_by    text COLLATE "C" NOT NULL,
    PRIMARY KEY (job, scheduled_for)
);
CREATE INDEX fire_age ON {schema}.fire (scheduled_for);
