"""Jinja2 templates: filled in when a report is made. Jinja2 is loaded for the first one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Any

from sexton.model.templates import is_template
from sexton.outcome.reporters.facts import Facts, variables
from sexton.outcome.reporters.wording import body_of, subject_of


class TemplateTrouble(Exception):
    """A template cannot be filled in."""


@lru_cache(maxsize=2)
def _environment(html: bool) -> Any:
    # A template is written by whoever writes the commands; the sandbox is for what they paste, not against them.
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    return ImmutableSandboxedEnvironment(autoescape=html, keep_trailing_newline=True)


@lru_cache(maxsize=256)
def _compiled(text: str, html: bool) -> Any:
    return _environment(html).from_string(text)


class Page:
    """The texts of one report. What is not asked for is not made; secrets are masked in all of them."""

    def __init__(self, facts: Facts, environment: Mapping[str, str] | None = None) -> None:
        self.facts = facts
        self._environment = environment

    @cached_property
    def _variables(self) -> dict[str, Any]:
        return variables(self.facts, os.environ if self._environment is None else self._environment)

    def fill(self, text: str, *, html: bool = False) -> str:
        """Fill in a template. Raises TemplateTrouble when it fails."""
        if is_template(text):
            try:
                text = str(_compiled(text, html).render(self._variables))
            except Exception as wrong:  # anything a template can come to: a missing attribute, a division by zero
                raise TemplateTrouble(f"template failed: {type(wrong).__name__}: {wrong}") from None
        return self.facts.redact(text)

    def subject(self, text: str | None = None) -> str:
        """On one line, whatever a name or a template brings."""
        made = self.facts.redact(subject_of(self.facts)) if text is None else self.fill(text)
        return " ".join(made.split())

    def body(self, text: str | None = None, *, html: bool = False) -> str:
        if text is not None:
            return self.fill(text, html=html)
        made = self.facts.redact(body_of(self.facts))
        if html:
            from html import escape

            return f"<pre>{escape(made)}</pre>\n"
        return made
