"""What a supervisor tells of a run that outlived a daemon: read as it was meant, or refused with a reason."""

from __future__ import annotations

from typing import Any

import pytest

from sexton.execution.birth import wire
from sexton.execution.birth.vigil import VERSION
from sexton.execution.messages import Emptied, Exited, Signalled, Started, StartFailed
from sexton.execution.story import LARGEST, StoryError, read_story

BASE: dict[str, Any] = {
    "version": VERSION, "run": "r", "terms": b"{}", "clock": (5_000_000_000, 9_000_000_000),
    "supervisor": 7, "zygote": 6, "cgroup": "/c",
}


def in_cgroup(said_so: bool) -> bool | None:
    return said_so


def told(**more: Any) -> bytes:
    return repr({**BASE, **more}).encode()


def test_the_messages_are_those_of_a_daemon_that_was_there() -> None:
    """In order, with their instants, the second witness included."""
    story = read_story(told(
        started=(42, 1_000_000_000, 0, 0), signalled=(2_000_000_000, 0, 0), exited=(15, 2_500_000_000, 3_000_000, 0, 8),
        empty=(2_600_000_000, wire.CGROUP_EMPTY), something_newer="unread",
    ))
    messages = story.messages(in_cgroup)
    assert [type(message) for message in messages] == [Started, Signalled, Exited, Emptied]
    started, _, exited, emptied = messages
    assert isinstance(started, Started) and started.pid == 42 and started.at == 1.0
    assert isinstance(exited, Exited) and exited.status == 15 and exited.usage.cpu_user_seconds == 3.0
    assert isinstance(emptied, Emptied) and emptied.cgroup_empty is True
    assert [message.at for message in story.messages(in_cgroup, 10.0)] == [11.0, 12.0, 12.5, 12.6]  # type: ignore[union-attr]


def test_without_a_cgroup_there_is_no_second_witness() -> None:
    """None is not False."""
    (emptied,) = read_story(told(cgroup=None, empty=(1, 0))).messages(lambda _: None)
    assert isinstance(emptied, Emptied) and emptied.cgroup_empty is None


def test_a_start_that_failed() -> None:
    """Errno and stage in words."""
    (failed,) = read_story(told(failed=(2, wire.STAGE_DIRECTORY, 1))).messages(in_cgroup)
    assert isinstance(failed, StartFailed) and failed.errno == 2 and "workingDirectory" in failed.what


@pytest.mark.parametrize("data", [
    b"", b"nonsense (", b"\xff\xfe", b"[1, 2]", b"{}", b"__import__('os').getpid()", b"(" * 10_000,
    told(started="soon"), told(clock=None), told(output={"a": 1}), b" " * (LARGEST + 1),
])
def test_what_is_no_story_is_refused(data: bytes) -> None:
    """Nothing of it is executed, and nobody crashes over it."""
    with pytest.raises(StoryError, match=r"it cannot be read|it has more than"):
        read_story(data)


def test_another_version_is_named() -> None:
    """So that the run can be held, and not be taken for one that is lost."""
    with pytest.raises(StoryError, match="version 99"):
        read_story(told(version=99, started="in another form"))
