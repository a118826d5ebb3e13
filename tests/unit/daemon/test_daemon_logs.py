"""The thread that writes the daemon's log: what its end owes to those who wait for it."""

from __future__ import annotations

import subprocess
import sys

MORE_THAN_A_BATCH = 2_500

PROGRAM = f"""
import logging
from sexton.daemon import logs
logs.GATHER_SECONDS = logs.GATHER_MOST = 60.0
thread = logs.LogThread("INFO", None)
for number in range({MORE_THAN_A_BATCH}):
    logging.getLogger("sexton.run").info("line %d", number)
raise SystemExit(0 if thread.close() else 1)
"""


def test_the_last_lines_are_not_gathered() -> None:
    """Lines are held together for a while to be written at once, but not when the daemon ends: however many are left,
    `close` writes every one of them without that wait."""
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30)
    assert ended.returncode == 0, "the log still waited for more lines"
    assert len(ended.stderr.splitlines()) == MORE_THAN_A_BATCH
