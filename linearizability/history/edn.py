"""EDN, as far as histories need it: maps, vectors, lists, sets, keywords, numbers, strings, nil, and tags (skipped)."""

from __future__ import annotations

import re
from typing import Any

_TOKEN = re.compile(
    r"""[\s,]*(?:(?P<comment>;[^\n]*\n?)|(?P<skip>\#_)|(?P<open>\#\{|[\[({])|(?P<close>[\])}])
    |(?P<string>"(?:\\.|[^"\\])*")|(?P<char>\\\w+|\\.)|(?P<tag>\#[A-Za-z][\w.*+!?$%&=<>/-]*)|(?P<atom>[^\s,\[\](){}";]+))""",
    re.X,
)
_CLOSING = {"[": "]", "(": ")", "{": "}", "#{": "}"}
_INTEGER = re.compile(r"[+-]?\d+N?")
_FLOAT = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?M?")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
MAX_DEPTH = 100
"""Deeper nesting is no history of ours."""


class Keyword(str):
    """A keyword, without its colon; equal to the string of its name."""

    __slots__ = ()


class EdnError(ValueError):
    """Text that is not EDN; says at which character."""


def read_all(text: str) -> list[Any]:
    """All forms of a text, one after the other."""
    forms, position = [], 0
    while True:
        form, position, ended = _read(text, position, "", 0)
        if ended:
            return forms
        forms.append(form)


def read(text: str) -> Any:
    """The text's one form."""
    forms = read_all(text)
    if len(forms) != 1:
        raise EdnError(f"{len(forms)} forms where one must be")
    return forms[0]


def _read(text: str, position: int, closing: str, depth: int) -> tuple[Any, int, bool]:
    """The next form, where it ends, and whether `closing` (or the end of the text) came instead."""
    if depth > MAX_DEPTH:
        raise EdnError(f"nested more than {MAX_DEPTH} deep")
    while True:
        match = _TOKEN.match(text, position)
        if match is None:
            if text[position:].strip(" \t\r\n,"):
                raise EdnError(f"not EDN at character {position}")
            if closing:
                raise EdnError(f"{closing!r} is missing at the end")
            return None, len(text), True
        start, position = position, match.end()
        if match["comment"] is not None:
            continue
        if match["skip"] is not None:
            _, position, ended = _read(text, position, closing, depth + 1)
            if ended:
                raise EdnError(f"nothing to discard at character {start}")
            continue
        if match["tag"] is not None:
            continue  # the tagged form is read without its tag
        if match["close"] is not None:
            if match["close"] != closing:
                raise EdnError(f"{match['close']!r} at character {start}")
            return None, position, True
        if match["open"] is not None:
            items, position = _collection(text, position, _CLOSING[match["open"]], depth)
            return _collected(match["open"], items, start), position, False
        return _scalar(match), position, False


def _collection(text: str, position: int, closing: str, depth: int) -> tuple[list[Any], int]:
    items = []
    while True:
        item, position, ended = _read(text, position, closing, depth + 1)
        if ended:
            return items, position
        items.append(item)


def _collected(opening: str, items: list[Any], start: int) -> Any:
    if opening == "{":
        if len(items) % 2:
            raise EdnError(f"a map with an odd number of forms at character {start}")
        return {_hashable(key): value for key, value in zip(items[::2], items[1::2], strict=True)}
    return items


def _hashable(key: Any) -> Any:
    return tuple(_hashable(item) for item in key) if isinstance(key, list) else key


def _scalar(match: re.Match[str]) -> Any:
    if match["string"] is not None:
        return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), match["string"][1:-1], flags=re.S)
    if match["char"] is not None:
        return match["char"][1:]
    atom = match["atom"]
    if atom in ("nil", "true", "false"):
        return {"nil": None, "true": True, "false": False}[atom]
    if atom.startswith(":"):
        return Keyword(atom[1:])
    if _INTEGER.fullmatch(atom):
        return int(atom.rstrip("N"))
    if _FLOAT.fullmatch(atom):
        return float(atom.rstrip("M"))
    return atom


def write(value: Any) -> str:
    """A value as EDN; dictionaries with string keys become maps with keywords where the key is a Keyword."""
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Keyword):
        return f":{value}"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    if isinstance(value, dict):
        return "{" + ", ".join(f"{write(key)} {write(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + " ".join(write(item) for item in value) + "]"
    return str(value)
