"""The SQL that runs all day; `{schema}` is filled in by `Database.statement`."""

from __future__ import annotations

from sexton.model.run import Outcome

# Refused where a write would be: no such table, no right to it, a session that only reads.
PROBE = "UPDATE {schema}.run SET body = body WHERE false"

# What becomes of rows by their `batch.Effect`. A record is never overwritten by an intent or a note that comes late.
# Each takes a list for every column, of any number of rows: one statement and one answer. (After a
# pipeline, which psycopg makes of many, the server was seen not to keep its bound on idle transactions, `LET_GO`.)
INTEND = """
INSERT INTO {schema}.run (id, job, daemon, body)
SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[]) ON CONFLICT (id) DO NOTHING
"""
NOTE = """
UPDATE {schema}.run SET body = new.body, daemon = new.daemon
FROM unnest(%s::text[], %s::text[], %s::text[]) AS new (body, daemon, id)
WHERE run.id = new.id AND ended_at IS NULL
"""
RECORD = """
INSERT INTO {schema}.run (id, job, daemon, outcome, ended_at, seq, body)
SELECT id, job, daemon, outcome, ended_at, nextval({run_seq}), body FROM (
    SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::bigint[], %s::text[])
    WITH ORDINALITY AS it (id, job, daemon, outcome, ended_at, body, place) ORDER BY place
) AS it
ON CONFLICT (id) DO UPDATE
SET outcome = excluded.outcome, ended_at = excluded.ended_at, seq = excluded.seq, body = excluded.body
"""
KNOW_JOB = "INSERT INTO {schema}.job (name) SELECT * FROM unnest(%s::text[]) ON CONFLICT (name) DO NOTHING"
PUT_STATE = """
INSERT INTO {schema}.job_state (job, key, value) SELECT * FROM unnest(%s::text[], %s::text[], %s::text[])
ON CONFLICT (key, job) DO UPDATE SET value = excluded.value
"""
FORGET = """
DELETE FROM {schema}.run WHERE id IN (
    SELECT id FROM {schema}.run WHERE job = %s AND ended_at IS NOT NULL
    ORDER BY ended_at DESC, seq DESC OFFSET %s
    FOR UPDATE SKIP LOCKED
) RETURNING id, ended_at, seq
"""

GET = "SELECT body FROM {schema}.run WHERE id = %s"
KNOWN = "SELECT id FROM {schema}.run WHERE id = ANY(%s)"
UNFINISHED = "SELECT body FROM {schema}.run WHERE ended_at IS NULL ORDER BY id"
UNFINISHED_OF = "SELECT body FROM {schema}.run WHERE ended_at IS NULL AND daemon = %s ORDER BY id"
NEWEST = """
SELECT body FROM {schema}.run WHERE job = %s AND ended_at IS NOT NULL ORDER BY ended_at DESC, seq DESC LIMIT %s
"""
TOTALS = """
SELECT job, outcome, count(*) FROM {schema}.run
WHERE job = ANY(%s) AND ended_at IS NOT NULL AND outcome IS NOT NULL GROUP BY job, outcome
"""
NEWEST_OF_EACH = """
SELECT job.name, run.body
FROM unnest(%s::text[]) AS job (name)
CROSS JOIN LATERAL (
    SELECT body, ended_at, seq FROM {schema}.run
    WHERE run.job = job.name AND ended_at IS NOT NULL ORDER BY ended_at DESC, seq DESC LIMIT %s
) AS run
ORDER BY job.name, run.ended_at, run.seq
"""
JOBS = "SELECT name FROM {schema}.job"
# Numbers are given before a transaction commits: one that was slow may show up behind one that is told already.
NEWS = "SELECT DISTINCT job, max(seq) OVER () FROM {schema}.run WHERE seq > %s"
LAST_SEQ = "SELECT coalesce(max(seq), 0) FROM {schema}.run WHERE seq IS NOT NULL"

GET_STATE = "SELECT value FROM {schema}.job_state WHERE key = %s AND job = %s"
STATES = "SELECT job, value FROM {schema}.job_state WHERE key = %s"

# Everything is decided in the statement, by the server's clock: no client's clock or speed has a part in it.
# No renewal makes a lease shorter: it may be an old one, with another time to live, that was held up on its way.
# Who shows a higher fence than the row has holds a lease that this server has lost, and so more than the row knows.
# `wary` grants nothing until all leases have lapsed that were granted before a failover, and lost with it.
_TIMELINE = "('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint"
CLAIM = f"""
INSERT INTO {{schema}}.lease AS it (name, holder, node, fence, lapses_at)
SELECT %(name)s, %(holder)s, %(node)s, %(shown)s + 1, clock_timestamp() + %(ttl)s * interval '1 second'
WHERE CASE WHEN %(wary)s THEN EXISTS (
    SELECT FROM {{schema}}.timeline
    WHERE number = {_TIMELINE} AND since <= clock_timestamp() - %(ttl)s * interval '1 second'
) ELSE true END
ON CONFLICT (name) DO UPDATE SET
    holder = excluded.holder, node = excluded.node,
    lapses_at = greatest(clock_timestamp() + %(ttl)s * interval '1 second',
                         CASE WHEN it.holder = excluded.holder THEN it.lapses_at END),
    fence = CASE WHEN excluded.fence > it.fence + 1 THEN excluded.fence
                 WHEN it.holder = excluded.holder THEN it.fence ELSE it.fence + 1 END,
    silent_holder = CASE WHEN it.holder IS DISTINCT FROM excluded.holder
                          AND it.holder IS DISTINCT FROM %(heir_of)s::text THEN it.holder END,
    silent_node = it.node, silent_fence = it.fence
WHERE it.holder IS NULL OR it.holder = excluded.holder OR it.holder = %(heir_of)s::text
   OR it.lapses_at <= clock_timestamp() OR excluded.fence > it.fence + 1
RETURNING fence, silent_holder, silent_node, silent_fence
"""
NOTICE = f"""
WITH noticed AS (
    INSERT INTO {{schema}}.timeline (number, since)
    SELECT {_TIMELINE}, CASE WHEN EXISTS (SELECT FROM {{schema}}.timeline) THEN clock_timestamp() ELSE '-infinity' END
    ON CONFLICT (number) DO NOTHING
)
SELECT {_TIMELINE}
"""
NOTICED = f"""
SELECT extract(epoch FROM clock_timestamp() - since)::float8, since
FROM {{schema}}.timeline WHERE number = {_TIMELINE} AND since > '-infinity'
"""
RENEW = """
UPDATE {schema}.lease SET lapses_at = greatest(lapses_at, clock_timestamp() + %(ttl)s * interval '1 second')
WHERE name = %(name)s AND holder = %(holder)s AND fence = %(fence)s RETURNING fence
"""
RAISE_FENCE = """
INSERT INTO {schema}.lease AS it (name, holder, node, fence, lapses_at)
VALUES (%s, NULL, %s, %s, clock_timestamp())
ON CONFLICT (name) DO UPDATE SET fence = greatest(it.fence, excluded.fence) WHERE it.holder IS NULL
"""
RELEASE = """
UPDATE {schema}.lease SET holder = NULL, lapses_at = clock_timestamp()
WHERE name = %s AND holder = %s AND fence = %s RETURNING fence
"""
READ = """
SELECT holder, node, fence, extract(epoch FROM lapses_at - clock_timestamp())::float8
FROM {schema}.lease WHERE name = %s AND holder IS NOT NULL
"""

SEND = """
WITH sent AS (INSERT INTO {schema}.signal (recipient, body) VALUES (%(to)s, %(body)s) RETURNING 1)
SELECT pg_notify(%(channel)s, %(to)s) FROM sent
"""
ARRIVED = "SELECT id, body FROM {schema}.signal WHERE recipient = %s ORDER BY id"
TAKEN = "DELETE FROM {schema}.signal WHERE id = ANY(%s)"

ANNOUNCE = """
INSERT INTO {schema}.node (id, seen_at, clock_offset, body)
VALUES (%(id)s, clock_timestamp(), extract(epoch FROM %(clock)s::timestamptz - clock_timestamp()), %(body)s)
ON CONFLICT (id) DO UPDATE
SET seen_at = excluded.seen_at, clock_offset = excluded.clock_offset, body = excluded.body
"""
LEAVE = """
WITH gone AS (DELETE FROM {schema}.node WHERE id = %(id)s) DELETE FROM {schema}.signal WHERE recipient = %(id)s
"""
NODES = """
SELECT body, extract(epoch FROM clock_timestamp() - seen_at)::float8, clock_offset FROM {schema}.node ORDER BY id
"""

CLAIM_FIRE = """
INSERT INTO {schema}.fire (job, scheduled_for, claimed_by) VALUES (%s, %s, %s)
ON CONFLICT (job, scheduled_for) DO UPDATE SET claimed_by = fire.claimed_by RETURNING claimed_by
"""
# Who comes too late only reads. Rows are locked in one order, whatever was wanted: no two batches wait in a circle. A
# claim that another transaction made meanwhile, be it our own whose answer was lost, is told by the next look.
CLAIM_FIRES = """
WITH wanted AS (
    SELECT job, at, place
    FROM unnest(%(jobs)s::text[], %(instants)s::timestamptz[]) WITH ORDINALITY AS it (job, at, place)
), known AS (
    SELECT fire.job, fire.scheduled_for, fire.claimed_by FROM wanted
    JOIN {schema}.fire ON fire.job = wanted.job COLLATE "C" AND fire.scheduled_for = wanted.at
), free AS (
    SELECT job, at FROM wanted
    WHERE NOT EXISTS (SELECT FROM known WHERE known.job = wanted.job COLLATE "C" AND known.scheduled_for = wanted.at)
    ORDER BY place LIMIT %(most)s
), taken AS (
    INSERT INTO {schema}.fire (job, scheduled_for, claimed_by)
    SELECT job, at, %(by)s FROM free ORDER BY job COLLATE "C", at
    ON CONFLICT (job, scheduled_for) DO NOTHING RETURNING job, scheduled_for, claimed_by
)
SELECT * FROM known UNION ALL SELECT * FROM taken
"""
FIRED = "SELECT scheduled_for, claimed_by FROM {schema}.fire WHERE job = %s AND scheduled_for >= %s ORDER BY 1"
FORGET_FIRES = "DELETE FROM {schema}.fire WHERE scheduled_for < %s"


def runs(*, job: bool, outcome: Outcome | None, node: bool, before: bool, after: bool) -> str:
    """The statement for a page of runs, newest first, with the conditions that are given."""
    conditions = ["true"]
    if job:
        conditions.append("job = %(job)s")
    if outcome is not None:
        conditions.append("outcome = %(outcome)s")
        if outcome is not Outcome.SUCCESS:
            conditions.append("outcome <> 'success'")  # opens the partial index
    if before:
        conditions.append("id < %(before)s")
    if after:
        conditions.append("id > %(after)s")
    if node:
        conditions.append("body::json #>> '{{launch,node}}' = %(node)s")
    return f"SELECT body FROM {{schema}}.run WHERE {' AND '.join(conditions)} ORDER BY id DESC LIMIT %(limit)s"
