"""Loading the configuration in a child process: parsing never takes a moment from the scheduling path, the memory it
needs goes back to the system, and a file that breaks the parser breaks only the child.
"""

from __future__ import annotations

import subprocess

import msgspec

from sexton.model.settings import Configuration, Finding, Severity

LOAD_SECONDS = 300.0


def finish(child: subprocess.Popen[bytes]) -> Configuration:
    """Wait (blocking, bounded) for the child's answer. A child that fails is a finding, not an exception."""
    try:
        out, err = child.communicate(timeout=LOAD_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        return broken(f"loading did not end within {LOAD_SECONDS:g} seconds")
    if child.returncode != 0:
        last = err.decode(errors="replace").strip().rpartition("\n")[2]
        return broken(f"the loader ended with status {child.returncode}: {last}")
    try:
        return msgspec.msgpack.decode(out, type=Configuration)
    except msgspec.DecodeError as failure:
        return broken(f"the loader's answer cannot be read: {failure}")


def broken(message: str) -> Configuration:
    """The answer when there is none: one finding."""
    return Configuration(findings=(Finding(severity=Severity.ERROR, message=message),))


def load_here(path: str) -> Configuration:
    """Load in this process: for `check`, and in the child."""
    import os

    from sexton.config.load import load
    from sexton.daemon.timetable import check_schedule

    return load(path, environ=os.environ, check_schedule=check_schedule)


def main(path: str) -> None:
    """In the child: the answer goes to standard output."""
    import os

    answer = msgspec.msgpack.encode(load_here(path))
    view = memoryview(answer)
    while view:
        view = view[os.write(1, view):]
    os._exit(0)  # nothing to tidy up, and freeing a large tree takes longer than building it
