"""What an option and a section are: the words that the tables of the schema are written in."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import msgspec

LONGEST_SECONDS = 1e9
"""About 31 years: beyond it, dates overflow long before anything useful happens."""
LARGEST_COUNT = 2**53
MAX_NAME_CHARACTERS = 255


class Kind(Enum):
    """How the value of an option is read."""

    TEXT = "text"
    BOOLEAN = "true or false"
    INTEGER = "whole number"
    NUMBER = "number"
    CHOICE = "one of a few words"
    NAME = "job name"
    COMMAND = "text or list of text"
    SCHEDULE = "cron expression or map of fields"
    TIMEZONE = "IANA time zone"
    ENVIRONMENT = "list of key and value"
    ENV_FILE = "path of a file"
    DIRECTORY = "path of a folder"
    ACCOUNT = "name or number"
    PREFIX = "text with placeholders"
    FAILS_WHEN = "map of true or false"
    RETRY = "map of numbers"
    RETRY_ON = "list of causes"
    VERIFY = "map of a check"
    SLA = "map of promises"
    LISTEN = "list of addresses"
    TEXT_LIST = "list of text"
    VARIABLE_VALUE = "any text"
    HEADERS = "map of text"
    MODE = "octal number"
    IDENTIFIER = "name usable as a folder"
    LIMITS = "map of caps"
    CPUS = "number of CPUs"
    SIZE = "size"
    COUNT = "whole number or max"
    MONITORING = "true or false, or a map"
    MAP = "map of options"
    TEMPLATE = "text or Jinja2 template"
    SECRET = "where a secret is"
    SECRETS = "list of secrets"
    SECRET_VALUE = "any text, which no message shows"
    TEMPLATE_LIST = "list of templates"
    TEXT_MAP = "map of any text"


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One option: its name in the file, the field of the model it fills and what it accepts."""

    name: str
    field: str
    kind: Kind
    nullable: bool = False
    bare: bool = False
    """`name:` with nothing behind it is null, as the reference daemon has it for a few options."""
    interpolate: bool = True
    minimum: float | None = None
    above: float | None = None
    """An exclusive lower bound."""
    maximum: float = LARGEST_COUNT
    choices: type[Enum] | None = None
    unit: str = ""
    inside: Section | None = None
    """What may stand in a MAP."""


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of map in the file, and what may stand in it."""

    here: str
    """How messages say that a key stands in it."""
    where: str
    """How messages say that a key belongs into it."""
    options: Mapping[str, Option]
    ignored: frozenset[str] = frozenset()
    """Options of the reference daemon that are accepted but not acted on."""
    refused: Mapping[str, str] = {}
    """Options that must not be ignored, each with the reason."""
    elsewhere: Mapping[str, str] = {}
    """Keys that people put here by mistake, each with what to do instead."""

    def known(self) -> list[str]:
        return [*self.options, *self.ignored]


def table(*options: Option) -> dict[str, Option]:
    return {option.name: option for option in options}


def seconds(name: str, field: str, **more: object) -> Option:
    return msgspec.structs.replace(
        Option(name=name, field=field, kind=Kind.NUMBER, maximum=LONGEST_SECONDS, unit=" of seconds"), **more
    )
