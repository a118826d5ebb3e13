"""A report as one command. It gets the facts in its environment and has a bounded time."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from typing import Any

from sexton.model.report import ShellReport
from sexton.outcome.reporters.attempt import Attempt, NotDelivered, OutOfTime
from sexton.outcome.reporters.facts import Facts, command_text, promise, schedule_text

PREFIXES = ("SEXTON_", "CRONSTABLE_", "YACRON_")
"""Commands that were written for either of the other two find what they know under its name."""
MAX_STREAM_BYTES = 64 * 1024
"""Of each stream in a variable: the kernel takes 128 KiB for one, and each prefix carries it."""
MAX_TEXT_BYTES = 16 * 1024
KEPT_BYTES = 2048
"""Of what the command writes: its end is told when it fails."""
LOOK_MS = 100


def variables_of(facts: Facts) -> dict[str, str]:
    """The facts by their names without prefix; secrets are masked."""
    record, output = facts.record, facts.output()
    usage, limits = record.usage, record.limits
    stdout, stdout_cut = _last(output.stdout, MAX_STREAM_BYTES)
    stderr, stderr_cut = _last(output.stderr, MAX_STREAM_BYTES)
    named: dict[str, Any] = {
        "EVENT": facts.event.value,
        "FAIL_REASON": record.fail_reason,
        "JOB_NAME": facts.job.name,
        "JOB_COMMAND": _last(command_text(facts.job.command), MAX_TEXT_BYTES)[0],
        "JOB_SCHEDULE": schedule_text(facts.job.schedule),
        "FAILED": int(not facts.success),
        "RETCODE": record.exit_code,
        "STDERR": stderr,
        "STDOUT": stdout,
        "STDERR_TRUNCATED": int(stderr_cut or output.stderr_truncated),
        "STDOUT_TRUNCATED": int(stdout_cut or output.stdout_truncated),
        "CPU_SECONDS": round(usage.cpu_user_seconds + usage.cpu_system_seconds, 6) if usage else None,
        "MAX_RSS_BYTES": usage.max_rss_bytes if usage else None,
        "LIMITS_ENFORCED": int(limits.enforced) if limits else None,
        "MEMORY_LIMIT_EXCEEDED": int(limits.memory_exceeded) if limits else None,
        "HOST": record.launch.node,
        "RUN_ID": record.launch.id,
        "STARTED_AT": record.started_at.isoformat() if record.started_at else None,
        "OUTCOME": record.outcome.value if record.outcome else None,
        "STOP_CAUSE": record.stop.cause.value if record.stop else None,
        "GONE": record.gone.state.value if record.gone else None,
        **{name if name in ("SLA_CHECK", "LAST_SUCCESS_AT") else f"SLA_{name}": value
           for name, value in promise(facts).items()},
    }
    return {
        name: facts.redact("" if value is None else str(value)).replace("\0", "\ufffd") for name, value in named.items()
    }


def environment_of(facts: Facts) -> dict[str, str]:
    """The facts under every name that a command may know."""
    named = variables_of(facts)
    return {prefix + name: value for prefix in PREFIXES for name, value in named.items()}


def _last(text: str, limit: int) -> tuple[str, bool]:
    """The end of a text, in bytes, and whether it is all of it."""
    data = text.encode("utf-8", "replace")
    return (text, False) if len(data) <= limit else (data[-limit:].decode("utf-8", "ignore"), True)


def deliver(settings: ShellReport, facts: Facts, attempt: Attempt) -> None:
    """Raises NotDelivered, OutOfTime."""
    environment = os.environ | environment_of(facts)
    command = settings.command
    argv = (settings.shell, "-c", command) if isinstance(command, str) else command
    try:
        # A group of its own, to be killed whole, in the daemon's session: what has another session is a foreign child
        process = subprocess.Popen(
            argv, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            process_group=0,
        )
    except (OSError, ValueError) as failure:
        raise NotDelivered(f"the command could not be started: {failure}") from None
    attempt.on_abort(lambda: _kill(process))
    written = _until_exit(process, attempt)
    if attempt.aborted or process.returncode is None:
        raise OutOfTime(attempt.seconds)
    if process.returncode != 0:
        said = " ".join(facts.redact(written.decode("utf-8", "replace")).split())[-200:]
        raise NotDelivered(f"the command ended with {process.returncode}" + (f": {said}" if said else ""))


def _until_exit(process: subprocess.Popen[bytes], attempt: Attempt) -> bytes:
    """Read what it writes until it has exited, or its group is killed at the deadline. The end of what it wrote.

    Its own exit is what counts: somebody in the background who holds the pipe is not waited for."""
    assert process.stdout is not None
    kept = b""
    with process.stdout as pipe:
        os.set_blocking(pipe.fileno(), False)
        poll = select.poll()
        poll.register(pipe.fileno(), select.POLLIN)
        while True:
            ended = process.poll() is not None
            try:
                while data := os.read(pipe.fileno(), 65536):
                    kept = (kept + data)[-KEPT_BYTES:]
                poll = select.poll()  # it has closed its output: only its exit is waited for
            except BlockingIOError:
                pass
            if ended:
                return kept
            if time.monotonic() >= attempt.deadline:
                attempt.abort()
            if attempt.aborted:
                _kill(process)
                process.wait()
                return kept
            poll.poll(LOOK_MS)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Its group, while its own process is not collected: until then nobody else can have the number."""
    if process.returncode is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except OSError:
            pass  # it is gone


def destination_of(facts: Facts) -> str:
    """Each job's command is a place of its own: what hangs for one says nothing of the others."""
    return f"shell command of {facts.job.name}"
