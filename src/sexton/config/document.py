"""Bytes of a YAML file -> its tree of nodes, every node with line and column.

The C parser only composes nodes; what a scalar means is decided later, by the option it stands in. So `NO`,
`on`, `12:30` and `0777` stay the text they are where text is wanted.
"""

from __future__ import annotations

import re
from typing import Any

import yaml
from yaml import MappingNode, Node, SequenceNode

from sexton.config.reading import Reading, shown
from sexton.config.scalars import is_empty
from sexton.model.job import Place
from sexton.model.settings import Severity

MAX_EXPANDED_NODES = 200_000
"""Nodes that aliases may add to a document, all repetitions counted."""
_SECOND = "a second YAML document begins here"
_ONE_DOCUMENT = "one file holds one document: remove the `---`"
MAX_REPAIRS = 200
"""Lines of the kind `schedule: * * * * *` that are put right to find what else is wrong in the file."""

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x84\x86-\x9f\ufffe\uffff]")
_ALIAS = re.compile(r"\*[0-9A-Za-z_-]")
_ANCHOR = re.compile(r"&[0-9A-Za-z_-]")
_TAG = re.compile(r"(?:^|[\s\[{,:-])!", re.MULTILINE)
_CRON_TABLE = re.compile(
    r"(?:[ \t]*(?:#.*|[A-Za-z_]\w*[ \t]*=.*)?\r?\n)*"
    r"(?P<line>[ \t]*(?:@(?:reboot|hourly|daily|midnight|weekly|monthly|yearly|annually)|"
    r"-?[\d*][\d*/,-]*(?:[ \t]+[\w*/,-]+){4})[ \t]+\S)"
)
"""Settings, and then a line of a cron table: no file of ours begins like that."""
_UNQUOTED = re.compile(r"""^(\s*(?:-\s+)*[\w.-]+:\s+|\s*(?:-\s+)+)([*@%`&!][^'"#]*?)(\s+\#.*|\s*)$""")


class _NodesOnly:
    """A resolver that gives no node a tag, so that a tag that is there was written in the file."""

    def resolve(self, kind: Any, value: Any, implicit: Any) -> None:
        return None

    def descend_resolver(self, parent: Any, index: Any) -> None:
        return None

    def ascend_resolver(self) -> None:
        return None


def pure_composer() -> Any:
    """The composer in Python, for a PyYAML that was built without libyaml."""
    from yaml.composer import Composer
    from yaml.parser import Parser
    from yaml.reader import Reader
    from yaml.scanner import Scanner

    class PureComposer(_NodesOnly, Reader, Scanner, Parser, Composer):
        def __init__(self, stream: str) -> None:
            Reader.__init__(self, stream)
            Scanner.__init__(self)
            Parser.__init__(self)
            Composer.__init__(self)

    return PureComposer


_Composer: Any
try:
    from yaml._yaml import CParser

    class _CComposer(_NodesOnly, CParser):
        def __init__(self, stream: str) -> None:
            CParser.__init__(self, stream)

    _Composer = _CComposer
except ImportError:
    _Composer = pure_composer()


def decode(reading: Reading, data: bytes) -> str | None:
    """Decide what text the bytes are; UTF-8, with or without a byte order mark. None after a finding."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        _at(reading, 1, 1, "the file is UTF-16 text", "save it as UTF-8")
        return None
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        start = data.rfind(b"\n", 0, error.start) + 1
        column = len(data[start : error.start].decode(errors="replace")) + 1
        what = f"byte 0x{data[error.start]:02x} is not valid UTF-8"
        _at(reading, line, column, what, "save the file as UTF-8 text")
        return None
    return text


def compose(reading: Reading, text: str) -> MappingNode | None:
    """Turn text into the map at its top. None for an empty document, and after error findings."""
    if not _printable(reading, text) or _reported_cron_table(reading, text):
        return None
    root = _parse(reading, text)
    if root is None or is_empty(root):
        return None
    suspicious = (_ALIAS.search(text) and _ANCHOR.search(text)) or _TAG.search(text)
    if suspicious and not _inspect(reading, root):
        return None
    if not isinstance(root, MappingNode):
        hint = "a list of jobs goes below `jobs:`" if isinstance(root, SequenceNode) else None
        reading.error(root, f"expected a map of sections at the top level, got {described(root)}", hint)
        return None
    return root


def described(node: Node) -> str:
    """What a node is, for messages."""
    if isinstance(node, MappingNode):
        return "a map"
    if isinstance(node, SequenceNode):
        return "a list"
    return "nothing" if is_empty(node) else shown(node.value)


def _at(reading: Reading, line: int, column: int, message: str, hint: str | None = None) -> None:
    reading.report(Severity.ERROR, Place(reading.path, line, column), message, hint)


def cron_table_line(text: str) -> int | None:
    """The first line that only a cron table can begin with; None for a text that begins otherwise."""
    found = _CRON_TABLE.match(text)
    return None if found is None else text.count("\n", 0, found.start("line")) + 1


def _reported_cron_table(reading: Reading, text: str) -> bool:
    """A cron table under another name would be a riddle of YAML errors."""
    line = cron_table_line(text)
    if line is None:
        return False
    _at(reading, line, 1, "this is a line of a cron table, and by its name the file is read as YAML",
        "call it `crontab`, or let its name end in .crontab or .cron")
    return True


def _printable(reading: Reading, text: str) -> bool:
    found = _CONTROL.search(text)
    if found is None:
        return True
    line = text.count("\n", 0, found.start()) + 1
    column = found.start() - text.rfind("\n", 0, found.start())
    code = ord(found.group())
    what = "a NUL byte" if code == 0 else f"control character U+{code:04X}"
    _at(reading, line, column, f"{what} in the file", "a configuration is plain text")
    return False


def _parse(reading: Reading, text: str) -> Node | None:
    """Compose, putting unquoted stars in quotes as long as there are any, so that all errors come at once."""
    lines: list[str] | None = None
    for _ in range(MAX_REPAIRS):
        try:
            return _compose_one(reading, text)
        except RecursionError:
            _at(reading, 1, 1, "the document is nested too deeply")
            return None
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            lines = lines or text.split("\n")
            line = min(mark.line if mark else 0, len(lines) - 1)
            if not _put_right(reading, lines, line):
                _syntax_error(reading, error, lines, line)
                return None
            text = "\n".join(lines)
        except yaml.YAMLError as error:
            _at(reading, 1, 1, f"the file cannot be read as YAML: {' '.join(str(error).split())}")
            return None
    return None


def _compose_one(reading: Reading, text: str) -> Node | None:
    loader = _Composer(text)
    if not loader.check_node():
        return None
    root: Node = loader.get_node()
    try:
        second = loader.get_node() if loader.check_node() else None
    except yaml.YAMLError:
        if not _reported_second(reading, text, root.end_mark.line):
            raise
        return root
    if second is not None:
        reading.error(second, _SECOND, _ONE_DOCUMENT)
    return root


def _reported_second(reading: Reading, text: str, after: int) -> bool:
    """The part behind a `---` is not even YAML: say where it begins. False if there is no such part."""
    lines = text.split("\n")
    line = next((n for n in range(max(after, 1), len(lines)) if lines[n].startswith(("---", "..."))), None)
    if line is None:
        return False
    _at(reading, line + 1, 1, _SECOND, _ONE_DOCUMENT)
    return True


def _put_right(reading: Reading, lines: list[str], line: int) -> bool:
    """Report a value that YAML cannot read without quotes, and quote it. False if that is not the trouble."""
    match = _UNQUOTED.match(lines[line].rstrip("\r"))
    if match is None or _is_alias(match.group(2)):
        return False
    before, value, after = match.groups()
    _at(
        reading,
        line + 1,
        len(before) + 1,
        f"a value that begins with `{value[0]}` needs quotes",
        f'write {before.strip()} "{value}"',
    )
    lines[line] = f"{before}'{value}'{after}"
    return True


def _is_alias(value: str) -> bool:
    return value[0] in "*&!" and len(value) > 1 and (value[1].isalnum() or value[1] == "_")


_REASONS = (
    ("mapping values are not allowed", "unexpected `:`", "put the value in quotes, or check the indentation"),
    ("cannot start any token", "unexpected character", "put the value in quotes"),
    ("unexpected end of stream", "a quote is never closed", "add the closing quote"),
    ("undefined alias", "alias without an anchor", "a value that begins with `*` needs quotes"),
    ("maximum nesting depth", "the document is nested too deeply", None),
    ("could not find expected ':'", "expected `key: value`", "check that each key is followed by `: `"),
    ("did not find expected key", "expected `key: value` here", "check the indentation and the quotes above"),
    ("did not find expected '-' indicator", "expected a list entry (`- `) here", "check the indentation"),
    ("did not find expected ',' or", "a `[` or `{` is never closed", "close it, or put the value in quotes"),
    ("<document start>", "expected nothing more here", "check the indentation"),
    ("unknown escape character", "unknown escape in double quotes", "use single quotes, or write `\\\\`"),
)


def _syntax_error(reading: Reading, error: yaml.MarkedYAMLError, lines: list[str], line: int) -> None:
    mark = error.problem_mark or error.context_mark
    column = mark.column + 1 if mark else 1
    if "\t" in lines[line][: len(lines[line]) - len(lines[line].lstrip())]:
        tab = lines[line].index("\t") + 1
        _at(reading, line + 1, tab, "a tab in the indentation", "YAML indents with spaces only")
        return
    problem = error.problem or error.context or "not valid YAML"
    for part, message, hint in _REASONS:
        if part in problem:
            _at(reading, line + 1, column, f"{message} (YAML: {problem})", hint)
            return
    _at(reading, line + 1, column, f"not valid YAML: {problem}")


def _inspect(reading: Reading, root: Node) -> bool:
    """Refuse tags, aliases inside of what they stand for, and aliases that multiply beyond reason."""
    sizes: dict[int, int] = {}
    unfinished: set[int] = set()
    stack: list[tuple[Node, bool]] = [(root, False)]
    sound = True
    while stack:
        node, children_done = stack.pop()
        key = id(node)
        if children_done:
            unfinished.discard(key)
            sizes[key] = 1 + sum(sizes.get(id(child), 0) for child in _children(node))
            continue
        if key in unfinished:
            reading.error(node, "this anchor contains an alias of itself", "write the value out")
            return False
        if key in sizes:
            continue
        if node.tag is not None:
            reading.error(node, f"YAML tag {shown(str(node.tag))} is not supported", "remove it")
            sound = False
        unfinished.add(key)
        stack.append((node, True))
        stack.extend((child, False) for child in _children(node))
    if sizes[id(root)] > len(sizes) + MAX_EXPANDED_NODES:
        reading.error(root, f"the aliases of this file repeat more than {MAX_EXPANDED_NODES} values")
        return False
    return sound


def _children(node: Node) -> list[Node]:
    if isinstance(node, MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, SequenceNode) else []
