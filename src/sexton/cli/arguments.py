"""What can be typed: every command and option, in one place. docs/reference/cli.md is checked against it."""

from __future__ import annotations

import argparse
import math
from typing import Any

from sexton import __version__
from sexton.cli.options import CONFIG_FLAGS, DEFAULT_CONFIG, DEFAULT_LEVEL, LEVEL_FLAGS, LEVELS
from sexton.cli.times import instant_in, seconds_in

DEFAULT_RUNS = 20
MAX_COUNT = 1000
OUTCOMES = ("success", "failure", "cancelled", "replaced", "skipped", "unknown")

_STATUSES = "exit status: 0 done, 1 failed or refused, 2 usage, 3 no daemon answers, 4 no such job, run or pool"


class Parser(argparse.ArgumentParser):
    """Options are written out in full: an abbreviation that works today may be ambiguous tomorrow."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """A word that is no command: the nearest one is named, or how to start a daemon from a file of that name."""
        if action.dest not in ("command", "part") or action.choices is None or value in action.choices:
            return super()._check_value(action, value)
        import difflib  # seldom needed, and commands are to be quick
        import os

        known = [str(choice) for choice in action.choices]
        hint = ""
        if close := difflib.get_close_matches(value, known):
            swapped = next((word for word in close if sorted(word) == sorted(value)), close[0])
            hint = f"; did you mean {swapped!r}?"
        elif os.path.exists(value):
            hint = f"; to run the daemon with it: sexton -c {value}"
        raise argparse.ArgumentError(None, f"{value!r} is no command{hint} (commands: {', '.join(known)})")


def make_parser() -> Parser:
    parser = Parser(
        prog="sexton",
        description="A job scheduler: runs start on time, and end for certain.",
        epilog=f"Without a command, the daemon runs in the foreground. {_STATUSES}.",
    )
    _add_reach(parser, None)
    parser.add_argument(
        *LEVEL_FLAGS,
        default=DEFAULT_LEVEL,
        choices=LEVELS,
        type=str.upper,
        help="log level of the daemon (default INFO)",
    )
    parser.add_argument(
        "-v", "--validate-config", action="store_true", help="check the configuration and exit"
    )
    parser.add_argument(
        "--job-set-id", action="store_true",
        help="print a digest of the jobs and exit: nodes with another one have other jobs",
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.set_defaults(command=None)
    known = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for add in (_add_check, _add_doctor, _add_showing, _add_commanding, _add_schedule, _add_state):
        add(known)
    return parser


def _add_reach(parser: argparse.ArgumentParser, default: object) -> None:
    """How to find the daemon: allowed before and after the command, so only the first parser has defaults."""
    parser.add_argument(
        *CONFIG_FLAGS,
        metavar="PATH",
        default=default,
        help=f"configuration file or folder (default {DEFAULT_CONFIG})",
    )
    parser.add_argument(
        "--url",
        metavar="URL",
        default=default,
        help="the daemon: http://HOST:PORT or unix:///PATH (default: SEXTON_URL, else the first "
        "web.listen of the configuration, else http://127.0.0.1:8420)",
    )


def _command(commands: Any, name: str, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=f"{text}.", epilog=_STATUSES
    )
    return parser


def _client(commands: Any, name: str, text: str, *, as_json: bool = True) -> argparse.ArgumentParser:
    parser = _command(commands, name, text)
    _add_reach(parser, argparse.SUPPRESS)
    if as_json:
        _add_json(parser)
    return parser


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="JSON for programs, as the API has it")


def _add_check(commands: Any) -> None:
    parser = _command(commands, "check", "Check configurations: all errors, with their places")
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a file, or a folder of files")
    _add_json(parser)


def _add_doctor(commands: Any) -> None:
    parser = _command(commands, "doctor", "What this machine gives, and the one thing to change for more")
    parser.add_argument(
        *CONFIG_FLAGS,
        metavar="PATH",
        default=argparse.SUPPRESS,
        help="also try what the jobs of this file or folder need",
    )
    _add_json(parser)


def _add_showing(commands: Any) -> None:
    _client(commands, "jobs", "All jobs: state, next and last run")
    runs = _client(commands, "runs", "Runs, newest first")
    runs.add_argument("--job", type=_text, metavar="JOB", help="only runs of this job")
    runs.add_argument("--outcome", choices=OUTCOMES, help="only runs with this outcome")
    runs.add_argument("--node", type=_text, metavar="NODE", help="only runs that were started on this node")
    runs.add_argument("--since", type=_instant, metavar="TIME", help="only runs launched at or after this")
    runs.add_argument("--until", type=_instant, metavar="TIME", help="only runs launched before this")
    runs.add_argument(
        "--limit",
        type=_count,
        default=DEFAULT_RUNS,
        metavar="N",
        help=f"how many, at most {MAX_COUNT} (default {DEFAULT_RUNS})",
    )
    _add_what(_client(commands, "show", "Everything about a job or a run"))
    logs = _client(commands, "logs", "Output of a run, or of the running or last run of a job", as_json=False)
    _add_what(logs)
    logs.add_argument(
        "-f",
        "--follow",
        action="store_true",
        help="go on until the run has ended; for a job, with every later run",
    )
    pools = _client(commands, "pools", "Pools: slots, who holds them, who waits for some and why")
    pools.add_argument("pool", type=_text, nargs="?", metavar="POOL", help="everybody in this one (default: all pools)")
    _client(commands, "nodes", "The nodes that share the store: what they run and hold, and their clocks")
    _client(commands, "health", "Whether the daemon does its work, and what it could not do")


def _add_commanding(commands: Any) -> None:
    start = _client(commands, "start", "Start a run now; prints its id")
    start.add_argument("job", type=_text, metavar="JOB")
    start.add_argument(
        "--wait",
        nargs="?",
        type=_wait,
        const=math.inf,
        metavar="SECONDS",
        help="wait for its end, at most so long; exit status 0 only for a success",
    )
    start.add_argument("--by", type=_text, metavar="WHO", help="who asks (default: user@host)")
    cancel = _client(commands, "cancel", "Stop a run, or all runs of a job, and say what was proven")
    _add_what(cancel)
    cancel.add_argument("--reason", type=_text, metavar="TEXT", help="kept in the record")
    cancel.add_argument("--by", type=_text, metavar="WHO", help="who asks (default: user@host)")
    cancel.add_argument("--queued", action="store_true", help="of a job, also the runs that wait for its pool")
    cancel.add_argument("--force", action="store_true", help="no grace period, or no more of it")
    cancel.add_argument(
        "--wait",
        type=_span,
        default=math.inf,
        metavar="SECONDS",
        help="wait at most so long for the end; 0 does not wait (default: until the end)",
    )
    pause = _client(commands, "pause", "Hold the schedule and the retries of a job, for a bounded time")
    pause.add_argument("job", type=_text, metavar="JOB")
    pause.add_argument("--for", dest="seconds", type=_span, metavar="SECONDS", help="how long (default: one hour)")
    pause.add_argument("--note", type=_text, metavar="TEXT", help="why; shown with the job")
    pause.add_argument("--by", type=_text, metavar="WHO", help="who asks (default: user@host)")
    resume = _client(commands, "resume", "End the pause of a job")
    resume.add_argument("job", type=_text, metavar="JOB")
    resume.add_argument("--by", type=_text, metavar="WHO", help="who asks (default: user@host)")
    abandon = _client(
        commands, "abandon", "Give up the place of a run that could not be terminated, so that its job can run again"
    )
    abandon.add_argument("run", type=_text, metavar="RUN_ID")
    abandon.add_argument("--reason", type=_text, metavar="TEXT", help="kept in the record")
    abandon.add_argument("--by", type=_text, metavar="WHO", help="who answers for it (default: user@host)")
    _client(commands, "reload", "Load the configuration again and apply it, whole or not at all")


def _add_schedule(commands: Any) -> None:
    following = _client(commands, "next", "What is due next, asked of a daemon or read from a file")
    following.add_argument(
        "job", type=_text, nargs="?", metavar="JOB", help="more times of this job (default: one of each)"
    )
    following.add_argument("--count", type=_count, metavar="N", help=f"how many, at most {MAX_COUNT}")
    following.add_argument(
        "--within", type=_span, metavar="SECONDS", help="how far ahead (default: one day; no end for a JOB)"
    )
    _add_file(following)
    explain = _client(commands, "explain", "Why a job is or is not due at an instant, field by field")
    explain.add_argument("job", type=_text, metavar="JOB")
    explain.add_argument(
        "--at", type=_instant, metavar="TIME", help="ISO 8601; local without an offset (default: now)"
    )
    _add_file(explain)


def _add_state(commands: Any) -> None:
    state = _command(commands, "state", "Back up, restore, check or move what the store of a configuration keeps")
    parts = state.add_subparsers(dest="part", metavar="WHAT", parser_class=Parser, required=True)
    backup = _command(parts, "backup", "Everything that the store keeps into one file, beside running daemons")
    backup.add_argument("-o", "--output", metavar="FILE", required=True, help="the file; - for standard output")
    restore = _command(parts, "restore", "What a backup holds into the store, which must be empty")
    restore.add_argument("file", metavar="FILE")
    check = _command(parts, "check", "Read the whole store and say what is in it, and what is damaged")
    _add_json(check)
    migrate = _command(parts, "migrate", "Copy the store to another one, which must be empty; the old one stays")
    to = migrate.add_mutually_exclusive_group(required=True)
    to.add_argument("--to", metavar="URL_OR_PATH", help="a database, or a folder")
    to.add_argument("--to-env", metavar="VARIABLE", help="the variable that has it, for a URL with a password")
    migrate.add_argument("--topology", choices=("auto", "single-node", "shared"), default="auto",
                         help="of a folder, as in `state` (default auto)")
    migrate.add_argument("--deployment-id", metavar="ID", help="in the new store (default: as in the old one)")
    migrate.add_argument("--live", action="store_true",
                         help="copy although a daemon works on a store of one node; what it writes then is missing")
    for parser in (restore, migrate):
        parser.add_argument("--force", action="store_true",
                            help="also where there is something already: nothing is replaced by what is older")
    for parser in (backup, restore, check, migrate):
        parser.add_argument("-c", "--config", metavar="PATH", default=argparse.SUPPRESS,
                            help=f"configuration file or folder (default {DEFAULT_CONFIG})")


def _add_what(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", type=_text, metavar="JOB_OR_RUN_ID")


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--file", metavar="PATH", help="ask this file or folder, not a daemon; so does -c PATH"
    )


def _text(text: str) -> str:
    if not text.isprintable() and any("\ud800" <= character <= "\udfff" for character in text):
        raise argparse.ArgumentTypeError(f"{text!r} is not UTF-8")
    return text


def _count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value <= MAX_COUNT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {MAX_COUNT}")
    return value


def _span(text: str) -> float:
    try:
        return seconds_in(text)
    except ValueError as wrong:
        raise argparse.ArgumentTypeError(str(wrong)) from None


def _wait(text: str) -> float:
    try:
        return seconds_in(text)
    except ValueError as wrong:
        raise argparse.ArgumentTypeError(f"{wrong}; the job stands before --wait") from None


def _instant(text: str) -> Any:
    try:
        return instant_in(text)
    except ValueError as wrong:
        raise argparse.ArgumentTypeError(str(wrong)) from None
