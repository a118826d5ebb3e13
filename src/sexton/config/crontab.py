"""Classic crontab files -> JobSpecs.

A job is called after its file and line (`nightly.crontab:12`). Time is UTC unless CRON_TZ or TZ says
otherwise. A table has a user column only if it begins with the comment `# sexton: system` or lies where cron
keeps such tables (`/etc/crontab`, `/etc/cron.d`): guessing would run a command as somebody else.
"""

from __future__ import annotations

import os
import re

from sexton.config.files import is_system_table
from sexton.config.reading import Claims, Reading, shown
from sexton.config.surroundings import absolute, zone_trouble
from sexton.config.values import CONTROL, name_trouble
from sexton.model.job import JobSpec, Place
from sexton.model.settings import Severity

_ASSIGNMENT = re.compile(
    r"""[ \t]*("[^"]*"|'[^']*'|[A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*(.*)""", re.DOTALL | re.ASCII
)
_SYSTEM = re.compile(r"#\s*sexton:\s*system\s*", re.IGNORECASE)
_PERCENT = re.compile(r"\\%|%")
_NOT_PASSED_ON = frozenset({"MAILTO", "MAILFROM", "CRON_TZ"})
_EVERY = re.compile(r"@every[ \t]", re.IGNORECASE)
"""The one nickname that other schedulers give a second word."""
_UNLOGGED = re.compile(r"-(?=[@*0-9])")
"""How openSUSE and cronie begin a line that their cron is not to log."""
_ONE_FIELD = re.compile(r"\*(?:/[0-9]+)?|\?")
_NO_ACCOUNT = re.compile(r"""[-.~({["'`$*]|[^/]*[/=;|&<>()]""")
"""Programs, assignments and shell syntax, where the user of a line should stand."""
_ACCOUNTS = frozenset(
    {"root", "www-data", "nobody", "apache", "postgres", "ubuntu", "debian", "ec2-user", "vagrant", "pi"}
)
"""Accounts that stand in user columns everywhere and are no commands."""
_FIELDS = "minute, hour, day of month, month, day of week"


def crontab_jobs(reading: Reading, text: str, claims: Claims) -> list[JobSpec]:
    """Read a table; its last line counts with or without a line end. Problems are findings."""
    lines = text.replace("\r\n", "\n").split("\n")
    system = is_system_table(reading.path) or _SYSTEM.fullmatch(lines[0].strip()) is not None
    table = _Table(reading, claims, system=system)
    for number, line in enumerate(lines, 1):
        table.line(number, line)
    table.say_of_accounts()
    return table.jobs


def readable_comments(data: bytes) -> bytes:
    """The table with its comments in UTF-8: cron never looked at them, and old ones are in whatever was usual then."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data
    return b"\n".join(
        line.decode(errors="replace").encode() if line.lstrip(b" \t\xef\xbb\xbf").startswith(b"#") else line
        for line in data.split(b"\n")
    )


class _Table:
    """One crontab and the variables that hold from the current line on."""

    def __init__(self, reading: Reading, claims: Claims, *, system: bool) -> None:
        self.jobs: list[JobSpec] = []
        self._reading = reading
        self._claims = claims
        self._system = system
        self._variables: dict[str, str] = {}
        self._timezone: str | None = None
        self._home: str | None = None
        self._accounts: dict[str, list[Place]] = {}
        """Where a command would begin with the name of an account."""

    def line(self, number: int, line: str) -> None:
        control = CONTROL.search(line.replace("\t", " "))
        if control is not None:
            code = ord(control.group())
            self._error(number, control.start() + 1, f"control character U+{code:04X} in the line")
            return
        content = line.strip()
        if not content or content.startswith("#"):
            return
        column = line.index(content) + 1
        assignment = _ASSIGNMENT.fullmatch(content)
        if assignment is not None:
            self._assign(Place(self._reading.path, number, column), *assignment.groups())
        else:
            self._job(number, column, content)

    def _error(self, number: int, column: int, message: str, hint: str | None = None) -> None:
        self._reading.report(Severity.ERROR, Place(self._reading.path, number, column), message, hint)

    def _assign(self, place: Place, name: str, value: str) -> None:
        name, value = _unquoted(name.strip()), _unquoted(value.strip())
        if not name or "=" in name:
            self._error(place.line, place.column, f"{shown(name)} cannot be the name of a variable")
            return
        if name == "MAILTO" and value:
            message = "MAILTO is ignored: Sexton keeps the output with the run and sends no mail"
            self._reading.report(Severity.WARNING, place, message)
        if name == "RANDOM_DELAY" and value not in ("", "0"):
            message = "RANDOM_DELAY is ignored: the jobs start on time"
            self._reading.report(Severity.WARNING, place, message, "`jitter` spreads the starts of a job in YAML")
        if name == "CRON_TZ" or (name == "TZ" and "CRON_TZ" not in self._variables):
            self._zone(place, name, value.removeprefix(":"))
        if name == "HOME":
            self._home = absolute(value, self._reading)
        if name == "SHELL" and not value:
            self._error(place.line, place.column, "SHELL is empty")
            return
        self._variables[name] = value

    def _zone(self, place: Place, name: str, value: str) -> None:
        trouble = zone_trouble(value, self._reading.zones) if value else None
        if trouble is not None:
            self._error(place.line, place.column, f"{name}: {trouble[0]}", trouble[1])
            return
        self._timezone = value or None

    def _job(self, number: int, column: int, content: str) -> None:
        content = _UNLOGGED.sub("", content, count=1) if content.startswith("-") else content
        width = 5 if not content.startswith("@") else 2 if _EVERY.match(content) else 1
        before = width + (1 if self._system else 0)
        parts = content.split(None, before)
        if len(parts) <= before:
            what = "one nickname" if content.startswith("@") else f"five time fields ({_FIELDS})"
            user = ", a user" if self._system else ""
            message = f"expected {what}{user} and a command, found {len(parts)} word(s)"
            self._error(number, column, message)
            return
        place = Place(self._reading.path, number, column)
        command, stdin = self._percent(place, parts[-1])
        if not command:
            self._error(number, column, "the command is empty")
            return
        schedule = " ".join(parts[:width])
        user_column = parts[width] if self._system else None
        if not self._sensible(place, user_column, command):
            return
        self._add(self._spec(place, schedule, user_column, command, stdin))

    def _sensible(self, place: Place, user_column: str | None, command: str) -> bool:
        """Say what a line seems to have too much or too little of. False for one that cannot be meant."""
        if command.endswith("\\"):
            message = "the `\\` at the end does not continue the line: cron tables have one line for each job"
            self._reading.report(Severity.WARNING, place, message, "write the command in one line")
        if user_column is not None:
            if _NO_ACCOUNT.match(user_column) is None:
                return True
            message = f"{shown(user_column)} stands where the user belongs, and cannot be one"
            self._error(place.line, place.column, message, "a table of this kind has a user before the command")
            return False
        first = command.split()[0]
        if first in _ACCOUNTS:
            self._accounts.setdefault(first, []).append(place)
        elif _ONE_FIELD.fullmatch(first):
            message = f"the command would start with `{first}`: are these six time fields?"
            hint = "a cron table has five; seconds and years are for jobs in YAML"
            self._reading.report(Severity.WARNING, place, message, hint)
        return True

    def say_of_accounts(self) -> None:
        """Once for each account, however long the table is."""
        for account, places in self._accounts.items():
            lines = "the command" if len(places) == 1 else f"the commands of {len(places)} lines"
            message = f"{lines} would start with `{account}`: is this a table with a user column?"
            hint = "begin the file with the comment `# sexton: system`"
            self._reading.report(Severity.WARNING, places[0], message, hint)

    def _spec(
        self, place: Place, schedule: str, user: str | None, command: str, stdin: str | None
    ) -> JobSpec:
        return JobSpec(
            name=f"{os.path.basename(place.file)}:{place.line}",
            command=command,
            schedule="@daily" if schedule.lower() == "@midnight" else schedule,
            place=place,
            stdin=stdin,
            user=user,
            timezone=self._timezone,
            shell=self._variables.get("SHELL", "/bin/sh"),
            working_directory=self._home,
            environment=tuple((k, v) for k, v in self._variables.items() if k not in _NOT_PASSED_ON),
        )

    def _add(self, spec: JobSpec) -> None:
        trouble = name_trouble(spec.name)
        if trouble is not None:
            message = f"the name made from file and line {trouble}: {shown(spec.name)}"
            self._error(spec.place.line, spec.place.column, message, "rename the file")
        elif self._claims.claim(self._reading, spec.name, spec.place):
            for severity, message, hint in self._reading.check_schedule(spec):
                self._reading.report(severity, spec.place, message, hint)
            self.jobs.append(spec)

    def _percent(self, place: Place, rest: str) -> tuple[str, str | None]:
        command, stdin = split_percent(rest)
        if stdin is not None:
            message = f"an unescaped % ends the command: what follows is its standard input, {shown(stdin)}"
            self._reading.report(Severity.WARNING, place, message, r"write \% for a percent sign")
        return command.strip(), stdin


def split_percent(rest: str) -> tuple[str, str | None]:
    r"""Divide a crontab command at its first bare `%`: the rest is standard input, further ones end a line.

    `\%` is a percent sign in both parts. No bare `%`: standard input is None.
    """
    first = next((found for found in _PERCENT.finditer(rest) if found.group() == "%"), None)
    if first is None:
        return rest.replace(r"\%", "%"), None
    stdin = _PERCENT.sub(lambda found: "\n" if found.group() == "%" else "%", rest[first.end() :])
    return rest[: first.start()].replace(r"\%", "%"), stdin + "\n"


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'" else text
