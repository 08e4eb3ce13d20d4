"""Reads the lines of a Java properties file."""

from __future__ import annotations

import re
from collections.abc import Iterator

ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))")


def logical_lines(text: str) -> Iterator[tuple[int, str, str | None]]:
    """The line number, name and value of each property: `name=value` or `name: value`; without a separator the value is
    None.

    `#` and `!` begin comments, a backslash at the end of a line continues it, other escapes are Java's.
    """
    logical, first = "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        first = first if logical else number
        if not logical and (not stripped or stripped[0] in "#!"):
            continue
        logical += stripped
        if logical.endswith("\\") and not logical.endswith("\\\\"):
            logical = logical[:-1]
            continue
        name, separator, value = logical.partition(min("=", ":", key=lambda sign: (logical + sign).index(sign)))
        yield first, name.strip(), ESCAPE.sub(_unescaped, value.strip()) if separator and name.strip() else None
        logical = ""


def _unescaped(escape: re.Match[str]) -> str:
    code, character = escape.groups()
    return chr(int(code, 16)) if code else {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}.get(character, character)
