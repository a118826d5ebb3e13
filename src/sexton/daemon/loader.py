"""Starting the child that loads the configuration: a module that costs nothing to import, so that the child is at work
while the daemon imports the rest of itself. `loading.finish` takes the answer."""

from __future__ import annotations

import subprocess
import sys

MODULE = "sexton.daemon.loading"


def begin(path: str) -> subprocess.Popen[bytes]:
    """Start loading `path`."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", MODULE, path],  # -P: no module of the folder that we were started in
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )
