"""Untrusted text that is shown on a terminal. Pure."""

from __future__ import annotations

import re

# Characters that control a terminal (C0, DEL, C1), break lines in other programs, or are half of a
# character. Also characters that reverse the reading direction of the following text, so that one
# name could pose as another.
CONTROL = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069"
    "\\ud800-\\udfff\\ufeff]"
)


def printable(text: str, *, one_line: bool = False) -> str:
    """``text`` with the characters that control a terminal escaped, such as ``\\x1b`` and
    ``\\u202e``."""
    if one_line:
        text = " ".join(text.split())
    return CONTROL.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"
