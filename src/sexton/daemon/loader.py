"""Starting the child that loads the configuration: a module that costs nothing to import, so that the child is at work
while the daemon imports the rest of itself. `loading.finish` takes the answer."""

from __future__ import annotations

import subprocess
import sys
from os.path import abspath, dirname

BOOT = (
    "import gc, sys; gc.disable(); sys.path.append(sys.argv[1]); "  # a short life: nothing need be collected
    "from sexton.daemon.loading import main; main(sys.argv[2])"
)
PACKAGE_ROOT = dirname(dirname(dirname(abspath(__file__))))


def begin(path: str) -> subprocess.Popen[bytes]:
    """Start loading `path`."""
    return subprocess.Popen(
        # -P: no module of the folder that we were started in
        [sys.executable, "-P", "-c", BOOT, PACKAGE_ROOT, path],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )
