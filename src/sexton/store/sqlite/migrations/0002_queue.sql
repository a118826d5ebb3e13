-- Runs that wait for a worker, or that one has. An entry goes in the transaction that records its run.
CREATE TABLE queue_entry (
    id           TEXT PRIMARY KEY NOT NULL,
    queue        TEXT NOT NULL,
    priority     INTEGER NOT NULL,
    available_at INTEGER NOT NULL,      -- microseconds since 1970, UTC
    delayed      INTEGER NOT NULL,      -- its instant has not come: not in the way of those that can be claimed
    claimed_by   TEXT,                  -- null while it waits
    fence        INTEGER NOT NULL DEFAULT 0,
    once         INTEGER NOT NULL,
    cancel       TEXT,                  -- Cancelling as JSON
    body         TEXT NOT NULL          -- Entry as JSON
) STRICT;
CREATE INDEX queue_ready ON queue_entry (queue, priority DESC, available_at, id) WHERE claimed_by IS NULL AND delayed = 0;
CREATE INDEX queue_due ON queue_entry (available_at) WHERE delayed = 1;
CREATE INDEX queue_claimed ON queue_entry (claimed_by) WHERE claimed_by IS NOT NULL;

CREATE TABLE queue_worker (
    id      TEXT PRIMARY KEY NOT NULL,
    boot_id TEXT NOT NULL,              -- seconds since another boot cannot be compared
    seen_at REAL NOT NULL               -- seconds since boot, sleep included
) STRICT;
