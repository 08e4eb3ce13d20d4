"""Reads TLA+ values, as TLC prints them, into values of Python.

Records and functions become dicts, sequences lists, sets sorted tuples, strings `str`, model values `ModelValue`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

TOKEN = re.compile(r'\s*(<<|>>|\|->|:>|@@|\.\.|[\[\](){},]|-?\d+|"(?:[^"\\]|\\.)*"|\w+)')


class ModelValue(str):
    """A model value of a configuration (`b1`, `None`); it equals the string of its name."""

    __slots__ = ()


class ValueSyntaxError(ValueError):
    """The text is not a TLA+ value; the message quotes the place."""


def parse_value(text: str) -> Any:
    """One value. Errors: ValueSyntaxError."""
    reader = _Reader(text)
    value = reader.value()
    reader.end()
    return value


def parse_state(text: str) -> dict[str, Any]:
    """A state: `/\\ name = value` for each variable. Errors: ValueSyntaxError."""
    parts = re.split(r"(?:^|\n)\s*/\\ (\w+) = ", "\n" + text.strip())
    if len(parts) == 1:
        parts = re.split(r"(?:^|\n)\s*(\w+) = ", "\n" + text.strip())
    return {name: parse_value(value) for name, value in zip(parts[1::2], parts[2::2], strict=True)}


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._split(text))
        self._next = 0

    def _split(self, text: str) -> Iterator[str]:
        at = 0
        while at < len(text.rstrip()):
            found = TOKEN.match(text, at)
            if not found:
                raise ValueSyntaxError(f"not a TLA+ value at {text[at : at + 30]!r}")
            yield found[1]
            at = found.end()

    def _peek(self) -> str:
        return self._tokens[self._next] if self._next < len(self._tokens) else ""

    def _take(self, expected: str = "") -> str:
        token = self._peek()
        if not token or (expected and token != expected):
            raise ValueSyntaxError(f"expected {expected or 'a value'}, found {token or 'the end'!r} in {self._text!r}")
        self._next += 1
        return token

    def end(self) -> None:
        if self._peek():
            raise ValueSyntaxError(f"{self._peek()!r} follows the value in {self._text!r}")

    def value(self) -> Any:
        token = self._take()
        match token:
            case "<<":
                return self._list(">>")
            case "{":
                return tuple(sorted(self._list("}"), key=repr))
            case "[":
                return self._record()
            case "(":
                return self._function()
            case "TRUE" | "FALSE":
                return token == "TRUE"
            case _:
                return self._plain(token)

    def _plain(self, token: str) -> Any:
        if token.startswith('"'):
            return token[1:-1]
        if token.lstrip("-").isdigit():
            number = int(token)
            if self._peek() != "..":
                return number
            self._take("..")
            return tuple(range(number, int(self._take()) + 1))
        if token.isidentifier():
            return ModelValue(token)
        raise ValueSyntaxError(f"{token!r} begins no value in {self._text!r}")

    def _list(self, close: str) -> list[Any]:
        found: list[Any] = []
        while self._peek() != close:
            found.append(self.value())
            if self._peek() != close:
                self._take(",")
        self._take(close)
        return found

    def _record(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self._peek() != "]":
            name = self._take()
            self._take("|->")
            found[name] = self.value()
            if self._peek() != "]":
                self._take(",")
        self._take("]")
        return found

    def _function(self) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        while self._peek() != ")":
            key = self.value()
            self._take(":>")
            found[key] = self.value()
            if self._peek() != ")":
                self._take("@@")
        self._take(")")
        return found
