"""Which file system a path is on, as the kernel's table of mounts tells, and what that means for a store on it."""

from __future__ import annotations

import os
import re

from sexton.model.settings import StateSettings, Topology

NETWORK_FILE_SYSTEMS = frozenset({
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "glusterfs", "fuse.glusterfs", "fuse.sshfs", "fuse.ceph",
    "lustre", "ocfs2", "gfs2", "beegfs", "afs", "9p", "virtiofs",
})  # fmt: skip
"""As /proc/self/mountinfo calls them."""


def file_system_at(path: str) -> str | None:
    """The type of the file system; None where that cannot be told."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
            return file_system_of(os.path.realpath(path), mounts.read())
    except OSError:
        return None


def file_system_of(path: str, mountinfo: str) -> str | None:
    """Of an absolute path without links, from the text of /proc/self/mountinfo. Pure."""
    best, kind = "", None
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        words = before.split(" ")
        if len(words) < 5 or not after:
            continue
        mount = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), words[4])
        below = path == mount or path.startswith(mount.rstrip("/") + "/")
        if below and len(mount) >= len(best):
            best, kind = mount, after.split(" ", 1)[0]
    return kind


def is_shared(state: StateSettings) -> bool:
    """Whether several nodes may use it. `topology: auto` is a folder on a network mount for several, and one on a disk
    for one."""
    if state.url is not None:
        return True
    assert state.path is not None
    match state.topology:
        case Topology.SHARED:
            return True
        case Topology.SINGLE_NODE:
            return False
        case Topology.AUTO:
            return file_system_at(state.path) in NETWORK_FILE_SYSTEMS
