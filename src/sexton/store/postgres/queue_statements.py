"""The SQL of the queue; `{schema}` is filled in by `Database.statement`. All instants are the server's."""

from __future__ import annotations

ENQUEUE = """
WITH given AS (
    SELECT * FROM unnest(%(ids)s::text[], %(queues)s::text[], %(priorities)s::smallint[], %(instants)s::timestamptz[],
                         %(once)s::boolean[], %(bodies)s::text[])
                  AS given (id, queue, priority, available_at, once, body)
), put AS (
    INSERT INTO {schema}.queue_entry (id, queue, priority, available_at, delayed, once, body)
    SELECT id, queue, priority, coalesce(available_at, clock_timestamp()),
           coalesce(available_at > clock_timestamp(), false), once, body
    FROM given
    WHERE NOT EXISTS (SELECT FROM {schema}.run WHERE run.id = given.id AND run.ended_at IS NOT NULL)
    ORDER BY id
    ON CONFLICT (id) DO NOTHING
    RETURNING 1
)
SELECT pg_notify(%(channel)s, '') FROM put LIMIT 1
"""
SEEN = """
INSERT INTO {schema}.queue_worker (id, seen_at) VALUES (%s, clock_timestamp())
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at
"""
PROMOTE = """
UPDATE {schema}.queue_entry SET delayed = false WHERE id IN (
    SELECT id FROM {schema}.queue_entry WHERE delayed AND available_at <= clock_timestamp()
    ORDER BY available_at LIMIT 1000 FOR UPDATE SKIP LOCKED
)
"""
CLAIM = """
WITH chosen AS (
    SELECT ready.id FROM unnest(%(queues)s::text[]) AS wanted (queue)
    CROSS JOIN LATERAL (
        SELECT id, priority, available_at FROM {schema}.queue_entry
        WHERE queue_entry.queue = wanted.queue AND claimed_by IS NULL AND NOT delayed
        ORDER BY priority DESC, available_at, id LIMIT %(want)s
        FOR UPDATE SKIP LOCKED
    ) AS ready
    ORDER BY ready.priority DESC, ready.available_at, ready.id LIMIT %(want)s
)
UPDATE {schema}.queue_entry AS entry SET claimed_by = %(by)s, claim = %(claim)s, fence = entry.fence + 1
FROM chosen WHERE entry.id = chosen.id
RETURNING entry.body, entry.fence, entry.priority, entry.available_at, entry.id
"""
CLAIMED = """
SELECT body, fence, priority, available_at, id FROM {schema}.queue_entry WHERE claimed_by = %s AND claim = %s
"""
FINISHED = """
DELETE FROM {schema}.queue_entry AS entry
USING unnest(%s::text[], %s::text[], %s::bigint[]) AS done (id, claimed_by, fence)
WHERE entry.id = done.id AND entry.claimed_by = done.claimed_by AND entry.fence = done.fence
RETURNING entry.id
"""
ENDED = "SELECT id, body FROM {schema}.run WHERE id = ANY(%s) AND ended_at IS NOT NULL"
GIVE_BACK = """
WITH back AS (
    UPDATE {schema}.queue_entry AS entry SET claimed_by = NULL, claim = NULL
    FROM unnest(%s::text[], %s::text[], %s::bigint[]) AS given (id, claimed_by, fence)
    WHERE entry.id = given.id AND entry.claimed_by = given.claimed_by AND entry.fence = given.fence
    RETURNING entry.id, entry.body, entry.cancel
)
SELECT back.id, back.body, back.cancel FROM back, (SELECT pg_notify(%s, '')) AS told
"""
DELETE = "DELETE FROM {schema}.queue_entry WHERE id = ANY(%s)"
HELD = "SELECT body, fence FROM {schema}.queue_entry WHERE claimed_by = %s ORDER BY id"
ONE = "SELECT body, claimed_by, fence FROM {schema}.queue_entry WHERE id = %s"
CANCEL = "UPDATE {schema}.queue_entry SET cancel = %s WHERE id = %s RETURNING body, claimed_by"
ALIVE = """
WITH seen AS (
    INSERT INTO {schema}.queue_worker (id, seen_at) VALUES (%(by)s, clock_timestamp())
    ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at
)
SELECT id, cancel FROM {schema}.queue_entry WHERE claimed_by = %(by)s AND cancel IS NOT NULL
"""
LEAVE = """
DELETE FROM {schema}.queue_worker WHERE id = %(by)s
AND NOT EXISTS (SELECT FROM {schema}.queue_entry WHERE claimed_by = %(by)s)
"""
# Locked until the end: a sign of life waits, and comes too late; whoever reaps, too, finds nobody silent.
SILENT = """
SELECT id FROM {schema}.queue_worker WHERE seen_at < clock_timestamp() - make_interval(secs => %s)
ORDER BY id FOR UPDATE SKIP LOCKED
"""
TAKE_LOST = """
DELETE FROM {schema}.queue_entry WHERE claimed_by = ANY(%s) AND (once OR cancel IS NOT NULL)
RETURNING body, claimed_by, cancel
"""
TAKE_BACK = """
WITH back AS (
    UPDATE {schema}.queue_entry SET claimed_by = NULL, claim = NULL WHERE claimed_by = ANY(%s) RETURNING id
)
SELECT back.id FROM back, (SELECT pg_notify(%s, '')) AS told ORDER BY back.id
"""
FORGET_WORKERS = "DELETE FROM {schema}.queue_worker WHERE id = ANY(%s)"
DEPTHS = """
SELECT queue, count(*) FILTER (WHERE claimed_by IS NULL AND NOT delayed), count(*) FILTER (WHERE delayed),
       count(*) FILTER (WHERE claimed_by IS NOT NULL),
       greatest(0, coalesce(extract(epoch FROM clock_timestamp() - min(available_at)
                                    FILTER (WHERE claimed_by IS NULL AND NOT delayed)), 0))::double precision
FROM {schema}.queue_entry GROUP BY queue
"""
