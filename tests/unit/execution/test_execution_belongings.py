"""What a node keeps in folders, when its store is moved to another place."""

from __future__ import annotations

import os
from pathlib import Path

from sexton.execution.birth.wire import NOTHING_LEFT
from sexton.execution.lastwords import LastWords
from sexton.execution.runlog import OutputFiles, log_name


def test_last_words_are_heard_from_the_folder_that_was_left(tmp_path: Path) -> None:
    """A zygote that began before the move has its file in the old folder. The next daemon, which uses the new one,
    hears it there, as often as it asks until it has forgotten it."""
    (tmp_path / "old").mkdir()
    words = LastWords(tmp_path / "old" / "zygotes")
    fd = words.begin()
    assert fd is not None
    words.leave_word(tmp_path / "new" / "zygotes")
    words.move(tmp_path / "new" / "zygotes")
    later = LastWords(tmp_path / "new" / "zygotes")
    os.close(fd)
    assert not later.hear(0.0), "it has died without a word"
    assert not LastWords(tmp_path / "new" / "zygotes").hear(0.0), "the first may have died before it recorded that"
    later.forget()
    assert later.hear(0.0), "and is not asked again"


def test_what_it_has_said_counts(tmp_path: Path) -> None:
    """Also after two moves, and beside a zygote of the new folder."""
    (tmp_path / "a").mkdir()
    words = LastWords(tmp_path / "a" / "zygotes")
    fds = [words.begin()]
    for name in "bc":
        words.leave_word(tmp_path / name / "zygotes")
        words.move(tmp_path / name / "zygotes")
        fds.append(words.begin())
    for fd in fds:
        assert fd is not None
        os.write(fd, NOTHING_LEFT)
        os.close(fd)
    later = LastWords(tmp_path / "c" / "zygotes")
    assert later.hear(0.0)
    later.forget()
    assert not any((tmp_path / name / "zygotes" / f"{os.getpid()}-1").exists() for name in "abc")


def test_a_settled_zygote_leaves_no_file_behind(tmp_path: Path) -> None:
    """What we have seen the end of is removed where it was begun."""
    words = LastWords(tmp_path / "old")
    fd = words.begin()
    words.leave_word(tmp_path / "new")
    words.move(tmp_path / "new")
    assert fd is not None
    os.close(fd)
    words.settle(keep_last=False)
    assert list((tmp_path / "old").iterdir()) == []


def test_output_is_found_in_the_folder_that_was_left(tmp_path: Path) -> None:
    """After a move a run's file is begun in the new folder, and one from before is found and forgotten where it is."""
    files = OutputFiles(tmp_path / "old", 1000)
    try:
        before = tmp_path / "old" / log_name("018f00-before")
        before.parent.mkdir(parents=True)
        before.write_text("x")
        files.move(tmp_path / "new", 1000)
        assert files.parts("018f00-before") == [before]
        assert files.path("018f00-after") == tmp_path / "new" / log_name("018f00-after")
        files.forget(["018f00-before"])
    finally:
        files.close()
    assert not before.exists()
