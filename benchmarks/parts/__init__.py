"""The parts of the comparison, in the order in which they are run."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from harness.scale import Scale
from harness.stage import Case

from parts import burst, cancel, crash, gaps, history, output, proof, record, reports, start

PARTS: dict[str, Callable[[Scale], Iterable[Case]]] = {
    "start": start.cases,
    "burst": burst.cases,
    "record": record.cases,
    "output": output.cases,
    "cancel": cancel.cases,
    "proof": proof.cases,
    "gaps": gaps.cases,
    "crash": crash.cases,
    "history": history.cases,
    "reports": reports.cases,
}
