"""Looking up the secrets of a run, and masking them in whatever is kept or told of it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence

from sexton.execution.birth.redact import LEAST_BYTES, MASK, Redactor, forms_of, redact
from sexton.model.errors import SpawnError
from sexton.model.secret import Secret, SecretSource

MOST_BYTES = 64 * 1024
READERS = 16
"""Threads that may be reading files at a time. One on a file system that hangs stays until that ends."""
MOST_JOBS = 20_000


class Masks:
    """What to look for in everything that comes from a run."""

    __slots__ = ("forms",)

    def __init__(self, values: Sequence[str]) -> None:
        forms: dict[bytes, None] = {}
        for value in values:
            forms.update(dict.fromkeys(forms_of(value.encode("utf-8", "surrogateescape"))))
        self.forms = list(forms)

    def stream(self) -> Redactor:
        return Redactor(self.forms)

    def text(self, text: str) -> str:
        data = text.encode("utf-8", "surrogateescape")
        masked = redact(data, self.forms)
        return text if masked == data else masked.decode("utf-8", "surrogateescape")


class Unlocked:
    """The secrets of one start: variables for its environment, and the masks that go with them."""

    __slots__ = ("masks", "short", "variables")

    def __init__(self, variables: dict[str, str]) -> None:
        self.variables = variables
        self.masks = Masks(list(variables.values()))
        self.short = [name for name, value in variables.items() if 0 < len(value.encode()) < LEAST_BYTES]
        """Secrets that are too short to be looked for."""


def unlock(secrets: Sequence[Secret]) -> Unlocked:
    """Look all of them up (blocking where one is in a file). Raises SpawnError, which names the place and not the
    content."""
    return Unlocked({secret.name: _content(secret.name, secret.source) for secret in secrets})


def needs_files(secrets: Sequence[Secret]) -> bool:
    return any(secret.source.from_file is not None for secret in secrets)


def _content(name: str, source: SecretSource) -> str:
    if source.value is not None:
        return source.value
    if source.from_env_var is not None:
        value = os.environ.get(source.from_env_var)
        if value is None:
            raise SpawnError(f"secret {name}: environment variable {source.from_env_var} is not set")
        return value
    path = source.from_file or ""
    try:
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as failure:
        raise SpawnError(f"secret {name}: {path}: {failure.strerror}", errno=failure.errno) from None
    if len(data) > MOST_BYTES:
        raise SpawnError(f"secret {name}: {path} has more than {MOST_BYTES} bytes")
    if b"\0" in data:
        raise SpawnError(f"secret {name}: {path} has a zero byte, which no variable can hold")
    return data.strip().decode("utf-8", "surrogateescape")


class Vault:
    """Reads secrets without holding anybody up, and remembers what to mask, by job."""

    def __init__(self) -> None:
        self._masks: dict[str, Masks] = {}
        self._all: tuple[bytes, ...] = ()
        self._reading = 0
        self._lock = threading.Lock()

    def remember(self, job: str, masks: Masks) -> None:
        """What the latest run of the job knows."""
        known = self._masks.pop(job, None)
        self._masks[job] = masks
        if len(self._masks) > MOST_JOBS:
            del self._masks[next(iter(self._masks))]
        if known is None or known.forms != masks.forms:
            self._all = tuple({form: None for each in self._masks.values() for form in each.forms})

    def text_of(self, job: str, secrets: Sequence[Secret], text: str) -> str:
        """Mask the secrets of one job: those that stand in its definition, and those that a run of it has looked up."""
        for secret in secrets:
            if secret.source.value:
                text = text.replace(secret.source.value, MASK.decode())
        masks = self._masks.get(job)
        return text if masks is None else masks.text(text)

    def text(self, text: str) -> str:
        """Mask every secret that was ever looked up here. From any thread."""
        if not self._all:
            return text
        data = text.encode("utf-8", "surrogateescape")
        if not any(form in data for form in self._all):
            return text
        return redact(data, list(self._all)).decode("utf-8", "surrogateescape")

    def begin(self, secrets: Sequence[Secret], done: Callable[[Unlocked | SpawnError], None]) -> None:
        """Look secrets up in a thread of their own; `done` is called in it, once, unless a file never answers. Raises
        SpawnError when too many files are not answering."""
        with self._lock:
            if self._reading >= READERS:
                raise SpawnError(f"secrets: {READERS} files are not answering")
            self._reading += 1

        def work() -> None:
            try:
                answer: Unlocked | SpawnError = unlock(secrets)
            except SpawnError as failure:
                answer = failure
            finally:
                with self._lock:
                    self._reading -= 1
            done(answer)

        try:
            threading.Thread(target=work, name="secrets", daemon=True).start()
        except RuntimeError as refused:
            with self._lock:
                self._reading -= 1
            raise SpawnError(f"secrets cannot be read: {refused}") from None
