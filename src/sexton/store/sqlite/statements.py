"""The SQL that runs all day. What many rows need is one statement with one JSON parameter.

Python lets go of the GIL around every step of a statement. Beside a busy event loop, taking it back costs up
to a switch interval (5 ms) each time: with a row per step a group of 200 writes took 200 ms or more, with one
statement for all rows 8 ms. For the same reason reads return all rows as one text, a record per line.
"""

from __future__ import annotations

from sexton.model.run import Outcome

# A whole batch: the parameter is an array of `batch.Row`. The newest facts of a run win, but a record is
# never overwritten by an intent or a note that arrives late.
WRITE_RUNS = """
WITH incoming AS (
    SELECT json_extract(value, '$[0]') AS effect,
           json_extract(value, '$[1]') AS id,
           json_extract(value, '$[2]') AS job,
           json_extract(value, '$[3]') AS outcome,
           json_extract(value, '$[4]') AS ended_at,
           json_extract(value, '$[5]') AS seq,
           json_extract(value, '$[6]') AS body
    FROM json_each(CAST(? AS TEXT))
)
INSERT INTO run (id, job, outcome, ended_at, seq, body)
SELECT id, job, outcome, ended_at, seq, body
FROM incoming
WHERE CASE effect
      WHEN 0 THEN NOT EXISTS (SELECT 1 FROM run WHERE run.id = incoming.id)
      WHEN 1 THEN EXISTS (SELECT 1 FROM run WHERE run.id = incoming.id AND run.ended_at IS NULL)
      ELSE 1 END
ON CONFLICT (id) DO UPDATE
SET outcome = excluded.outcome, ended_at = excluded.ended_at, seq = excluded.seq, body = excluded.body
"""

# The parameter is an array of {"job", "key", "value"}.
WRITE_STATES = """
INSERT INTO job_state (job, key, value)
SELECT json_extract(value, '$.job'), json_extract(value, '$.key'), json_extract(value, '$.value')
FROM json_each(CAST(? AS TEXT)) WHERE true
ON CONFLICT (job, key) DO UPDATE SET value = excluded.value
"""

FIND_FORGOTTEN = """
SELECT json_group_array(id) FROM (
    SELECT id FROM run WHERE job = ? AND ended_at IS NOT NULL
    ORDER BY ended_at DESC, seq DESC LIMIT -1 OFFSET ?
)
"""

FORGET = "DELETE FROM run WHERE id IN (SELECT value FROM json_each(?))"

NEWEST_SEQ = "SELECT coalesce(max(seq), 0) FROM run WHERE ended_at IS NOT NULL"

RECORDED_PER_JOB = "SELECT job, sum(runs) FROM run_total GROUP BY job HAVING sum(runs) > 0"

GET_RUN = "SELECT body FROM run WHERE id = ?"
GET_RECORDED = "SELECT body FROM run WHERE id = ? AND ended_at IS NOT NULL"
KNOWN_RUNS = "SELECT id FROM run WHERE id IN (SELECT value FROM json_each(?))"

UNFINISHED = """
SELECT group_concat(body, char(10)) FROM (
    SELECT body FROM run WHERE ended_at IS NULL ORDER BY id LIMIT -1
)
"""

# Newest first, as all lists of bodies; the LIMIT also keeps SQLite from dropping the inner ORDER BY.
_NEWEST_OF_JOB = """
(SELECT group_concat(body, char(10)) FROM (
    SELECT body FROM run WHERE run.job = {job} AND ended_at IS NOT NULL
    ORDER BY ended_at DESC, seq DESC LIMIT :limit
))
"""
_TOTALS_OF_JOB = """
(SELECT json_group_object(outcome, runs) FROM run_total
 WHERE run_total.job = {job} AND runs > 0 AND outcome <> '')
"""

HISTORY = f"SELECT {_NEWEST_OF_JOB.format(job=':job')}, {_TOTALS_OF_JOB.format(job=':job')}"

RECENT = f"""
SELECT known.job, {_NEWEST_OF_JOB.format(job="known.job")}, {_TOTALS_OF_JOB.format(job="known.job")}
FROM (SELECT DISTINCT job FROM run_total WHERE runs > 0) AS known
"""


def runs(*, job: bool, outcome: Outcome | None, node: bool, before: bool, after: bool) -> str:
    """The statement for a page of runs with the conditions that are given: fixed conditions are what lets
    SQLite choose the index that fits."""
    conditions: list[str] = []
    if outcome is not None:
        conditions.append("outcome = :outcome")
        if outcome is not Outcome.SUCCESS:
            conditions.append("outcome <> 'success'")  # Says nothing new, but opens the partial index.
    if before:
        conditions.append("id < :before")
    if after:
        conditions.append("id > :after")
    if node:
        conditions.append("json_extract(body, '$.launch.node') = :node")
    if job:
        rows = _IDS_OF_JOB.format(body=", body" if node else "")
        ids = f"SELECT id FROM ({rows}) WHERE {' AND '.join(conditions) or 'true'} {_PAGE}"
        conditions = [f"id IN ({ids})"]
    where = " AND ".join(conditions) or "true"
    return f"SELECT group_concat(body, char(10)) FROM (SELECT body FROM run WHERE {where} {_PAGE})"


_PAGE = "ORDER BY id DESC LIMIT :limit"
_IDS_OF_JOB = """
SELECT id, outcome{body} FROM run WHERE job = :job AND ended_at IS NOT NULL
UNION ALL SELECT id, NULL AS outcome{body} FROM run WHERE job = :job AND ended_at IS NULL
"""


GET_STATE = "SELECT value FROM job_state WHERE job = ? AND key = ?"
GET_STATES = "SELECT job, value FROM job_state WHERE key = ?"
