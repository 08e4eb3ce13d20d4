"""One configuration name: its type, default and bounds, and the parser of its values."""

from __future__ import annotations

import re
from dataclasses import dataclass

REQUIRED = "<required>"
"""The default of a name without a default, which must be set."""

Value = bool | int | float | str | tuple[str, ...] | None

_BITS = {"short": 16, "int": 32, "long": 64}
NODE_ID_BITS = 32
MOST_DIGITS = 19
"""The most digits of a 64-bit number."""


class InvalidConfig(ValueError):
    """A value that its name does not allow; the message has the name and the reason."""


def integer_in(text: str, bits: int) -> int | None:
    """The integer of a text; None if it is none, or has more bits. Python refuses to parse thousands of digits."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isascii() or not digits.isdigit() or len(digits.lstrip("0")) > MOST_DIGITS:
        return None
    value = int(digits.lstrip("0") or "0") * (-1 if text[0] == "-" else 1)
    return value if -(1 << bits - 1) <= value < 1 << bits - 1 else None


@dataclass(frozen=True, slots=True)
class Definition:
    """`type` is Kafka's: boolean, string, short, int, long, double, list, class or password."""

    type: str
    default: str | None
    lowest: float | None = None
    highest: float | None = None
    also: tuple[float, ...] = ()
    """Allowed values outside the bounds."""
    choices: tuple[str, ...] = ()
    internal: bool = False
    pattern: str = ""
    """A regular expression for each item of a list, unless the first item is `*`."""
    synonyms: tuple[str, ...] = ()
    """The broker settings that override a topic's default, the one that takes precedence first."""

    def description(self) -> str:
        """A sentence with the allowed values, the default, and the broker settings that override it (DescribeConfigs v3+)."""
        if self.choices:
            takes = f"{'any' if self.type == 'list' else 'one'} of {self._choices()}"
        else:
            lowest = f", at least {self.lowest:g}" if self.lowest is not None else ""
            highest = f", at most {self.highest:g}" if self.highest is not None else ""
            takes = f"{self.type}{lowest}{highest}{''.join(f', or {value:g}' for value in self.also)}"
        unset = "nothing" if self.default in (None, "", REQUIRED) else self.default
        override = f", unless the broker sets {' or '.join(self.synonyms)}" if self.synonyms else ""
        return f"Takes {takes}. The default is {unset}{override}."

    def parse(self, name: str, text: str | None) -> Value:
        """The value of a text, without surrounding white space, as in Kafka.

        Errors: InvalidConfig if it is not of the type or outside the bounds.
        """
        if text is None:
            if self.type in ("string", "class", "password", "list"):
                return None
            raise InvalidConfig(f"Invalid value null for configuration {name}")
        trimmed = text.strip()
        if self.type == "boolean":
            return self._parse_boolean(name, trimmed)
        if self.type in _BITS:
            return self._parse_integer(name, trimmed)
        if self.type == "double":
            return self._parse_double(name, trimmed)
        if self.type == "list":
            return self._parse_list(name, trimmed)
        if self.choices and trimmed not in self.choices:
            raise InvalidConfig(
                f"Invalid value {trimmed} for configuration {name}: String must be one of: {self._choices()}"
            )
        return trimmed

    def _choices(self) -> str:
        return ", ".join(self.choices)

    def _parse_boolean(self, name: str, text: str) -> bool:
        if text.lower() not in ("true", "false"):
            raise InvalidConfig(
                f"Invalid value {text} for configuration {name}: Expected value to be either true or false"
            )
        return text.lower() == "true"

    def _parse_integer(self, name: str, text: str) -> int:
        value = integer_in(text, _BITS[self.type])
        if value is None:
            raise InvalidConfig(
                f"Invalid value {text} for configuration {name}: Not a number of type {self.type.upper()}"
            )
        return int(self._bounded(name, value))

    def _parse_double(self, name: str, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise InvalidConfig(f"Invalid value {text} for configuration {name}: Not a number of type DOUBLE") from None
        return self._bounded(name, value)

    def _bounded(self, name: str, value: float) -> float:
        if value not in self.also:
            if self.lowest is not None and value < self.lowest:
                raise InvalidConfig(
                    f"Invalid value {value} for configuration {name}: Value must be at least {self.lowest}"
                )
            if self.highest is not None and value > self.highest:
                raise InvalidConfig(
                    f"Invalid value {value} for configuration {name}: Value must be no more than {self.highest}"
                )
        return value

    def _parse_list(self, name: str, text: str) -> tuple[str, ...]:
        """The items of a list, without duplicates, as in Kafka (KIP-1161)."""
        items = tuple(item.strip() for item in text.split(",")) if text else ()
        for item in items:
            if self.choices and item not in self.choices:
                raise InvalidConfig(
                    f"Invalid value {item} for configuration {name}: String must be one of: {self._choices()}"
                )
        if not self.pattern:
            if "" in items:
                raise InvalidConfig(f"Configuration '{name}' values must not be empty.")
            return tuple(dict.fromkeys(items))
        if items[:1] != ("*",) and not all(re.fullmatch(self.pattern, item) for item in items):
            raise InvalidConfig(f"Invalid value {text} for configuration {name}: must be * or a list of {self.pattern}")
        return items
