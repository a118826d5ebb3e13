"""Classic cron tables."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sexton.config.crontab import split_percent
from sexton.model.job import DayRule, JobSpec
from sexton.model.settings import Configuration

Load = Callable[..., Configuration]
LoadTable = Callable[[str], Configuration]


@pytest.fixture
def load_table(load_files: Load) -> LoadTable:
    return lambda text: load_files({"t.crontab": text}, "t.crontab")


def test_a_whole_table(load_table: LoadTable) -> None:
    """Variables hold from their line on, nicknames and names pass, the last line needs no end."""
    configuration = load_table(
        "\ufeff# head\r\n\r\n*/5\t1-3 * jan mon-fri  one  two \r\n"
        "SHELL = /bin/bash\r\n\"A\"='b c '\r\nHOME=/srv\r\nCRON_TZ=Asia/Tokyo\r\n"
        "  @Midnight three\r\nA=\r\n@reboot four"
    )
    assert configuration.findings == ()
    one, three, four = configuration.jobs
    assert one == JobSpec(
        name="t.crontab:3", command="one  two", schedule="*/5 1-3 * jan mon-fri", place=one.place
    )
    assert one.utc and one.timezone is None and one.day_rule is DayRule.OR
    assert (three.schedule, three.shell, three.timezone) == ("@daily", "/bin/bash", "Asia/Tokyo")
    assert three.environment == (("SHELL", "/bin/bash"), ("A", "b c "), ("HOME", "/srv"))
    assert three.working_directory == "/srv"
    assert (three.place.line, three.place.column) == (8, 3)
    assert (four.name, four.schedule, dict(four.environment)["A"]) == ("t.crontab:10", "@reboot", "")


@pytest.mark.parametrize(
    ("text", "place", "part"),
    [
        ("* * * *\n", "1:1", "five time fields"),
        ("\n  * * * * *\n", "2:3", "and a command, found 5"),
        ("@daily\n", "1:1", "one nickname"),
        ("* * * * * %in\n", "1:1", "command is empty"),
        ("* * * * * a\x07b\n", "1:12", "U+0007"),
        ("* * * * * a\rb\n", "1:12", "U+000D"),
        ("A=1\0\n", "1:4", "U+0000"),
        ("CRON_TZ=Asia/Tokio\n", "1:1", "unknown time zone"),
        ("''=x\n", "1:1", "name of a variable"),
        ("SHELL=\n", "1:1", "SHELL is empty"),
        ("# sexton: system\n* * * * * root\n", "2:1", "a user and a command"),
    ],
)
def test_bad_line(load_table: LoadTable, text: str, place: str, part: str) -> None:
    """A line that cannot be read is an error with line and column; the other lines count."""
    configuration = load_table(f"{text}@daily good one\n")
    (error,) = configuration.errors
    assert str(error.place).endswith(f"t.crontab:{place}")
    assert part in error.message
    assert len(configuration.jobs) == 1


def test_time_zone_variables(load_table: LoadTable) -> None:
    """TZ sets the zone of the lines below, CRON_TZ wins over it, an empty one means UTC again."""
    jobs = load_table(
        "TZ=Asia/Tokyo\n@daily a\nCRON_TZ=Europe/Paris\n@daily b\n"
        "TZ=Asia/Tokyo\n@daily c\nCRON_TZ=\n@daily d\n"
    ).jobs
    assert [job.timezone for job in jobs] == ["Asia/Tokyo", "Europe/Paris", "Europe/Paris", None]
    assert dict(jobs[2].environment) == {"TZ": "Asia/Tokyo"}


@pytest.mark.parametrize(
    ("rest", "command", "stdin"),
    [
        ("date +\\%F", "date +%F", None),
        ("cat%one%two", "cat", "one\ntwo\n"),
        ("cat \\% %50\\%%", "cat % ", "50%\n\n"),
        ("plain", "plain", None),
        ("cat%", "cat", "\n"),
    ],
)
def test_percent(rest: str, command: str, stdin: str | None) -> None:
    """A bare percent sign begins standard input; an escaped one is a percent sign."""
    assert split_percent(rest) == (command, stdin)


def test_a_bare_percent_warns(load_table: LoadTable) -> None:
    """The old rule is honoured and said; an escaped percent sign is silent."""
    configuration = load_table("@daily date +%F\n@daily date +\\%F\n")
    (warning,) = configuration.findings
    assert warning.place is not None and warning.place.line == 1
    assert "\\%" in (warning.hint or "")
    assert configuration.jobs[0].stdin == "F\n"


def test_mailto_is_said_to_be_ignored(load_table: LoadTable) -> None:
    """MAILTO with an address warns and is not passed on; an empty one is silent."""
    configuration = load_table("MAILTO=a@b\nMAILTO=\n@daily x\n")
    (warning,) = configuration.warnings
    assert "MAILTO" in warning.message
    assert configuration.jobs[0].environment == ()


def test_user_column_only_on_request(load_table: LoadTable) -> None:
    """The user column is read where the first line asks for it, and never guessed."""
    (job,) = load_table("# Sexton: system\n@daily root run it\n").jobs
    assert (job.user, job.command) == ("root", "run it")
    configuration = load_table("@daily root run it\n")
    assert (configuration.jobs[0].user, configuration.jobs[0].command) == (None, "root run it")
    assert "user column" in configuration.warnings[0].message


def test_accounts_are_said_once(load_table: LoadTable) -> None:
    """A table whose commands begin with an account is asked about its user column once for each account."""
    configuration = load_table("@daily root a\n@daily www-data b\n@daily root c\n@daily rooted d\n")
    assert len(configuration.jobs) == 4
    said = [(w.place.line if w.place else 0, w.message.partition(":")[0]) for w in configuration.findings]
    assert said == [
        (1, "the commands of 2 lines would start with `root`"), (2, "the command would start with `www-data`"),
    ]


@pytest.mark.parametrize("user", ["/usr/bin/backup", "FOO=bar", '"root"', "*", "[", "a;b", "~/bin/x"])
def test_what_cannot_be_a_user(load_table: LoadTable, user: str) -> None:
    """A line without its user is an error: cron refuses it, and we would take the program for an account."""
    (error,) = load_table(f"# sexton: system\n@daily {user} --all now\n").errors
    assert "where the user belongs" in error.message


@pytest.mark.parametrize("user", ["root", "www-data", "list", "host$", "ADS\\ann", "ann@example.org", "_ntp", "1000"])
def test_what_can_be_a_user(load_table: LoadTable, user: str) -> None:
    """Whether there is such an account is seen when the job starts."""
    configuration = load_table(f"# sexton: system\n@daily {user} run it\n")
    assert configuration.findings == ()
    assert (configuration.jobs[0].user, configuration.jobs[0].command) == (user, "run it")


def test_a_line_that_is_not_to_be_logged(load_table: LoadTable) -> None:
    """The `-` before the minute or the nickname, of openSUSE's /etc/crontab, has no meaning here."""
    configuration = load_table("# sexton: system\n-*/15 * * * * root run\n-@daily root run\n")
    assert configuration.findings == ()
    assert [job.schedule for job in configuration.jobs] == ["*/15 * * * *", "@daily"]
    assert load_table("- 5 * * * * x\n").jobs[0].schedule == "- 5 * * *"


@pytest.mark.parametrize(
    ("line", "part", "hint"),
    [
        ("*/6 * * * * * one", "six time fields", "YAML"),
        ("0 5 * * * */2 one", "six time fields", "YAML"),
        ("@daily cd /srv && \\", "does not continue", "one line"),
        ("RANDOM_DELAY=45", "RANDOM_DELAY is ignored", "`jitter`"),
    ],
)
def test_what_is_taken_otherwise_than_meant(load_table: LoadTable, line: str, part: str, hint: str) -> None:
    """Cron loads it, and so do we, with a warning."""
    configuration = load_table(f"{line}\n@daily good one\n")
    (warning,) = configuration.findings
    assert warning.place is not None and warning.place.line == 1
    assert part in warning.message and hint in (warning.hint or "")


def test_every_has_a_second_word(load_table: LoadTable) -> None:
    """`@every 5m` is one schedule, so that its refusal can say what to write; the command begins behind it."""
    (job,) = load_table("@every 5m one two\n").jobs
    assert (job.schedule, job.command) == ("@every 5m", "one two")


def test_no_delay_is_silent(load_table: LoadTable) -> None:
    """A RANDOM_DELAY of nothing asks for nothing, and a find that ends in `\\;` goes on nowhere."""
    assert load_table("RANDOM_DELAY=0\n@daily find / -exec rm {} \\;\n").findings == ()


@pytest.mark.parametrize("name", ["t.crontab", "ann"])
def test_comments_in_another_encoding(load_files: Load, name: str) -> None:
    """Cron never looks at a comment, so its bytes do not matter; those of a command do."""
    table = b"# caf\xe9\n\t# \xa9 1998\n@daily echo caf\xc3\xa9\n"
    configuration = load_files({name: table}, name)
    assert configuration.findings == ()
    assert [(job.name, job.command) for job in configuration.jobs] == [(f"{name}:3", "echo caf\u00e9")]
    (error,) = load_files({name: table + b"@daily echo \xe9\n"}, name).errors
    assert "0xe9 is not valid UTF-8" in error.message
    assert error.place is not None and (error.place.line, error.place.column) == (4, 13)


def test_a_table_in_utf16(load_files: Load) -> None:
    """Is told from one with odd comments."""
    (error,) = load_files({"t.crontab": "# x\n@daily y\n".encode("utf-16")}, "t.crontab").errors
    assert "UTF-16" in error.message
