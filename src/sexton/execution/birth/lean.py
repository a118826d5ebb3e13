"""What the processes of this package need of two modules that would bring half of the standard library with them.

The first run after a start waits until the zygote is up: `signal` and `typing` (with enum, re, functools, collections)
are 12 of 20 ms of that, and memory in every supervisor.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take it for true by its name
if TYPE_CHECKING:
    import signal as signal
    from typing import Any as Any
else:
    import _signal as signal  # noqa: F401  (for others)

    Any = object
