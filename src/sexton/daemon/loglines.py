"""What a log line is about, as fields: worked out from its template on the thread that writes, so that whoever logs
pays nothing for it."""

from __future__ import annotations

import logging
import re
import time
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

PLACEHOLDER = re.compile(r"%[-#0 +]*\d*(?:\.\d+)?([sdrgfx%])")
CODES = {
    "Starting job %s (run %s)": "run.starting",
    "Verifying job %s (run %s)": "run.verifying",
    "Job %s exit code %s; outcome: %s; fail_reason: %s (run %s)": "run.ended",
    "Job %s was replaced by a newer instance (run %s)": "run.replaced",
    "Job %s exceeded its executionTimeout of %g seconds, cancelling it...": "run.timeout",
    "Job %s: cancel of run %s requested%s%s": "run.cancel-requested",
    "Job %s: still running and concurrencyPolicy is %s%s": "run.overlap",
    "Job %s: internal error in run %s": "run.internal-error",
    "Job %s: %s of run %s is reported to %s": "report.delivered",
    "Job %s: %s of run %s could not be reported to %s: %s%s": "report.failed",
    "configuration taken up: %d jobs added, %d changed, %d removed, %d unchanged": "config.taken-up",
    "configuration not taken up: %s": "config.refused",
    "sexton %s on %s: containment %s%s": "daemon.started",
}
"""Codes that do not change when a line is worded anew. Any other line has one that is made of its logger and the first
words of its template."""
WORDS = 6


class Shape(NamedTuple):
    """What there is to know of all lines of one template."""

    code: str
    job: int | None
    """Which argument names the job."""
    run: int | None


@lru_cache(maxsize=1024)
def shape_of(logger: str, template: str) -> Shape:
    job = run = None
    number = 0
    for found in PLACEHOLDER.finditer(template):
        if found[1] == "%":
            continue
        before = template[: found.start()].lower()
        if job is None and before.endswith("job "):
            job = number
        elif run is None and before.endswith("run "):
            run = number
        number += 1
    return Shape(CODES.get(template) or _made_up(logger, template), job, run)


def _made_up(logger: str, template: str) -> str:
    words = re.findall(r"[a-z]+", PLACEHOLDER.sub(" ", template).lower())
    return f"{logger.rpartition('.')[2]}.{'-'.join(words[:WORDS]) or 'line'}"


class About(NamedTuple):
    code: str
    job: str | None
    run: str | None


def about(record: logging.LogRecord) -> About:
    """What a line is about. `template` and `arguments` are what the line was logged with."""
    template: Any = getattr(record, "template", record.msg)
    arguments: Any = getattr(record, "arguments", None)
    shape = shape_of(record.name, template if isinstance(template, str) else "")
    if not isinstance(arguments, tuple):
        arguments = ()

    def argument(number: int | None) -> str | None:
        return str(arguments[number]) if number is not None and number < len(arguments) else None

    return About(shape.code, argument(shape.job), argument(shape.run))


class JsonLines(logging.Formatter):
    """One JSON object in each line. Usable in a dictConfig: `(): sexton.daemon.loglines.JsonLines`."""

    def __init__(self, node: str = "") -> None:
        super().__init__()
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        what = about(record)
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname, "logger": record.name, "event": what.code, "node": self._node,
        }
        if what.job is not None:
            line["job"] = what.job
        if what.run is not None:
            line["run"] = what.run
        line["message"] = record.getMessage()
        if record.exc_text:
            line["exception"] = record.exc_text
        return msgspec.json.encode(line).decode("utf-8", "replace")


BURST = 20
WINDOW_SECONDS = 10.0
MOST_KEYS = 10_000


class Repeats:
    """Warnings and errors that say the same again and again: the first few of a while are written, then their number. A
    line that names a run is never one of them: each is about another run."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str | None], tuple[float, int, logging.LogRecord]] = {}
        self.suppressed = 0
        """Lines, since the start."""

    @property
    def waiting(self) -> bool:
        """Whether there is a number to be told when its while is over."""
        return bool(self._seen)

    def lets_pass(self, record: logging.LogRecord, now: float) -> bool:
        """Decide for one line; `now` is monotonic seconds."""
        if record.levelno < logging.WARNING:
            return True
        what = about(record)
        if what.run is not None:
            return True
        key = (what.code, what.job)
        since, count, _ = self._seen.get(key, (now, 0, record))
        self._seen[key] = (since, count + 1, record)
        if count < BURST and len(self._seen) <= MOST_KEYS:
            return True
        self.suppressed += 1
        return False

    def summaries(self, now: float, *, all_of_them: bool = False) -> list[logging.LogRecord]:
        """One line for each kind of line that was held back in a while that is over."""
        over = [key for key, (since, _, _) in self._seen.items() if all_of_them or now - since >= WINDOW_SECONDS]
        told = []
        for key in over:
            _, count, last = self._seen.pop(key)
            if count > BURST:
                told.append(_summary(last, count - BURST))
        return told


def _summary(last: logging.LogRecord, count: int) -> logging.LogRecord:
    made = logging.makeLogRecord({**last.__dict__, "exc_text": None})
    made.msg = made.message = f"{last.message} ({count} more lines like this one within {WINDOW_SECONDS:g} seconds)"
    made.created = time.time()
    made.msecs = made.created % 1 * 1000
    return made
