"""What the daemon, the zygote and the supervisors say to each other.

daemon -> zygote      SEQPACKET COMMAND: fork so many supervisors, or one of them was released
zygote -> daemon      SEQPACKET EVENT: one is born (with its private socket by SCM_RIGHTS), or dead
daemon -> supervisor  SEQPACKET one request (marshal) with its descriptors, then orders, a byte each
supervisor -> daemon  fixed-size reports on one pipe shared by all supervisors (atomic: smaller than PIPE_BUF)
"""

from __future__ import annotations

import struct

REPORT = struct.Struct("<IIHHiqIIII")
"""supervisor, run number, kind, flags, value, monotonic ns, user CPU us, system CPU us, max RSS KiB, aux."""

# kinds of report
STARTED = 1  # value: pid of the job's own process; flags: caps that a cgroup holds; aux: errno of one that failed
FAILED = 2  # value: errno; aux: stage
EXITED = 3  # value: wait status of the own process; usage fields are set
EMPTY = 4  # nothing of the run is left below the supervisor
SIGNALLED = 5  # the graceful step was taken; value: errno for the group, aux: errno for the process alone
REFUSED = 6  # the forced step was refused; value: errno; aux: a pid that it was refused for; user: errno for the group
RETIRED = 7  # this supervisor takes no further request and has taken none since its last EMPTY
EXCEEDED = 8  # the run has reached its cap on memory and is being killed whole
MEASURED = 9  # what the limits did; value: refused forks; user: throttled ms; rss: peak KiB; flags: which are known
USED = 10  # CPU us of the whole run; user, system: high and low half in user mode; rss, aux: in the kernel
OUTPUT = 11  # kept runs: the output file is whole; value: bytes that are not in it
ATTACHED = 12  # kept runs: aux: a stream that this daemon gets from now on; value: bytes that came before

# flags of a report
ALSO_EMPTY = 1  # EXITED: the own process was also the last one
CGROUP_EMPTY = 2  # the run's cgroup holds nobody but the supervisor and has no child cgroups

HELD_CPU = 1 << 4  # STARTED
HELD_MEMORY = 1 << 5
HELD_PROCESSES = 1 << 6
KNOWN_HITS = 1 << 4  # MEASURED: which of its numbers were to be had
KNOWN_THROTTLED = 1 << 5
KNOWN_PEAK = 1 << 6

# stages of a failed start (aux of FAILED)
STAGE_EXEC = 0
STAGE_DIRECTORY = 1
STAGE_USER = 2
STAGE_LIMITS = 4

# orders to a supervisor
TERMINATE = b"T"
KILL = b"K"
RELEASE = b"L"
ORDERS = (TERMINATE, KILL, RELEASE)

# further orders to the supervisor of a run that outlives the daemon (`vigil`)
NOTE = b"N"  # followed by bytes to keep for a later daemon: why the run is being stopped
ATTACH = b"A"  # followed by stream numbers, with a pipe for each of them
FINISH_OUTPUT = b"O"
FORGET = b"F"  # the run is recorded
HELLO = b"H"  # at the socket in the runtime directory, followed by the daemon's version of what is said there

# messages on the zygote's socket: struct, then (of a birth only) one descriptor
COMMAND = struct.Struct("<cI")  # b"F" fork this many | b"L" supervisor released
EVENT = struct.Struct("<cIIi")  # b"B" id pid how | b"D" id pid status

BORN_PLAIN = 0
BORN_IN_CGROUP = 1

INLINE_REQUEST = 96 * 1024
"""Bytes; a larger request travels in a memfd, because a SEQPACKET message has a limit (about 200 KB)."""

ZYGOTE_NAME = b"sexton-zygote"
SUPERVISOR_NAME = b"sexton-run"
KEEPER_NAME = b"sexton-keep"
"""What each calls itself; the last is a supervisor with a run that outlives the daemon."""

NOTHING_LEFT = b"nothing is left\n"
"""The last words of a zygote."""

KEPT_ATTRIBUTE = "user.sexton.kept"
"""Set on the cgroup of processes that a run which ended by itself left behind on purpose; a sweep passes it over."""

KEEPER_ATTRIBUTE = "user.sexton.keeper"
"""Set besides on the cgroup of a run that outlives the daemon: it is passed over while its supervisor holds the lock on
it. (A daemon of an older version knows only the first attribute.)"""
