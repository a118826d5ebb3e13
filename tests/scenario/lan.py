"""A small network of its own: hosts that are network namespaces, on one bridge, whose cables can be pulled.

Nothing of this machine's network is touched. All of it is gone when the last process in it has ended.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


class NoNetwork(Exception):
    """Network namespaces cannot be had here; the reason."""


class Host:
    """A network namespace with a cable to the bridge."""

    def __init__(self, name: str, address: str, switch: Host | None) -> None:
        self._cable = f"cable-{name}"
        self.address = address
        self._switch = switch
        self._namespace = _new_namespace()
        with self.entered():
            _ip("link", "set", "lo", "up")

    @contextmanager
    def entered(self) -> Iterator[None]:
        """This thread, and whatever it starts meanwhile, is in the network of the host."""
        here = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _enter(self._namespace)
            try:
                yield
            finally:
                _enter(here)
        finally:
            os.close(here)

    def plug(self, into: Host) -> None:
        with into.entered():
            _ip("link", "add", self._cable, "type", "veth", "peer", "name", "eth0", "netns",
                f"/proc/{os.getpid()}/fd/{self._namespace}")
            _ip("link", "set", self._cable, "up")
        with self.entered():
            _ip("address", "add", f"{self.address}/24", "dev", "eth0")
            _ip("link", "set", "eth0", "up")
        self.heal()

    def cut(self) -> None:
        """Every packet vanishes at the bridge. The host's own link stays up: nothing tells it."""
        assert self._switch is not None
        with self._switch.entered():
            _ip("link", "set", self._cable, "nomaster")

    def heal(self) -> None:
        assert self._switch is not None
        with self._switch.entered():
            _ip("link", "set", self._cable, "master", "bridge")

    def close(self) -> None:
        os.close(self._namespace)


class Lan:
    """The bridge, with an address of its own at which a server may listen, and hosts."""

    def __init__(self) -> None:
        """Raises NoNetwork."""
        if shutil.which("ip") is None:
            raise NoNetwork("there is no `ip` here")
        self.switch = Host("switch", "10.77.0.1", None)
        self._hosts: list[Host] = []
        with self.switch.entered():
            _ip("link", "add", "bridge", "type", "bridge")
            _ip("address", "add", f"{self.switch.address}/24", "dev", "bridge")
            _ip("link", "set", "bridge", "up")

    def host(self, name: str) -> Host:
        made = Host(name, f"10.77.0.{10 + len(self._hosts)}", self.switch)
        self._hosts.append(made)
        made.plug(self.switch)
        return made

    def close(self) -> None:
        for host in (*self._hosts, self.switch):
            host.close()


def _new_namespace() -> int:
    """A descriptor of it: it lasts for as long as that, or somebody in it."""
    made: list[int] = []
    failed: list[int] = []

    def make() -> None:
        if _libc.unshare(CLONE_NEWNET) != 0:
            failed.append(ctypes.get_errno())
            return
        made.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))

    thread = threading.Thread(target=make)  # only it is in the new one, and it ends
    thread.start()
    thread.join()
    if failed:
        raise NoNetwork(f"network namespaces may not be made here ({os.strerror(failed[0])})")
    return made[0]


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False, timeout=20)
    if done.returncode != 0:
        raise NoNetwork(f"ip {' '.join(words)}: {done.stderr.strip()}")


def connections(pid: int, port: int) -> list[str]:
    """The TCP connections that the process holds to that port: the state of each, `ESTABLISHED` or hexadecimal."""
    inodes = set()
    for entry in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{entry}")
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    lines = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return ["ESTABLISHED" if line[3] == "01" else line[3] for line in lines
            if line[9] in inodes and int(line[2].split(":")[1], 16) == port]
