"""Masking secrets in a stream of bytes, wherever it is cut into pieces. Pure; imports nothing, so that the supervisor
of a run that outlives the daemon can use it, too.

What is masked are the `forms` of the secrets: the values and the ways in which programs commonly write them
(`forms_of`). Every byte that belongs to an occurrence of any form is taken out; for each unbroken run of such bytes one
MASK stands. The result does not depend on where the pieces begin and end.
"""

from __future__ import annotations

MASK = b"***"
LEAST_BYTES = 4
"""A shorter value is not looked for: it would be found everywhere."""
LEAST_LINE_BYTES = 8
"""Of a line of a longer secret."""
MOST_FORM_BYTES = 64 * 1024


def forms_of(value: bytes) -> list[bytes]:
    """What to look for, for one secret: the value, its lines, and how JSON, an address, base64 or a shell write it.
    Empty for a value that is too short."""
    found = [value, value.strip()]
    if b"\n" in value:
        lines = [line.strip() for line in value.split(b"\n")]
        found += [b"\r\n".join(value.split(b"\n")), *(line for line in lines if len(line) >= LEAST_LINE_BYTES)]
    found += [form for whole in (value, value.strip()) for form in _written(whole)]
    unique: dict[bytes, None] = dict.fromkeys(form for form in found if LEAST_BYTES <= len(form) <= MOST_FORM_BYTES)
    return list(unique)


def _written(value: bytes) -> list[bytes]:
    quoted = b"".join(
        bytes((byte,)) if 48 <= byte < 58 or 65 <= byte < 91 or 97 <= byte < 123 or byte in b"-._~"
        else b"%%%02X" % byte for byte in value
    )
    json = value.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n").replace(b"\t", b"\\t")
    shell = value.replace(b"'", b"'\\''")
    return [quoted, quoted.replace(b"%20", b"+"), quoted.replace(b"%2F", b"/"), json, shell, *_base64(value)]


_DIGITS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def _base64(value: bytes) -> list[bytes]:
    """The part of it that is the same whatever stands around the value, for each of the three places where it can
    begin."""
    forms = []
    for shift in range(3):
        bits = int.from_bytes(value, "big") << (-8 * (len(value) + shift) % 6)
        digits = (8 * (len(value) + shift) + 5) // 6
        text = bytes(_DIGITS[bits >> 6 * place & 63] for place in reversed(range(digits)))
        first = (0, 2, 3)[shift]  # digits that the bytes before it have a share in
        last = len(text) if (len(value) + shift) % 3 == 0 else len(text) - 1
        if last - first >= 8:
            forms += [text[first:last], text[first:last].replace(b"+", b"-").replace(b"/", b"_")]
    return forms


class Redactor:
    """For one stream. It holds back at most one byte less than the longest form: what may be the beginning of one."""

    __slots__ = ("_covered", "_forms", "_held")

    def __init__(self, forms: list[bytes]) -> None:
        self._forms = forms
        self._held = b""
        self._covered = -1
        """Bytes at the beginning of what is held that belong to a mask that was written already; -1: none was written
        up to there."""

    def feed(self, data: bytes) -> bytes:
        """What can be passed on now."""
        return self._pass_on(self._held + data if self._held else data, last=False)

    def finish(self) -> bytes:
        """What was held back, at the end of the stream."""
        return self._pass_on(self._held, last=True)

    def _pass_on(self, data: bytes, *, last: bool) -> bytes:
        keep_from = len(data) if last else _beginning(data, self._forms)
        found = occurrences(data, self._forms)
        if not found and self._covered < 0:
            self._held = data[keep_from:]
            return data if keep_from == len(data) else data[:keep_from]
        out, at, masked = [], 0, False
        if self._covered >= 0:
            at, masked = self._covered, True
        covered = -1
        for start, end in found:
            if start >= keep_from:
                break
            if start > at or (start == at and not masked):
                out += [data[at:start], MASK]
            at, masked = max(at, end), True
        if at >= keep_from and masked:
            covered = at - keep_from
        elif at < keep_from:
            out.append(data[at:keep_from])
        self._held, self._covered = data[keep_from:], covered
        return b"".join(out)


def occurrences(data: bytes, forms: list[bytes]) -> list[tuple[int, int]]:
    """Where forms stand, also overlapping ones, by their beginnings."""
    found = []
    for form in forms:
        start = data.find(form)
        while start >= 0:
            found.append((start, start + len(form)))
            start = data.find(form, start + 1)
    found.sort()
    return found


def _beginning(data: bytes, forms: list[bytes]) -> int:
    """Where the longest end of the data stands that may be the beginning of a form; the end where none is."""
    earliest = len(data)
    for form in forms:
        at = data.find(form[:1], max(0, len(data) - len(form) + 1))
        while 0 <= at < earliest:
            if form.startswith(data[at:]):
                earliest = at
                break
            at = data.find(form[:1], at + 1)
    return earliest


def redact(data: bytes, forms: list[bytes]) -> bytes:
    """A whole text at once."""
    return Redactor(forms)._pass_on(data, last=True)
