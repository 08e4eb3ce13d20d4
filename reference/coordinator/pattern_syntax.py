"""The syntax of clients' patterns: RE2's, as RE2/J parses it.

A pattern is untrusted input, so no backtracking engine runs it: it is parsed here and matched in linear time in
`pattern_matching`. Constructs that RE2 does not have, back references and lookaround, are errors here too. A script is
recognized by the Unicode names of its letters (LATIN SMALL LETTER A), which is right for all but a few characters that
several scripts share.
Source: the RE2 syntax page; com.google.re2j.Parser (its words for the errors are Kafka's answer).
"""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

MAX_LENGTH = 10_000
"""The most characters of a pattern: it may be a list of 200 names. RE2/J is bounded only by its memory, but here a step
through a pattern must end soon."""

MAX_REPEAT = 1000
MAX_DEPTH = 100
"""The deepest nesting of groups; RE2 itself stops at 1000."""

FLAGS = "imsU"

Allows: TypeAlias = Callable[[str], bool]
"""Whether a character is in a class of characters."""


class PatternError(Exception):
    """An invalid pattern; the message names the error."""


@dataclass(frozen=True, slots=True)
class Characters:
    """One character of a class."""

    allows: Allows


@dataclass(frozen=True, slots=True)
class Assertion:
    """A position: `start` or `end` of the text or of a `line`, `boundary` of a word, or `inside`: not at a boundary."""

    kind: str


@dataclass(frozen=True, slots=True)
class Chain:
    """A sequence of parts."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several options."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A repeated part; `most` is None without a bound. Greediness does not matter to a whole match."""

    part: Node
    least: int
    most: int | None


Node: TypeAlias = "Characters | Assertion | Chain | Choice | Repeat"

_ASSERTIONS = {"A": "start", "z": "end", "b": "boundary", "B": "inside"}
_CONTROLS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_WORD = string.ascii_letters + string.digits + "_"
_PERL = {"d": string.digits, "w": _WORD, "s": "\t\n\f\r "}
_POSIX = {
    "alnum": string.ascii_letters + string.digits,
    "alpha": string.ascii_letters,
    "ascii": "".join(map(chr, range(128))),
    "blank": "\t ",
    "cntrl": "".join(map(chr, [*range(32), 127])),
    "digit": string.digits,
    "graph": string.ascii_letters + string.digits + string.punctuation,
    "lower": string.ascii_lowercase,
    "print": string.ascii_letters + string.digits + string.punctuation + " ",
    "punct": string.punctuation,
    "space": "\t\n\v\f\r ",
    "upper": string.ascii_uppercase,
    "word": _WORD,
    "xdigit": string.hexdigits,
}
_LETTERS = ("L", "M")
"""The Unicode categories that belong to one script; all others are common."""


def parse(pattern: str) -> Node:
    """Errors: PatternError."""
    if len(pattern) > MAX_LENGTH:
        raise PatternError("expression too large")
    return _Parser(pattern).parse()


class _Parser:
    """A recursive descent parser of one pattern; `_at` is the next character."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._flags: frozenset[str] = frozenset()
        self._names: set[str] = set()
        self._depth = 0

    def parse(self) -> Node:
        node = self._choice()
        if self._at < len(self._pattern):
            raise PatternError("unexpected )")
        return node

    # ---- reading

    def _peek(self, text: str) -> bool:
        return self._pattern.startswith(text, self._at)

    def _take(self, text: str) -> bool:
        if not self._peek(text):
            return False
        self._at += len(text)
        return True

    def _next(self, missing: str) -> str:
        if self._at >= len(self._pattern):
            raise PatternError(missing)
        self._at += 1
        return self._pattern[self._at - 1]

    def _until(self, end: str, missing: str) -> str:
        stop = self._pattern.find(end, self._at)
        if stop < 0:
            raise PatternError(missing)
        text = self._pattern[self._at : stop]
        self._at = stop + len(end)
        return text

    # ---- structure

    def _choice(self) -> Node:
        options = [self._chain()]
        while self._take("|"):
            options.append(self._chain())
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _chain(self) -> Node:
        parts: list[Node] = []
        has_atom = is_repeated = False
        while self._at < len(self._pattern) and not self._peek("|") and not self._peek(")"):
            bounds = self._repetition()
            if bounds is not None:
                if not has_atom:
                    raise PatternError("missing argument to repetition operator")
                if is_repeated:
                    raise PatternError("invalid nested repetition operator")
                parts[-1], is_repeated = _repeat(parts[-1], *bounds), True
                continue
            is_repeated = self._peek("{")  # a brace that is a literal bars a repetition after it, as in RE2/J
            atoms = self._atoms()
            has_atom = has_atom or bool(atoms)
            parts += atoms
        return parts[0] if len(parts) == 1 else Chain(tuple(parts))

    def _repetition(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                self._take("?")
                return bounds
        return self._counted() if self._peek("{") else None

    def _counted(self) -> tuple[int, int | None] | None:
        """The bounds of `{n}`, `{n,}` or `{n,m}`; None if the brace is a literal."""
        stop = self._pattern.find("}", self._at)
        least, comma, most = self._pattern[self._at + 1 : max(stop, self._at)].partition(",")
        if stop < 0 or not _is_number(least) or (most and not _is_number(most)):
            return None
        bounds = int(least), int(most) if most else (None if comma else int(least))
        if max(bounds[0], bounds[1] or 0) > MAX_REPEAT or (bounds[1] is not None and bounds[1] < bounds[0]):
            raise PatternError("invalid repeat count")
        self._at = stop + 1
        self._take("?")
        return bounds

    def _atoms(self) -> list[Node]:
        """The parts of the next character or escape: one, several for a quoted text, or none if it only sets flags."""
        sign = self._next("")
        if sign == "(":
            return self._group()
        if sign == "[":
            return [Characters(self._class())]
        if sign == ".":
            return [Characters(_anything if "s" in self._flags else _within_a_line)]
        if sign in "^$":
            place = "start" if sign == "^" else "end"
            return [Assertion(f"{place} of line" if "m" in self._flags else place)]
        if sign == "\\":
            return self._escaped_atoms()
        return [self._literal(sign)]

    def _literal(self, sign: str) -> Node:
        return Characters(self._folded(_between(sign, sign)))

    def _folded(self, allows: Allows) -> Allows:
        return (lambda sign: any(map(allows, _cases(sign)))) if "i" in self._flags else allows

    # ---- groups

    def _group(self) -> list[Node]:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise PatternError("expression nests too deeply")
        outer = self._flags
        if self._take("?") and not self._opens_group():
            self._depth -= 1
            return []
        node = self._choice()
        if not self._take(")"):
            raise PatternError("missing closing )")
        self._flags = outer
        self._depth -= 1
        return [node]

    def _opens_group(self) -> bool:
        """After `(?`: whether a group begins; otherwise only flags were set, for the rest of the enclosing group."""
        if self._take("P<") or self._take("<"):
            self._name(self._until(">", "invalid named capture"))
            return True
        flags, negated, seen = set(self._flags), False, ""
        while True:
            sign = self._next("missing closing )")
            if sign in ":)":
                if negated and not seen:
                    break
                self._flags = frozenset(flags)
                return sign == ":"
            if sign == "-" and not negated:
                negated, seen = True, ""
            elif sign in FLAGS:
                seen += sign
                (flags.discard if negated else flags.add)(sign)
            else:
                break
        raise PatternError("invalid or unsupported Perl syntax")

    def _name(self, name: str) -> None:
        if not name or not set(name) <= set(_WORD):
            raise PatternError("invalid named capture")
        if name in self._names:
            raise PatternError("duplicate capture group name")
        self._names.add(name)

    # ---- escapes and classes

    def _escaped_atoms(self) -> list[Node]:
        sign = self._next("trailing backslash at end of expression")
        if sign in _ASSERTIONS:
            return [Assertion(_ASSERTIONS[sign])]
        if sign == "Q":
            stop = self._pattern.find("\\E", self._at)
            quoted = self._pattern[self._at : stop if stop >= 0 else len(self._pattern)]
            self._at += len(quoted) + (2 if stop >= 0 else 0)
            return [self._literal(each) for each in quoted]
        allows = self._escaped_class(sign)
        return [Characters(allows) if allows is not None else self._literal(self._escaped_sign(sign))]

    def _escaped_class(self, sign: str) -> Allows | None:
        """The class of an escape: \\d, \\w, \\s, \

        L, \

        {Latin}; a capital letter negates it. None for another escape."""
        if sign.lower() in _PERL:
            allows = self._folded(_one_of(_PERL[sign.lower()]))
        elif sign in "pP":
            allows = self._unicode()
        else:
            return None
        return _none_of(allows) if sign.isupper() else allows

    def _unicode(self) -> Allows:
        """The characters of a Unicode category or script. A script's name is not checked."""
        name = self._next("invalid character class range")
        if name == "{":
            name = self._until("}", "invalid character class range")
        negated, name = name.startswith("^"), name.removeprefix("^")
        if name == "Any":
            found = _anything
        elif name == "Common":
            found = _none_of(_of_category(_LETTERS))
        elif len(name) <= 2 and name[:1] in set("CLMNPSZ"):
            found = _of_category(name)
        elif len(name) > 2 and name[0].isupper() and name.replace("_", "").isalpha():
            found = _of_script(name)
        else:
            raise PatternError("invalid character class range")
        found = self._folded(found)
        return _none_of(found) if negated else found

    def _escaped_sign(self, sign: str) -> str:
        if sign in _CONTROLS:
            return _CONTROLS[sign]
        if sign == "x":
            return self._hexadecimal()
        if sign == "0" or (sign in "1234567" and self._pattern[self._at : self._at + 1] in set("01234567")):
            digits = sign
            while len(digits) < 3 and self._pattern[self._at : self._at + 1] in set("01234567"):
                digits += self._next("")
            return chr(int(digits, 8))
        if not (sign.isascii() and sign.isalnum()):
            return sign
        raise PatternError("invalid escape sequence")

    def _hexadecimal(self) -> str:
        wrong = "invalid escape sequence"
        digits = self._until("}", wrong) if self._take("{") else self._next(wrong) + self._next(wrong)
        if not digits or not set(digits) <= set(string.hexdigits) or len(digits) > 8 or int(digits, 16) > 0x10FFFF:
            raise PatternError(wrong)
        return chr(int(digits, 16))

    def _class(self) -> Allows:
        """The class after `[`. Case is folded before the class is negated."""
        missing = "missing closing ]"
        negated = self._take("^")
        items: list[Allows] = []
        while not items or not self._peek("]"):
            if self._at >= len(self._pattern):
                raise PatternError(missing)
            items.append(self._class_item(missing))
        self._take("]")
        return lambda sign: any(allows(sign) for allows in items) is not negated

    def _class_item(self, missing: str) -> Allows:
        if self._peek("[:") and ":]" in self._pattern[self._at + 2 :]:
            self._take("[:")
            name = self._until(":]", missing)
            if name.removeprefix("^") not in _POSIX:
                raise PatternError("invalid character class range")
            found = self._folded(_one_of(_POSIX[name.removeprefix("^")]))
            return _none_of(found) if name.startswith("^") else found
        if self._peek("\\"):
            start = self._at
            self._take("\\")
            allows = self._escaped_class(self._next("trailing backslash at end of expression"))
            if allows is not None:
                return allows
            self._at = start
        low = high = self._class_sign(missing)
        if self._peek("-") and not self._peek("-]"):
            self._take("-")
            high = self._class_sign(missing)
        if high < low:
            raise PatternError("invalid character class range")
        return self._folded(_between(low, high))

    def _class_sign(self, missing: str) -> str:
        sign = self._next(missing)
        if sign == "\\":
            return self._escaped_sign(self._next("trailing backslash at end of expression"))
        return sign


def _anything(sign: str) -> bool:
    return True


def _within_a_line(sign: str) -> bool:
    return sign != "\n"


def _between(low: str, high: str) -> Allows:
    return lambda sign: low <= sign <= high


def _one_of(signs: str) -> Allows:
    return frozenset(signs).__contains__


def _none_of(allows: Allows) -> Allows:
    return lambda sign: not allows(sign)


def _of_category(names: str | tuple[str, ...]) -> Allows:
    return lambda sign: unicodedata.category(sign).startswith(names)


def _of_script(name: str) -> Allows:
    first = "CJK " if name == "Han" else name.upper().replace("_", " ") + " "
    is_letter = _of_category(_LETTERS)
    return lambda sign: is_letter(sign) and unicodedata.name(sign, "").startswith(first)


def _cases(sign: str) -> set[str]:
    """A letter in lower and upper case, without forms of more than one letter."""
    return {each for each in (sign, sign.lower(), sign.upper()) if len(each) == 1}


def _repeat(part: Node, least: int, most: int | None) -> Node:
    """Repeat a part. Nested counts must not multiply to more than `MAX_REPEAT`."""
    if _count(part) * max(most or least, 1) > MAX_REPEAT:
        raise PatternError("invalid repeat count")
    return Repeat(part, least, most)


def _count(node: Node) -> int:
    """The product of the nested counts within a part, at most."""
    if isinstance(node, Repeat):
        return max(node.most or node.least, 1) * _count(node.part)
    parts = node.parts if isinstance(node, Chain) else node.options if isinstance(node, Choice) else ()
    return max((_count(part) for part in parts), default=1)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9
