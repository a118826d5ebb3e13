"""Reading files and listing folders: bytes and names, or one sentence why not."""

from __future__ import annotations

import errno
import os
import stat

MAX_FILE_BYTES = 64 * 1024 * 1024

_SYSTEM_TABLE = "/etc/crontab"
_SYSTEM_FOLDER = "/etc/cron.d"


def read_bytes(path: str) -> bytes | str:
    """The content of a regular file of at most 64 MiB, or why it cannot be had. Never waits for a pipe."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        return _why_not(path, error)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            return f"{printable(path)} is a folder, not a file"
        if not stat.S_ISREG(status.st_mode):
            return f"{printable(path)} is not a regular file"
        if status.st_size > MAX_FILE_BYTES:
            return f"{printable(path)} is larger than {MAX_FILE_BYTES // 1024 // 1024} MiB"
        with os.fdopen(os.dup(descriptor), "rb") as stream:
            return stream.read(MAX_FILE_BYTES)
    except OSError as error:
        return _why_not(path, error)
    finally:
        os.close(descriptor)


def _why_not(path: str, error: OSError | ValueError) -> str:
    name = printable(path)
    if isinstance(error, ValueError):
        return f"{name!r} cannot be the name of a file"
    if error.errno == errno.ENOENT and os.path.islink(path):
        return f"{name} is a broken link to {printable(os.readlink(path))}"
    if error.errno == errno.ENOENT:
        return f"{name} does not exist"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{name} cannot be read: permission denied"
    return f"{name} cannot be read: {error.strerror}"


def is_folder(path: str) -> bool:
    try:
        return os.path.isdir(path)
    except ValueError:  # a NUL in the name
        return False


def configuration_files(folder: str) -> list[str] | str:
    """The paths of the configuration files in a folder, by name; or why it cannot be listed."""
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        return _why_not(folder, error)
    paths = [os.path.join(folder, name) for name in names if not name.startswith(("_", "."))]
    return [path for path in paths if is_configuration_name(path) and not os.path.isdir(path)]


def is_configuration_name(path: str) -> bool:
    return is_yaml_name(path) or is_crontab_name(path)


def is_yaml_name(path: str) -> bool:
    return path.lower().endswith((".yml", ".yaml"))


def is_crontab_name(path: str) -> bool:
    """Decide by its name whether a file is a classic crontab."""
    name = os.path.basename(path).lower()
    return name == "crontab" or name.endswith((".crontab", ".cron")) or is_system_table(path)


def is_system_table(path: str) -> bool:
    """The two places where cron itself keeps tables with a user column."""
    whole = os.path.abspath(path)
    return whole == _SYSTEM_TABLE or os.path.dirname(whole) == _SYSTEM_FOLDER


def printable(path: str) -> str:
    """A path that can be encoded: bytes that are not UTF-8 are shown escaped."""
    return path.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
