-- The application id spells "SXTN": a file without it is somebody else's.
PRAGMA application_id = 0x5358544E;

-- One row per run. While ended_at is null the row is an intent, afterwards it is a record.
-- Columns exist only for what is searched; everything known of the run is in body.
CREATE TABLE run (
    id       TEXT PRIMARY KEY NOT NULL,
    job      TEXT NOT NULL,
    outcome  TEXT,
    ended_at INTEGER,           -- microseconds since 1970, UTC
    seq      INTEGER,           -- order of recording: the tie-break of ended_at
    body     TEXT NOT NULL      -- RunRecord as JSON
) STRICT;

-- id and outcome ride along so that a job's runs can be paged by id from here: an index of its own for that would
-- double the pages that a group of intents touches.
CREATE INDEX run_history ON run (job, ended_at, seq, id, outcome) WHERE ended_at IS NOT NULL;
CREATE INDEX run_unfinished ON run (id, job) WHERE ended_at IS NULL;
-- Success is the common case: it needs no index to be found soon, and should not pay for one.
CREATE INDEX run_unsuccessful ON run (outcome, id) WHERE outcome <> 'success';

-- Recorded runs that are kept, counted by the triggers below so that no reader has to.
-- A record without a verdict counts under the empty outcome.
CREATE TABLE run_total (
    job     TEXT NOT NULL,
    outcome TEXT NOT NULL,
    runs    INTEGER NOT NULL,
    PRIMARY KEY (job, outcome)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER run_recorded_at_once AFTER INSERT ON run WHEN new.ended_at IS NOT NULL BEGIN
    INSERT INTO run_total VALUES (new.job, coalesce(new.outcome, ''), 1)
        ON CONFLICT DO UPDATE SET runs = runs + 1;
END;

CREATE TRIGGER run_recorded AFTER UPDATE ON run WHEN new.ended_at IS NOT NULL BEGIN
    UPDATE run_total SET runs = runs - 1
        WHERE old.ended_at IS NOT NULL AND job = old.job AND outcome = coalesce(old.outcome, '');
    INSERT INTO run_total VALUES (new.job, coalesce(new.outcome, ''), 1)
        ON CONFLICT DO UPDATE SET runs = runs + 1;
END;

CREATE TRIGGER run_forgotten AFTER DELETE ON run WHEN old.ended_at IS NOT NULL BEGIN
    UPDATE run_total SET runs = runs - 1 WHERE job = old.job AND outcome = coalesce(old.outcome, '');
END;

CREATE TABLE job_state (
    job   TEXT NOT NULL,
    key   TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (job, key)
) STRICT, WITHOUT ROWID;
