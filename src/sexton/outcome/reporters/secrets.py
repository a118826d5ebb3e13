"""Looking up a secret where the configuration says it is."""

from __future__ import annotations

import os

from sexton.model.secret import SecretSource
from sexton.outcome.reporters.attempt import NotDelivered

MOST_BYTES = 64 * 1024


def look_up(source: SecretSource, what: str) -> str:
    """The secret itself. Raises NotDelivered, which names the place and not the content."""
    if source.value is not None:
        return source.value
    if source.from_env_var is not None:
        value = os.environ.get(source.from_env_var)
        if value is None:
            raise NotDelivered(f"{what}: environment variable {source.from_env_var} is not set")
        return value
    try:
        with open(source.from_file or "", "rb") as file:
            return file.read(MOST_BYTES).decode().strip()
    except UnicodeDecodeError:
        raise NotDelivered(f"{what}: {source.from_file} is not UTF-8 text") from None
    except OSError as failure:
        raise NotDelivered(f"{what}: {source.from_file}: {failure.strerror}") from None
