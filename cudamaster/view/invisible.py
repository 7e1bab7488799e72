"""Makes text that a model or a tool wrote safe to look at: what a reader cannot see is spelt out.

Control characters would drive a terminal, and marks of direction would show code in another order than the compiler
reads it in.
"""

from __future__ import annotations

import re

_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


def visible(text: str) -> str:
    """The text with each unseen character as an escape, e.g. \\x1b or \\u202e; line ends and tabs stay."""
    return _UNSEEN.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
