"""Where secrets are. Their contents are looked up when they are needed, and masked wherever they might show."""

from __future__ import annotations

import msgspec


class SecretSource(msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """Where a secret is. Exactly one is set; a file or variable is looked up each time that the secret is needed."""

    value: str | None = None
    from_file: str | None = None
    """An absolute path; white space around the content does not count."""
    from_env_var: str | None = None
    """A variable of the daemon's own environment."""

    def __repr__(self) -> str:
        """Without the value: a struct that is printed in a traceback tells nothing."""
        where = f"file {self.from_file}" if self.from_file else f"variable {self.from_env_var}"
        return f"<secret from {where if self.value is None else 'the configuration'}>"


class Secret(msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """One secret of a job: a variable in the environment of its runs."""

    name: str
    source: SecretSource
