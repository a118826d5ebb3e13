"""`resourceLimits` and `monitorResources`: what is accepted, what they become, how a job differs from `defaults`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sexton.model.job import JobSpec
from sexton.model.limits import Monitoring, ResourceLimits, exceeded_text, size_text
from sexton.model.settings import Configuration

LoadJob = Callable[..., JobSpec]
HEAD = "jobs:\n  - name: a\n    command: x\n    schedule: '@daily'\n"


@pytest.mark.parametrize(("text", "size"), [
    ("512M", 512 * 2**20), ("512MB", 512 * 2**20), ("512MiB", 512 * 2**20), ("512 Mi", 512 * 2**20),
    ("1.5GiB", 3 * 2**29), ("2Gi", 2**31), ("2g", 2**31), ("1048576", 2**20), ("1048576B", 2**20), ("'1024K'", 2**20),
    ("0.1G", 107374182), (".5G", 2**29), ("1T", 2**40), ("7EiB", 7 * 2**60), ("9223372036854775807", 2**63 - 1),
])
def test_sizes_are_powers_of_1024(load_job: LoadJob, text: str, size: int) -> None:
    """Every spelling of a unit means the same, fractions are exact."""
    assert load_job(f"resourceLimits: {{memory: {text}}}").resource_limits == ResourceLimits(memory=size)


def test_all_caps(load_job: LoadJob) -> None:
    """Each cap arrives as what it is; the bounds themselves are allowed."""
    limits = load_job("resourceLimits: {cpu: '0.01', memory: 1M, processes: 4194304, required: true}").resource_limits
    assert limits == ResourceLimits(cpu=0.01, memory=2**20, processes=4194304, required=True)
    assert load_job("resourceLimits: {cpu: 1000000, processes: 1}").resource_limits == ResourceLimits(
        cpu=1e6, processes=1)


@pytest.mark.parametrize("line", [
    "resourceLimits: null", "resourceLimits:", "resourceLimits: {}", "resourceLimits: {required: true}",
    "resourceLimits: {cpu: max, memory: max, processes: max, required: true}",
])
def test_no_cap_is_no_limit(load_job: LoadJob, line: str) -> None:
    """Where nothing is capped nothing is held, and nothing can be refused."""
    assert load_job(line).resource_limits is None


@pytest.mark.parametrize(("line", "expected"), [
    ("", ResourceLimits(cpu=2.0, memory=2**29, required=True)),
    ("resourceLimits: {memory: 1G}", ResourceLimits(cpu=2.0, memory=2**30, required=True)),
    ("resourceLimits: {memory: max}", ResourceLimits(cpu=2.0, required=True)),
    ("resourceLimits: {processes: 8, required: false}", ResourceLimits(cpu=2.0, memory=2**29, processes=8)),
    ("resourceLimits: null", None),
    ("resourceLimits: {memory: max, cpu: max}", None),
])
def test_a_job_differs_from_defaults_cap_by_cap(load_job: LoadJob, line: str, expected: ResourceLimits | None) -> None:
    """Caps merge by name; `max` opts out of one, null of all."""
    top = "defaults:\n  resourceLimits: {cpu: 2, memory: 512M, required: true}\n"
    assert load_job(line, top=top).resource_limits == expected


@pytest.mark.parametrize(("line", "expected"), [
    ("monitorResources: true", Monitoring()),
    ("monitorResources: 'false'", None),
    ("monitorResources: null", None),
    ("monitorResources: {interval: 0.1, history: 0}", Monitoring(interval=0.1, history=0)),
    ("monitorResources: {enabled: false, interval: 5}", None),
    ("monitorResources: {}", Monitoring()),
])
def test_monitoring(load_job: LoadJob, line: str, expected: Monitoring | None) -> None:
    """A word or a map; a map turns it on."""
    assert load_job(line).monitor_resources == expected


def test_monitoring_keeps_the_interval_of_defaults(load_job: LoadJob) -> None:
    """`true` in a job turns on what `defaults` describe; `false` turns it off."""
    top = "defaults:\n  monitorResources: {enabled: false, interval: 5}\n"
    assert load_job("monitorResources: true", top=top).monitor_resources == Monitoring(interval=5.0)
    assert load_job("", top=top).monitor_resources is None


@pytest.mark.parametrize(("line", "place", "words"), [
    ("resourceLimits: 512M", "5:21", ("a map of caps", "{memory: 512M")),
    ("resourceLimits: {mem: 512M}", "5:22", ("unknown option 'mem' in `resourceLimits`",)),
    ("memory: 512M", "5:5", ("`memory` belongs in `resourceLimits`",)),
    ("resourceLimits: {memory: 512Q}", "5:30", ("a size such as 512M or 1.5GiB, or `max`, got '512Q'",)),
    ("resourceLimits: {memory: -5M}", "5:30", ("a size such as",)),
    ("resourceLimits: {memory: }", "5:30", ("empty",)),
    ("resourceLimits: {memory: 1023K}", "5:30", ("at least 1 MiB, got 1023K",)),
    ("resourceLimits: {memory: 0}", "5:30", ("at least 1 MiB, got 0", "`max` for no cap")),
    ("resourceLimits: {memory: 8EiB}", "5:30", ("at most 8 EiB less a byte", "`max`")),
    ("resourceLimits: {memory: unlimited}", "5:30", ("a size such as",)),
    ("resourceLimits: {cpu: 0.001}", "5:27", ("at least 0.01, got 0.001",)),
    ("resourceLimits: {cpu: 2e6}", "5:27", ("at most 1e+06",)),
    ("resourceLimits: {cpu: 500m}", "5:27", ("a number of CPUs such as 0.5", "write `0.5`")),
    ("resourceLimits: {cpu: 50%}", "5:27", ("write `0.5`",)),
    ("resourceLimits: {cpu: nan}", "5:27", ("a number of CPUs",)),
    ("resourceLimits: {processes: 0}", "5:33", ("at least 1", "`max`")),
    ("resourceLimits: {processes: 1.5}", "5:33", ("a whole number of processes",)),
    ("resourceLimits: {processes: 4194305}", "5:33", ("at most 4194304",)),
    ("resourceLimits: {required: yes}", "5:32", ("true or false",)),
    ("monitorResources: yes", "5:23", ("true, false or a map", "`true`")),
    ("monitorResources: [1]", "5:23", ("true, false or a map",)),
    ("monitorResources: {interval: 0.05}", "5:34", ("at least 0.1",)),
    ("monitorResources: {history: 2001}", "5:33", ("at most 2000",)),
    ("monitorResources: {every: 5}", "5:24", ("unknown option 'every'",)),
])
def test_what_is_wrong_is_said_at_its_place(load_text: Callable[..., Configuration], line: str, place: str,
                                            words: tuple[str, ...]) -> None:
    """One error, with line and column, what was expected and what to write."""
    (found,) = load_text(f"{HEAD}    {line}\n").errors
    assert f"{found.place}".endswith(f":{place}"), found
    assert all(word in str(found) for word in words), found


@pytest.mark.parametrize(("size", "text"), [
    (512 * 2**20, "512 MiB"), (3 * 2**29, "1.5 GiB"), (2**20, "1 MiB"), (10**9, "953.67 MiB"), (100, "100 bytes"),
])
def test_sizes_are_said_in_powers_of_1024(size: int, text: str) -> None:
    """The reason of a run that reached its cap names the cap as people write it."""
    assert size_text(size) == text
    assert exceeded_text(ResourceLimits(memory=size)) == f"memory limit exceeded ({text})"
