"""What a pass decides: on time, late, with the clock set, and while the set of jobs changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fires import fires
from sexton.schedule.agenda import Agenda, Pass
from sexton.schedule.expression import CronExpression, parse
from sexton.schedule.occurrences import Occurrences, occurrences_of

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
EVERY_SECOND = "* * * * * * *"
EVERY_MINUTE = "* * * * *"


def cron(text: str) -> Occurrences:
    expression = parse(text, seed="job")
    assert isinstance(expression, CronExpression)
    return occurrences_of(expression)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def agenda(now: float = 0, **jobs: str) -> Agenda:
    made = Agenda(at(now))
    for job, text in jobs.items():
        made.add(job, cron(text), at(now))
    return made


def fired(found: Pass) -> list[tuple[str, float]]:
    """Each due occurrence as job and seconds after noon."""
    return [(due.job, (due.scheduled_for - NOON).total_seconds()) for due in found.due]


def test_a_job_is_seeded_strictly_in_the_future() -> None:
    """A job added in its own second waits for the next one: a start of the daemon runs nothing at once."""
    made = agenda(job=EVERY_MINUTE)
    assert made.next_of("job") == at(60)
    assert made.pop_due(at(0)) == Pass()
    assert fired(made.pop_due(at(60))) == [("job", 60)]
    assert made.next_instant() == at(120)


def test_a_pass_is_in_order() -> None:
    """Everything due comes in the order of its instants, whatever order the jobs were added in."""
    made = agenda(c="3 0 12 * * * *", b="1 0 12 * * * *", a="2 0 12 * * * *")
    assert fired(made.pop_due(at(5))) == [("b", 1), ("a", 2), ("c", 3)]


def test_a_pass_up_to_ten_seconds_late_makes_up_for_all() -> None:
    """Nine seconds late, each missed second still fires, in order, once."""
    made = agenda(job=EVERY_SECOND)
    assert fired(made.pop_due(at(10))) == [("job", second) for second in range(1, 11)]
    assert made.pop_due(at(10.9)) == Pass()
    assert fired(made.pop_due(at(11))) == [("job", 11)]


def test_a_later_pass_resumes_at_the_current_second() -> None:
    """From ten seconds on, a schedule with seconds resumes at the second of the pass and reports the rest."""
    made = agenda(job=EVERY_SECOND)
    found = made.pop_due(at(11))
    assert fired(found) == [("job", 11)]
    (skipped,) = found.skipped
    assert (skipped.job, skipped.count, skipped.exact) == ("job", 10, True)
    assert (skipped.first, skipped.last, skipped.late_by) == (at(1), at(10), 10)


def test_a_current_second_that_does_not_match_fires_nothing() -> None:
    """Resuming fires the current slot only when the schedule has it."""
    made = agenda(job="*/20 * * * * * *")
    found = made.pop_due(at(31))
    assert fired(found) == []
    assert found.skipped[0].count == 1
    assert made.next_of("job") == at(40)


def test_a_later_pass_resumes_at_the_current_minute() -> None:
    """A schedule by minutes fires the current minute's occurrence, however far into it the pass is."""
    made = agenda(job=EVERY_MINUTE)
    found = made.pop_due(at(5 * 60 + 45))
    assert fired(found) == [("job", 300)]
    assert (found.skipped[0].count, found.skipped[0].last) == (4, at(240))
    assert made.next_of("job") == at(360)


def test_lateness_is_each_job_s_own() -> None:
    """A late pass makes up for the job that is a little late and resumes the one that is very late."""
    made = agenda(little="58 0 12 * * * *", very="0 * * * * * *", seconds="10-20 0 12 * * * *")
    found = made.pop_due(at(65))
    assert fired(found) == [("little", 58), ("very", 60)]
    assert [(each.job, each.count) for each in found.skipped] == [("seconds", 11)]


def test_a_jump_forward_is_no_storm() -> None:
    """A year asleep costs one run and one line per job, and no time to speak of."""
    made = agenda(seconds=EVERY_SECOND, minutes=EVERY_MINUTE, daily="0 12 * * *")
    later = datetime(2027, 5, 1, 12, 0, 30, tzinfo=UTC)
    found = made.pop_due(later)
    assert sorted(due.job for due in found.due) == ["daily", "minutes", "seconds"]
    counts = {each.job: (each.count, each.exact) for each in found.skipped}
    assert counts == {"seconds": (1000, False), "minutes": (1000, False), "daily": (364, True)}
    last = {each.job: each.last for each in found.skipped}
    assert last["daily"] == datetime(2027, 4, 30, 12, tzinfo=UTC)
    assert last["seconds"] == later - timedelta(seconds=1)


def test_counting_what_was_skipped_is_bounded_for_all_jobs() -> None:
    """A thousand jobs that slept do not each count to a thousand."""
    made = Agenda(NOON)
    for number in range(1000):
        made.add(f"job {number}", cron(f"{number % 60} * * * *"), NOON)
    found = made.pop_due(NOON + timedelta(days=300))
    assert len(found.skipped) == 1000
    assert sum(each.count for each in found.skipped) < 22_000


def test_a_clock_set_back_refires_nothing() -> None:
    """After a step back the occurrences that fired stay fired, and the next new one comes at its time."""
    made = agenda(job=EVERY_MINUTE)
    for minute in range(1, 11):
        assert len(made.pop_due(at(60 * minute)).due) == 1
    for minute in range(4, 11):
        assert made.pop_due(at(60 * minute + 0.5)) == Pass()
    assert fired(made.pop_due(at(660))) == [("job", 660)]


def test_a_job_changed_after_a_step_back_refires_nothing() -> None:
    """Nor when a job was changed, or removed and put back, in the repeated time."""
    made = agenda(one=EVERY_MINUTE, two=EVERY_MINUTE)
    made.pop_due(at(60))
    made.pop_due(at(30))
    made.remove("one")
    made.pop_due(at(31))
    assert made.add("one", cron(EVERY_MINUTE), at(32)) == at(120)
    assert made.add("two", cron("*/1 * * * *"), at(32)) == at(120)


def test_a_clock_that_was_far_ahead_silences_nobody() -> None:
    """A daemon that began in the wrong year goes on at once when the clock is put right."""
    wrong = 86400 * 3650
    made = agenda(wrong, job=EVERY_MINUTE)
    assert fired(made.pop_due(at(wrong + 60))) == [("job", wrong + 60)]
    assert made.pop_due(at(30)) == Pass()
    assert fired(made.pop_due(at(60))) == [("job", 60)]


def test_a_jump_forward_and_back_loses_and_repeats_nothing() -> None:
    """Time that was only jumped over is lived when it comes; the minute the jump fired is not repeated."""
    made = agenda(job=EVERY_MINUTE)
    assert fired(made.pop_due(at(60))) == [("job", 60)]
    assert fired(made.pop_due(at(600))) == [("job", 600)]
    times: list[tuple[str, float]] = []
    for second in range(61, 800):
        times += fired(made.pop_due(at(second)))
    assert times == [("job", 60 * minute) for minute in (2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13)]


def test_a_step_back_onto_an_instant_fires_it() -> None:
    """The clock is put right to exactly an occurrence that was never reached: it is due."""
    made = agenda(86400, job=EVERY_MINUTE)
    assert fired(made.pop_due(at(60))) == [("job", 60)]


def test_an_equal_schedule_keeps_its_next_instant() -> None:
    """A reload while a pass is overdue loses nothing: unchanged jobs still get what they were due."""
    made = agenda(same=EVERY_MINUTE, gone=EVERY_MINUTE, other=EVERY_MINUTE)
    jobs = {"same": cron(EVERY_MINUTE), "other": cron("*/5 * * * *"), "new": cron(EVERY_MINUTE)}
    made.replace(jobs, at(61))
    assert len(made) == 3 and "gone" not in made
    assert fired(made.pop_due(at(62))) == [("same", 60)]
    assert (made.next_of("other"), made.next_of("new")) == (at(300), at(120))


def test_removed_and_added_again_keeps_its_next_instant() -> None:
    """So does a reload that takes a job out and puts it back before the next pass."""
    made = agenda(job=EVERY_MINUTE)
    made.remove("job")
    assert made.next_instant() is None
    assert made.add("job", cron(EVERY_MINUTE), at(61)) == at(60)
    assert fired(made.pop_due(at(62))) == [("job", 60)]
    made.remove("job")
    assert made.pop_due(at(121)) == Pass()
    assert made.add("job", cron(EVERY_MINUTE), at(122)) == at(180)


def test_adding_a_job_refires_no_other() -> None:
    """A change of the job set between two passes fires no job again."""
    made = agenda(job=EVERY_MINUTE)
    assert fired(made.pop_due(at(60))) == [("job", 60)]
    for number in range(100):
        made.add(f"new {number}", cron("0 0 * * *"), at(60.5))
        made.add("job", cron(EVERY_MINUTE), at(60.5))
    assert made.pop_due(at(61)) == Pass()
    assert made.next_instant() == at(120)


def test_a_job_that_never_fires_is_kept() -> None:
    """It is on the agenda, with no next instant, and does not disturb the others."""
    made = agenda(never="0 0 30 2 *", job=EVERY_MINUTE)
    assert made.next_of("never") is None and "never" in made
    assert made.next_instant() == at(60)


def test_the_heap_is_bounded() -> None:
    """Changing one job's schedule over and over leaves no pile of outdated entries."""
    made = agenda(job=EVERY_MINUTE)
    for number in range(5000):
        made.add("job", cron(f"{number % 60} 1 * * *"), at(0))
    assert len(made._heap) < 100
    assert made.next_instant() == made.next_of("job")


def test_due_within_counts_jobs_ahead() -> None:
    """The look ahead counts jobs that are due by then, overdue ones too, removed ones not."""
    made = agenda(a="5 * * * * * *", b="10 * * * * * *", c="50 * * * * * *", d="5 * * * * * *")
    made.remove("d")
    assert [made.due_within(at(0), seconds) for seconds in (4, 5, 10, 49.5, 50)] == [0, 1, 2, 2, 3]
    assert made.due_within(at(20), 0) == 2
    assert Agenda(at(0)).due_within(at(0), 1000) == 0


@pytest.mark.parametrize("texts", [(EVERY_MINUTE, "*/7 * * * * * *", "30 */2 * * * * *")])
@given(steps=st.lists(st.one_of(st.integers(-400, 400), st.integers(1, 9)), min_size=1, max_size=60))
@settings(max_examples=150, deadline=None)
def test_no_occurrence_fires_twice(texts: tuple[str, ...], steps: list[int]) -> None:
    """However the clock is set to and fro, an occurrence fires at most once and never before its time."""
    made = Agenda(NOON)
    for number, text in enumerate(texts):
        made.add(f"job {number}", cron(text), NOON)
    seen: set[tuple[str, datetime]] = set()
    now = 0
    for step in steps:
        now += step
        found = made.pop_due(at(now))
        for due in found.due:
            assert due.scheduled_for <= at(now)
            assert (due.job, due.scheduled_for) not in seen
            seen.add((due.job, due.scheduled_for))
        coming = made.next_instant()
        assert coming is not None and coming > at(now)


@given(steps=st.lists(st.integers(1, 9), min_size=1, max_size=80))
@settings(max_examples=80, deadline=None)
def test_a_steady_clock_loses_nothing(steps: list[int]) -> None:
    """With passes less than ten seconds apart every occurrence fires, in order."""
    made = agenda(seconds="*/3 * * * * * *", minutes=EVERY_MINUTE)
    times: dict[str, list[datetime]] = {"seconds": [], "minutes": []}
    now = 0
    for step in steps:
        now += step
        for due in made.pop_due(at(now)).due:
            times[due.job].append(due.scheduled_for)
    assert times["seconds"] == fires(cron("*/3 * * * * * *"), NOON, at(now), 10_000)
    assert times["minutes"] == fires(cron(EVERY_MINUTE), NOON, at(now), 10_000)
