"""How much is measured. `quick` only shows that everything works."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    start: tuple[int, ...]
    """Jobs in the configuration."""
    start_often: int
    """Larger configurations are started in the first round only."""
    burst: int
    record: int
    output_mebibytes: int
    cancels: tuple[int, int, int]
    """Of a sleeper, of a tree, of a stubborn one."""
    tree: int
    proofs: tuple[tuple[int, int], ...]
    """Trees of how many processes, and how often each."""
    stubborn_seconds: int
    reload: int
    crash: int
    history: int
    questions: int
    rounds: int
    """At most; a part may ask for fewer."""


SCALES = {
    "quick": Scale(
        start=(1, 100), start_often=100, burst=50, record=60, output_mebibytes=8, cancels=(4, 2, 2), tree=10,
        proofs=((10, 2),),
        stubborn_seconds=3, reload=200, crash=40, history=100, questions=20, rounds=1,
    ),
    "normal": Scale(
        start=(1, 1000, 10000), start_often=1000, burst=1000, record=500, output_mebibytes=256,
        cancels=(40, 15, 10), tree=100, proofs=((100, 20), (1000, 5)),
        stubborn_seconds=10, reload=3000, crash=1000, history=10000,
        questions=200, rounds=5,
    ),
    "full": Scale(
        start=(1, 1000, 10000), start_often=10000, burst=1000, record=2000, output_mebibytes=1024,
        cancels=(100, 40, 20), tree=100, proofs=((100, 40), (300, 20), (1000, 10)),
        stubborn_seconds=10, reload=3000, crash=10000, history=10000,
        questions=500, rounds=9,
    ),
}
