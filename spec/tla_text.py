"""The text of TLA+ modules as the mutation tool needs it: definitions, tokens, junction lists, uses.

It reads only the style of this specification, in which definitions begin in the first column. A misread text becomes a mutant
that SANY or TLC refuses, never a wrong verdict.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from functools import cached_property

TOKEN = re.compile(
    r'"[^"\n]*"|/\\|\\/|<=>|<<|>>|=<|<=|>=|=>|\|->|->|<-|:>|@@|==|\.\.|\\[a-zA-Z]+|\\|\w+|[^\s\w]',
)
DEFINITION = re.compile(r"(\w+)(?:\(([^)]*)\))? ==")
OPENING, CLOSING = {"(", "[", "{", "<<"}, {")", "]", "}", ">>"}
JUNCTIONS = {"/\\", "\\/"}
BEFORE_OPERAND = JUNCTIONS | OPENING | {"==", "=>", "<=>", "THEN", "ELSE", "IN", "IF", ":", ",", "|->", "~", "="}
AFTER_OPERAND = JUNCTIONS | CLOSING | {"=>", "<=>", "THEN", "ELSE", "IN", ","}


@dataclass(frozen=True)
class Token:
    """A word or sign, with its offset in the module's text, its line and its column."""

    text: str
    at: int
    line: int
    column: int

    @property
    def end(self) -> int:
        return self.at + len(self.text)


@dataclass(frozen=True)
class Span:
    """A piece of the module's text."""

    begin: int
    end: int

    def of(self, text: str) -> str:
        return text[self.begin : self.end]


@dataclass(frozen=True)
class Item:
    """One operand, and the sign of the conjunction or disjunction that it belongs to."""

    sign: str
    span: Span


@dataclass(frozen=True)
class Definition:
    """A definition in a module: its name, its parameters and its body's place."""

    module: str
    name: str
    body: Span
    text: str
    """The whole module's text, with blanks in place of comments so that offsets are unchanged."""

    @cached_property
    def tokens(self) -> list[Token]:
        return tokens_of(self.text, self.body)

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(token.text for token in self.tokens if re.fullmatch(r"[A-Za-z]\w*", token.text))

    @cached_property
    def is_primed(self) -> bool:
        return any(token.text in ("'", "UNCHANGED") for token in self.tokens)

    @cached_property
    def action(self) -> str:
        """The step that the definition records; "" if none."""
        found = re.search(r'\b(?:Message)?Step\("(\w+)"|\bShows\("(\w+)"', self.body.of(self.text))
        return (found[1] or found[2]) if found else ""

    def items(self) -> list[Item]:
        """The operands of all junctions of the body, in the order of the text; an item of a list may contain others."""
        found: dict[Span, Item] = {}
        for position, token in enumerate(self.tokens):
            if token.text not in JUNCTIONS:
                continue
            if self._begins_item(position):
                span = self._list_item(position)
                found.setdefault(span, Item(token.text, span))
            else:
                for span in (self._operand_before(position), self._operand_after(position)):
                    found.setdefault(span, Item(token.text, span))
        return sorted(found.values(), key=lambda item: (item.span.begin, -item.span.end))

    def _begins_item(self, position: int) -> bool:
        """Whether a sign begins an item of a list: it is first on its line, or no operand precedes it."""
        before = self.tokens[position - 1] if position else None
        return before is None or before.line < self.tokens[position].line or before.text in BEFORE_OPERAND

    def _list_item(self, position: int) -> Span:
        sign, depth = self.tokens[position], 0
        last = sign
        for token in self.tokens[position + 1 :]:
            begins_line = token.line > last.line
            if depth == 0 and (token.text in CLOSING or (begins_line and token.column <= sign.column)):
                break
            depth += (token.text in OPENING) - (token.text in CLOSING)
            last = token
        return Span(self.tokens[position + 1].at, last.end)

    def _operand_before(self, position: int) -> Span:
        depth, first = 0, position - 1
        while first >= 0:
            text = self.tokens[first].text
            if depth == 0 and (text in BEFORE_OPERAND - {"=", "~"} or self._assigns(first)):
                break
            depth += (text in CLOSING) - (text in OPENING)
            first -= 1
        return Span(self.tokens[first + 1].at, self.tokens[position - 1].end)

    def _assigns(self, position: int) -> bool:
        """Whether the token is the `=` of an entry of an EXCEPT, as in `![b] = x`."""
        if self.tokens[position].text != "=":
            return False
        depth, first = 0, position - 1
        while first > 0 and (depth or self.tokens[first].text not in {"!", *BEFORE_OPERAND}):
            text = self.tokens[first].text
            depth += (text in CLOSING) - (text in OPENING)
            first -= 1
        return self.tokens[first].text == "!"

    def _operand_after(self, position: int) -> Span:
        depth, last = 0, position + 1
        while last < len(self.tokens):
            token = self.tokens[last]
            if depth == 0 and (token.text in AFTER_OPERAND or self._outside(token, position)):
                break
            depth += (token.text in OPENING) - (token.text in CLOSING)
            last += 1
        return Span(self.tokens[position + 1].at, self.tokens[last - 1].end)

    def _outside(self, token: Token, position: int) -> bool:
        """Whether a token on a later line is outside the sign's item: not indented more than the sign's own line."""
        sign = self.tokens[position]
        first = next(other for other in self.tokens if other.line == sign.line)
        return token.line > sign.line and token.column <= first.column


def tokens_of(text: str, span: Span) -> list[Token]:
    """The tokens of a piece of text."""
    found: list[Token] = []
    for match in TOKEN.finditer(text, span.begin, span.end):
        start = text.rfind("\n", 0, match.start()) + 1
        found.append(Token(match[0], match.start(), text.count("\n", 0, match.start()), match.start() - start))
    return found


def blanked(text: str) -> str:
    """The text with blanks in place of comments."""
    return re.sub(r"\(\*.*?\*\)|\\\*[^\n]*", lambda found: " " * len(found[0]), text)


def definitions_of(module: str, source: str) -> dict[str, Definition]:
    """The definitions that begin in the first column, in order."""
    text = blanked(source)
    units = [match.start() for match in re.finditer(r"^\S", text, re.M)] + [len(text)]
    found: dict[str, Definition] = {}
    for begin, end in itertools.pairwise(units):
        head = DEFINITION.match(text, begin, end)
        if head:
            body = Span(head.end(), begin + len(text[begin:end].rstrip()))
            found[head[1]] = Definition(module, head[1], body, text)
    return found


def reached(names: set[str], definitions: dict[str, Definition], instead: dict[str, str]) -> set[str]:
    """The definitions that these names use, directly or through others; `instead` are a configuration's replacements."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        name = instead.get(name, name)
        if name in definitions and name not in found:
            found.add(name)
            waiting += definitions[name].names
    return found
