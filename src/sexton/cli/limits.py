"""How the limits of a run, and what it used, are told."""

from __future__ import annotations

from sexton.cli.answers import Caps, Resources
from sexton.cli.terminal import Cell, Tone
from sexton.model.limits import LimitFacts, Mechanism, size_text

_HOW = {
    Mechanism.CGROUP_V2: "by its cgroup (v2)",
    Mechanism.CGROUP_V1: "by its cgroup (v1)",
    Mechanism.RLIMIT: "not for the run as a whole: an rlimit bounds less",
    Mechanism.NONE: "NOT ENFORCED",
}


def _caps(limits: Caps | LimitFacts) -> dict[str, str]:
    told = {}
    if limits.cpu is not None:
        told["cpu"] = f"{limits.cpu:g} CPUs"
    if limits.memory_bytes is not None:
        told["memory"] = size_text(limits.memory_bytes)
    if limits.processes is not None:
        told["processes"] = f"{limits.processes} processes"
    return told


def caps_text(limits: Caps) -> str:
    """All caps on one line."""
    return ", ".join(_caps(limits).values()) + (", required" if limits.required else "")


def limit_facts(limits: LimitFacts) -> list[tuple[str, Cell]]:
    """Each cap with what held the run to it, and what it did."""
    rows = []
    for name, cap in _caps(limits).items():
        mechanism = limits.by.get(name, Mechanism.NONE)
        held = name not in limits.unenforced and not limits.refused
        how = "the run was refused" if limits.refused else _HOW[mechanism]
        rows.append((f"limit {name}", Cell(f"{cap}, {how}", Tone.PLAIN if held else Tone.WARN)))
    if limits.reason is not None:
        rows.append(("", Cell(limits.reason, Tone.WARN)))
    did = []
    if limits.memory_exceeded:
        did.append("the memory cap was reached")
    if limits.process_limit_hits:
        did.append(f"{limits.process_limit_hits} processes or threads were refused")
    if limits.cpu_throttled_seconds:
        did.append(f"slowed down for {limits.cpu_throttled_seconds:.3f} s")
    if did:
        rows.append(("", Cell("; ".join(did), Tone.WARN)))
    return rows


def use_facts(used: Resources) -> list[tuple[str, Cell]]:
    whole = used.scope == "tree"
    of = ", all processes" if whole else ""
    memory = f"at most {used.max_rss_bytes / 1024 / 1024:.1f} MiB"
    if used.peak_memory_bytes is not None:
        memory += f" resident, {used.peak_memory_bytes / 1024 / 1024:.1f} MiB by its cgroup"
    if used.max_processes is not None:
        memory += f", in at most {used.max_processes} process{'' if used.max_processes == 1 else 'es'} seen"
    return [
        ("cpu", Cell(f"{used.cpu_user_seconds:.3f} s user, {used.cpu_system_seconds:.3f} s system{of}")),
        ("memory", Cell(memory)),
    ]
