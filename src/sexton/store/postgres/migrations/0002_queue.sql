-- Runs that wait for a worker, or that one has. An entry goes in the transaction that records its run.
CREATE TABLE {schema}.queue_entry (
    id           text COLLATE "C" PRIMARY KEY,
    queue        text COLLATE "C" NOT NULL,
    priority     smallint NOT NULL,
    available_at timestamptz NOT NULL,
    delayed      boolean NOT NULL,      -- its instant has not come: not in the way of those that can be claimed
    claimed_by   text COLLATE "C",      -- null while it waits
    claim        text COLLATE "C",      -- of which step
    fence        bigint NOT NULL DEFAULT 0,
    once         boolean NOT NULL,
    cancel       text,                  -- Cancelling as JSON
    body         text NOT NULL          -- Entry as JSON
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.01);
CREATE INDEX queue_ready ON {schema}.queue_entry (queue, priority DESC, available_at, id)
    WHERE claimed_by IS NULL AND NOT delayed;
CREATE INDEX queue_due ON {schema}.queue_entry (available_at) WHERE delayed;
CREATE INDEX queue_claimed ON {schema}.queue_entry (claimed_by) WHERE claimed_by IS NOT NULL;

-- The lease of all runs of a worker is its own sign of life. No index holds seen_at: the update stays in its page.
CREATE TABLE {schema}.queue_worker (
    id      text COLLATE "C" PRIMARY KEY,
    seen_at timestamptz NOT NULL
) WITH (fillfactor = 50);
