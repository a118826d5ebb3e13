"""Masking secrets in a stream, wherever it is cut."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.execution.birth.redact import LEAST_BYTES, MASK, Redactor, forms_of, redact

PIECES = st.lists(st.binary(min_size=1, max_size=9).map(lambda b: bytes(97 + byte % 3 for byte in b)), max_size=8)
FORMS = st.lists(
    st.binary(min_size=LEAST_BYTES, max_size=7).map(lambda b: bytes(97 + byte % 2 for byte in b)), min_size=1,
    max_size=4,
)


def by_bytes(data: bytes, forms: list[bytes]) -> bytes:
    """The rule, said in the simplest way: mark each byte that belongs to an occurrence."""
    covered = [False] * len(data)
    for form in forms:
        for start in range(len(data)):
            if data.startswith(form, start):
                covered[start:start + len(form)] = [True] * len(form)
    out, before = bytearray(), False
    for byte, mask in zip(data, covered, strict=True):
        if not mask:
            out.append(byte)
        elif not before:
            out += MASK
        before = mask
    return bytes(out)


@given(PIECES, FORMS)
def test_the_cuts_do_not_matter(pieces: list[bytes], forms: list[bytes]) -> None:
    """In any pieces the stream becomes what the rule makes of the whole, also where secrets overlap, contain each other
    or stand side by side."""
    redactor = Redactor(forms)
    out = b"".join([*map(redactor.feed, pieces), redactor.finish()])
    assert out == by_bytes(b"".join(pieces), forms)


@given(PIECES, FORMS)
def test_little_is_held_back(pieces: list[bytes], forms: list[bytes]) -> None:
    """Less than the longest form; and nothing of what cannot be the beginning of one."""
    redactor, given_out, taken = Redactor(forms), b"", b""
    for piece in pieces:
        taken += piece
        given_out += redactor.feed(piece)
        held = len(redactor._held)
        assert held < max(map(len, forms))
        assert not held or any(form.startswith(taken[-held:]) for form in forms)


def test_byte_by_byte() -> None:
    """A secret that arrives in single bytes is masked, and a prompt before it is shown at once."""
    redactor = Redactor(forms_of(b"hunter2-7091"))
    assert redactor.feed(b"Password: ") == b"Password: "
    assert b"".join(redactor.feed(bytes((byte,))) for byte in b"hunter2-7091") == b"***"
    assert redactor.feed(b"\n") == b"\n"
    assert redactor.feed(b"hunter2") == b""
    assert redactor.finish() == b"hunter2"


@pytest.mark.parametrize("text", [
    "x 'it s' x", quote("pa ss/wör\"d'1", safe=""), quote("pa ss/wör\"d'1"), json.dumps({"a": "pa ss/wör\"d'1"},
                                                                                         ensure_ascii=False),
    *(base64.b64encode(b"abc"[:before] + "pa ss/wör\"d'1".encode() + b"\n").decode() for before in range(4)),
    base64.urlsafe_b64encode("pa ss/wör\"d'1".encode()).decode(),
    "pa ss/wör\"d'\\''1",
])
def test_forms_in_which_programs_write_it(text: str) -> None:
    """As an address, in JSON, in base64 wherever it begins, quoted for a shell."""
    masked = redact(text.encode(), forms_of("pa ss/wör\"d'1".encode())).decode()
    if "it s" in text:
        assert masked == text
    else:
        assert "***" in masked
        assert "wör" not in masked and "w%C3" not in masked


def test_lines_of_a_longer_secret() -> None:
    """A key of several lines is masked whole, with other line ends, and line by line; its short lines are not looked
    for."""
    key = b"-----BEGIN KEY-----\nabcdefghijkl\n}\n-----END KEY-----\n"
    assert redact(b"<" + key + b">", forms_of(key)) == b"<***>"
    assert redact(b"| abcdefghijkl\n| }", forms_of(key)) == b"| ***\n| }"
    assert redact(key.replace(b"\n", b"\r\n"), forms_of(key)).count(b"abcdefghijkl") == 0


def test_short_values_are_not_looked_for() -> None:
    """They would be found everywhere."""
    assert forms_of(b"abc") == forms_of(b"") == []
