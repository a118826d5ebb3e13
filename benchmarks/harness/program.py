"""The program that benchmarked jobs run: it appends a line to a file when it runs, and does little else.

A line is `NANOSECONDS PID [PID ...]`: wall clock, its own pid, then those of the processes it made. Whatever
it leaves ends by itself after three minutes.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

C_SOURCE = r"""
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char others[16384];
static size_t used;

static void tell(const char *path) {
    struct timespec now;
    static char line[sizeof others + 64];
    clock_gettime(CLOCK_REALTIME, &now);
    int length = snprintf(line, sizeof line, "%lld %d%s\n",
                          (long long)now.tv_sec * 1000000000LL + now.tv_nsec, (int)getpid(), others);
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT, 0644);
    if (file < 0 || write(file, line, length) != length) _exit(3);
    close(file);
}

static void note(int pid) { used += snprintf(others + used, sizeof others - used, " %d", pid); }

static void idle(void) { alarm(180); for (;;) pause(); }

static void flood(long mebibytes) {
    static char block[100 * 655];
    memset(block, 'x', sizeof block);
    for (size_t end = 99; end < sizeof block; end += 100) block[end] = '\n';
    long long left = mebibytes << 20;
    while (left > 0) {
        size_t want = left < (long long)sizeof block ? (size_t)left : sizeof block;
        ssize_t done = write(1, block, want);
        if (done < 0) _exit(4);
        left -= done;
    }
}

/* One child in a session of its own; one whose parent is gone, so that the daemon never saw who made it. */
static void escape(void) {
    int child = fork(), ends[2], grandchild = 0;
    if (child == 0) { setsid(); idle(); }
    note(child);
    if (pipe(ends)) _exit(5);
    int middle = fork();
    if (middle == 0) {
        setsid();
        grandchild = fork();
        if (grandchild == 0) idle();
        if (write(ends[1], &grandchild, sizeof grandchild) < 0) _exit(6);
        _exit(0);
    }
    if (read(ends[0], &grandchild, sizeof grandchild) != sizeof grandchild) _exit(7);
    waitpid(middle, 0, 0);
    note(grandchild);
}

int main(int count, char **words) {
    if (count < 3) return 2;
    const char *mode = words[1], *path = words[2];
    long number = count > 3 ? atol(words[3]) : 0;
    if (!strcmp(mode, "stamp")) { tell(path); return 0; }
    if (!strcmp(mode, "flood")) { tell(path); flood(number); tell(path); return 0; }
    if (!strcmp(mode, "stubborn")) signal(SIGTERM, SIG_IGN);
    if (!strcmp(mode, "escape")) escape();
    if (!strcmp(mode, "tree"))
        for (long made = 0; made < number; made++) {
            int child = fork();
            if (child == 0) idle();
            note(child);
        }
    tell(path);
    idle();
}
"""

PYTHON_SOURCE = r"""
import os, signal, sys, time
mode, path, number = sys.argv[1], sys.argv[2], int((sys.argv + ["0"])[3])
others = []
def tell():
    line = " ".join(map(str, [time.time_ns(), os.getpid(), *others])) + "\n"
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(file, line.encode())
    os.close(file)
def idle():
    signal.alarm(180)
    while True:
        signal.pause()
def child():
    pid = os.fork()
    if pid:
        others.append(pid)
    return pid
if mode == "stamp":
    tell()
    os._exit(0)
if mode == "flood":
    tell()
    block, left = (b"x" * 99 + b"\n") * 655, number << 20
    while left > 0:
        left -= os.write(1, block[:left])
    tell()
    os._exit(0)
if mode == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if mode == "escape":
    if not child():
        os.setsid()
        idle()
    out, into = os.pipe()
    middle = os.fork()
    if not middle:
        os.setsid()
        last = os.fork()
        if not last:
            idle()
        os.write(into, str(last).encode())
        os._exit(0)
    others.append(int(os.read(out, 20)))
    os.waitpid(middle, 0)
if mode == "tree":
    for _ in range(number):
        if not child():
            idle()
tell()
idle()
"""


@dataclass(frozen=True)
class Program:
    """How to start it: these words, then mode, file and number."""

    words: tuple[str, ...]
    language: str

    def argv(self, mode: str, path: str, number: int = 0) -> list[str]:
        return [*self.words, mode, path, *([str(number)] if number else [])]

    def command(self, mode: str, path: str, number: int = 0) -> str:
        return " ".join(self.argv(mode, path, number))


@dataclass(frozen=True)
class Stamp:
    at: float
    """Seconds since 1970."""
    pids: tuple[int, ...]


def build(folder: Path) -> Program:
    """Compile the program; without a compiler that can, take the slower stand-in in Python."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    source, binary = folder / "job.c", folder / "job"
    source.write_text(C_SOURCE)
    for extra in (["-static"], []) if compiler else ():
        line = [str(compiler), "-O2", "-w", *extra, "-o", str(binary), str(source)]
        if subprocess.run(line, capture_output=True, timeout=60).returncode == 0:
            return Program((str(binary),), "C")
    script = folder / "job.py"
    script.write_text(PYTHON_SOURCE)
    return Program((sys.executable, "-I", "-S", str(script)), "Python")


def stamps(path: str) -> list[Stamp]:
    """The whole lines of a file, in the order of their instants."""
    try:
        text = Path(path).read_text()
    except FileNotFoundError:
        return []
    whole = text[: text.rfind("\n") + 1]
    lines = map(str.split, whole.splitlines())
    found = [Stamp(int(at) / 1e9, tuple(map(int, pids))) for at, *pids in lines]
    return sorted(found, key=lambda stamp: stamp.at)


def stamp_count(path: str) -> int:
    try:
        return Path(path).read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0
