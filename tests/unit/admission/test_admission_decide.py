"""May it start now: the whole table of policies, states and triggers."""

from __future__ import annotations

import itertools

import pytest

from sexton.admission.decide import Admission, Refusal, Refuse, Replace, Start, decide
from sexton.model.job import ConcurrencyPolicy, JobSpec, Place
from sexton.model.run import Trigger

ALLOW, FORBID, REPLACE = ConcurrencyPolicy.ALLOW, ConcurrencyPolicy.FORBID, ConcurrencyPolicy.REPLACE


def job(policy: ConcurrencyPolicy | None = None, *, enabled: bool = True) -> JobSpec:
    options = {} if policy is None else {"concurrency_policy": policy}
    return JobSpec(
        name="j", command="true", schedule="@daily", place=Place("jobs.yaml", 1, 1), enabled=enabled, **options,
    )


@pytest.mark.parametrize("trigger", Trigger)
@pytest.mark.parametrize(("policy", "running", "expected"), [
    (ALLOW, (), Start()),
    (ALLOW, ("a",), Start()),
    (ALLOW, tuple(map(str, range(1000))), Start()),
    (FORBID, (), Start()),
    (FORBID, ("a",), Refusal.STILL_RUNNING),
    (FORBID, ("a", "b"), Refusal.STILL_RUNNING),
    (REPLACE, (), Start()),
    (REPLACE, ("a",), Replace(("a",))),
    (REPLACE, ("a", "b", "c"), Replace(("a", "b", "c"))),
])
def test_each_policy_for_every_trigger(policy: ConcurrencyPolicy, running: tuple[str, ...], trigger: Trigger,
                                       expected: Admission | Refusal) -> None:
    """Allow starts without bound, Forbid refuses, Replace names every running instance; the trigger changes nothing."""
    answer = decide(job(policy), trigger, running, shutting_down=False)
    assert (answer.refusal if isinstance(answer, Refuse) else answer) == expected


@pytest.mark.parametrize(("policy", "running"), list(itertools.product(ConcurrencyPolicy, [(), ("a",)])))
def test_disabled_and_shutting_down_come_before_the_policy(policy: ConcurrencyPolicy, running: tuple[str, ...]) -> None:
    """A disabled job is started by nobody and replaces nothing; nothing starts once the daemon is shutting down."""
    disabled = decide(job(policy, enabled=False), Trigger.MANUAL, running, shutting_down=False)
    assert isinstance(disabled, Refuse) and disabled.refusal is Refusal.DISABLED
    stopping = decide(job(policy), Trigger.SCHEDULE, running, shutting_down=True)
    assert isinstance(stopping, Refuse) and stopping.refusal is Refusal.SHUTTING_DOWN


def test_a_refusal_names_job_and_policy() -> None:
    """What a caller is told says which job and which rule."""
    answer = decide(job(FORBID), Trigger.MANUAL, ["a"], shutting_down=False)
    assert isinstance(answer, Refuse) and answer.message == "job 'j' is still running and concurrencyPolicy is Forbid"


def test_allow_is_the_default() -> None:
    """A job that says nothing about overlap overlaps."""
    assert decide(job(), Trigger.SCHEDULE, ["a"], shutting_down=False) == Start()


@pytest.mark.parametrize(("policy", "running", "expected"), [
    (ALLOW, (), Start()),
    (FORBID, (), Refusal.UNCONFIRMED),
    (FORBID, ("a",), Refusal.STILL_RUNNING),
    (REPLACE, (), Replace(("z",))),
    (REPLACE, ("a",), Replace(("a", "z"))),
])
def test_a_run_that_could_not_be_terminated_keeps_its_place(
    policy: ConcurrencyPolicy, running: tuple[str, ...], expected: Admission | Refusal,
) -> None:
    """Forbid says which run and what frees its place; Replace waits for it; Allow does not care."""
    answer = decide(job(policy), Trigger.SCHEDULE, running, ("z",), shutting_down=False)
    assert (answer.refusal if isinstance(answer, Refuse) else answer) == expected
    if isinstance(answer, Refuse) and not running:
        assert "run z" in answer.message and "abandon" in answer.message
