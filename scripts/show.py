"""What scripts/demo shows: a daemon on an embedded store, and one run from its start to the proof that it is gone."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SEXTON = str(Path(sys.executable).with_name("sexton"))
WAIT_SECONDS = 30.0


def free_port() -> int:
    for port in (8420, 0):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise SystemExit("no free port on the loopback interface")


def call(base: str, path: str, method: str = "GET") -> Any:
    with urllib.request.urlopen(urllib.request.Request(base + path, method=method), timeout=20) as reply:
        return json.load(reply)


def wait_for_daemon(base: str, daemon: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < end:
        if daemon.poll() is not None:
            raise SystemExit(f"{log.read_text()}the daemon ended with status {daemon.returncode}; its log is above")
        try:
            urllib.request.urlopen(base + "/version", timeout=2).close()
            return
        except OSError:
            time.sleep(0.05)
    raise SystemExit("the daemon did not answer in time")


def living(tag: str) -> list[str]:
    """Processes whose command line holds the tag: an oracle that knows nothing of Sexton's bookkeeping."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if tag in words and state not in "ZX":
                found.append(f"{entry.name}: {' '.join(words.split())}")
    return found


def show(base: str) -> None:
    print("\n1. Start the job `escape-artist`: it ignores SIGTERM and leaves a daemon in a session of its own.")
    run = call(base, "/jobs/escape-artist/start", "POST")["run"]
    print(f"   run {run}")
    end = time.monotonic() + WAIT_SECONDS
    while len(living("86399")) < 2 and time.monotonic() < end:
        time.sleep(0.05)
    print("   its processes, as /proc sees them:")
    for line in living("86399"):
        print(f"     {line[:100]}")
    print("\n2. Its executionTimeout is 3 seconds, its killTimeout 1 second. Waiting ...")
    while (record := call(base, f"/runs/{run}"))["outcome"] is None:
        if time.monotonic() > end:
            raise SystemExit("the run did not end in time")
        time.sleep(0.1)
    print(f"   outcome {record['outcome']}, exit code {record['exit_code']}: {record['fail_reason']}")
    stop = record["stop"]
    for name in ("requested_at", "signalled_at", "forced_at", "confirmed_at"):
        print(f"     {name:13} {stop[name]}")
    print(f"   gone: {record['gone']['state']}, by {', '.join(record['gone']['witnesses'])}")
    left = living("86399")
    print(f"   processes of the run that /proc still sees: {len(left)}")
    if left or record["gone"]["state"] != "proven":
        raise SystemExit("the run is not gone: that must not happen, please report it")


def what_next(base: str, config: Path) -> None:
    print(f"""
3. Your turn: the daemon runs at {base}
     curl {base}/jobs
     curl -X POST {base}/jobs/hello/start
     {SEXTON} --url {base} jobs
     {SEXTON} --url {base} runs
     {SEXTON} --url {base} logs -f heartbeat
     {SEXTON} explain heartbeat --url {base}
   Change {config}: it is taken up by itself.
   Ctrl-C ends the daemon and everything that it started.""")


def main() -> int:
    folder = Path(tempfile.mkdtemp(prefix="sexton-demo-"))
    base = f"http://127.0.0.1:{free_port()}"
    config = folder / "jobs.yaml"
    text = (ROOT / "examples" / "demo.yaml").read_text()
    config.write_text(text.replace("http://127.0.0.1:8420", base).replace("./demo-state", str(folder / "state")))
    print(f"A daemon with {config}, records in {folder / 'state'}, log in {folder / 'daemon.log'}")
    with (folder / "daemon.log").open("wb") as log:
        daemon = subprocess.Popen([SEXTON, "-c", str(config)], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        wait_for_daemon(base, daemon, folder / "daemon.log")
        show(base)
        what_next(base, config)
        if os.environ.get("SEXTON_DEMO_ONCE") == "1":
            return 0
        daemon.wait()
        return 0
    except KeyboardInterrupt:
        return 0
    finally:
        if daemon.poll() is None:
            daemon.terminate()
            daemon.wait(60)
        print(f"The daemon has ended; {folder} is kept for you to look at.")


if __name__ == "__main__":
    sys.exit(main())
