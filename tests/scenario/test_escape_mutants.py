"""Each mechanism of containment is switched off in a copy of the package, and a case of the matrix that it stands for
goes wrong: the matrix would notice if it broke."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from escape_walk import walk_at
from escapes import CASES, Level, unavailable

import sexton

pytestmark = pytest.mark.storm

PACKAGE = Path(sexton.__file__).parent
END_SECONDS = 4.0

LIE = "said to be proven gone"
HONEST = "not proven gone"
LATE = "not within"
"""The run's end is never told."""
LEFT = "without a daemon"

Change = tuple[str, str, str]
"""File below the package, a text that occurs in it once, and what takes its place."""

SHORT: tuple[Change, ...] = (
    ("execution/stop.py", "\nCONFIRM_SECONDS = 10.0", "\nCONFIRM_SECONDS = 1.0"),
    ("execution/stop.py", "\nSIGNAL_ANSWER_SECONDS = 5.0", "\nSIGNAL_ANSWER_SECONDS = 0.5"),
    ("execution/stop.py", "\nKILL_ANSWER_SECONDS = 5.0", "\nKILL_ANSWER_SECONDS = 0.5"),
)
"""So that no mutant waits for long; no mechanism rests on these."""

SUBREAPER: Change = ("execution/birth/supervisor.py", "        kernel.become_subreaper()\n", "")
CGROUP_KILL: Change = (
    "execution/birth/zygote.py", "        for name in cgroups_of(number):\n            try:",
    "        for name in ():\n            try:")
SWEEP: Change = ("execution/birth/zygote.py", "                return found\n", "                return set()\n")
WITNESS: Change = ("execution/held.py", "None if self._cgroup is None else said_so or not self.others()",
                   "None if self._cgroup is None else True")


@dataclass(frozen=True)
class Mutant:
    off: str
    changes: tuple[Change, ...]
    level: Level
    case: str
    goes: str
    """How the case goes wrong."""


MUTANTS = (
    Mutant("the supervisor as subreaper", (SUBREAPER,), Level.ROOT, "double_fork", LIE),
    Mutant("all that would end an orphan", (SUBREAPER, SWEEP, CGROUP_KILL), Level.ROOT_CGROUP, "double_fork", HONEST),
    Mutant("the same, and the cgroup as a witness", (SUBREAPER, SWEEP, CGROUP_KILL, WITNESS), Level.ROOT_CGROUP,
           "double_fork", LIE),
    Mutant("the walk over the tree",
           (("execution/birth/walk.py", "killed = self._kill_children()", "killed = 1"),
            ("execution/birth/walk.py", "return killed > 0 or self._kill_all()", "return True")),
           Level.ROOT, "setsid", HONEST),
    Mutant("the zygote's sweep", (SWEEP,), Level.ROOT, "kills_supervisor", LIE),
    Mutant("the zygote as subreaper", (("execution/birth/zygote.py", "        kernel.become_subreaper()\n", ""),),
           Level.ROOT, "kills_supervisor", LIE),
    Mutant("cgroup.kill by the supervisor",
           (("execution/birth/walk.py", '        os.write(kill, b"1")', "        pass"),), Level.USER_CGROUP,
           "suid_root", HONEST),
    Mutant("cgroup.kill by the zygote", (CGROUP_KILL,), Level.USER_CGROUP, "suid_kills_supervisor", LATE),
    Mutant("setting a stopped supervisor going, and ending it",
           (("execution/held.py", "self._signal(signal.SIGCONT)", "pass"),
            ("execution/held.py", "if self.in_cgroup or _is_stopped(self.pid):", "if False:")),
           Level.ROOT, "stops_supervisor", LATE),
    Mutant("the supervisor's answer to the daemon's death",
           (("execution/birth/supervisor.py", "        if not self.released:\n            self.killing = True",
             "        pass"),), Level.ROOT, "daemon_killed", LEFT),
    Mutant("the daemon's own sweep", (("execution/orphans.py", "    foreign = foreign_children(ours)\n    for",
                                       "    foreign: list[int] = []\n    for"),), Level.ROOT, "both_killed", LIE),
    Mutant("the cgroup sweep at the start",
           (("execution/cgroup.py", "        for entry in _entries(top):", "        for entry in ():"),),
           Level.USER_CGROUP, "all_killed", LIE),  # in a cgroup of its own: no other test's daemon sweeps it
    Mutant("asking the zygote's last words",
           (("execution/lastwords.py", "        return all(said)", "        return True"),), Level.ROOT,
           "all_killed", LIE),
)


def mutated(folder: Path, changes: tuple[Change, ...]) -> None:
    """A copy of the package with the changes; what was compiled comes along, because that takes seconds."""
    copy = folder / "sexton"
    shutil.copytree(PACKAGE, copy)
    for name, old, new in changes:
        text = (copy / name).read_text()
        assert text.count(old) == 1, f"{name} has {old!r} {text.count(old)} times"
        (copy / name).write_text(text.replace(old, new))
        for compiled in (copy / name).parent.glob(f"__pycache__/{(copy / name).stem}.*"):
            compiled.unlink()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.off)
def test_without_a_mechanism_the_matrix_fails(mutant: Mutant, tmp_path: Path) -> None:
    """The case is judged wrong, and in the way that this mechanism prevents."""
    [case] = [replace(case, captures=False) for case in CASES if case.name == mutant.case]  # held output costs time
    if why := unavailable(mutant.level) or case.needs(mutant.level):
        pytest.skip(why)
    mutated(tmp_path, (*SHORT, *mutant.changes))
    with walk_at(mutant.level, tmp_path / "walk", (case,), END_SECONDS) as walk:
        walk.rig.environment["PYTHONPATH"] = str(tmp_path)
        walk.rig.environment["PYTHONDONTWRITEBYTECODE"] = "1"
        seen = walk.run()[case.name]
    assert isinstance(seen, Exception) and mutant.goes in str(seen), f"without {mutant.off}: {seen}"


@pytest.mark.parametrize("level", Level, ids=lambda level: level.name.lower())
def test_what_the_mutants_change_is_what_they_name(level: Level, tmp_path: Path) -> None:
    """With the shorter bounds alone the cases go right."""
    names = {mutant.case for mutant in MUTANTS if mutant.level is level}
    cases = tuple(case for case in CASES if case.name in names)
    if why := unavailable(level):
        pytest.skip(why)
    if not cases:
        pytest.skip("no mutant at this level")
    mutated(tmp_path, SHORT)
    with walk_at(level, tmp_path / "walk", cases, END_SECONDS) as walk:
        walk.rig.environment["PYTHONPATH"] = str(tmp_path)
        assert [seen for seen in walk.run().values() if isinstance(seen, Exception)] == []
