"""What is wrong with a template, as far as that can be told before there is a report. Jinja2 is loaded for the first
text that is one: most configurations have none, and a check is to be quick."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from sexton.model.templates import VARIABLES, is_template


class Trouble(NamedTuple):
    fatal: bool
    message: str = ""
    line: int = 1
    unknown: tuple[str, ...] = ()
    known: tuple[str, ...] = ()


@lru_cache(maxsize=1024)
def trouble_with(text: str) -> Trouble | None:
    """Decide whether a template can be used: None, or what is wrong with it."""
    if not is_template(text):
        return None
    from jinja2 import TemplateSyntaxError, meta
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment()
    try:
        used = meta.find_undeclared_variables(environment.parse(text))
        environment.compile(text)
    except TemplateSyntaxError as wrong:
        return Trouble(True, wrong.message or "cannot be read", wrong.lineno)
    unknown = tuple(sorted(used - VARIABLES - set(environment.globals)))
    return Trouble(False, unknown=unknown, known=tuple(sorted(VARIABLES))) if unknown else None
