"""Mutants of the specification: each differs from it in one place.

| kind | change | how it must be detected |
| --- | --- | --- |
| guard | a conjunct without primes becomes TRUE | a promise breaks: there are more behaviours |
| alternative | a disjunct without primes becomes FALSE | as a guard if the disjunction is negated, else as an action |
| reset | a primed variable keeps its value, or an entry of an EXCEPT is left out | a promise breaks |
| comparison | < and <=, > and >= are exchanged | either |
| count | + 1 or - 1 is left out | either |
| bound | a log is cut one record later or earlier | either |
| action | a step is never taken | liveness, refinement, or the coverage of steps |

Limits on the number of faults (`Spend`), names of steps, `UNCHANGED` and the text of switches are no rules of the protocol: they
are not mutated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from spec.models import SPEC
from spec.tla_text import CLOSING, OPENING, Definition, Item, Span, Token, definitions_of

MUTATED: dict[str, tuple[str, ...]] = {
    "replication": ("Log", "Cluster", "Controller", "Replica", "Client", "Messages"),
    "quorum": ("Quorum", "LateQuorum"),
    "transactions": ("Transactions",),
    "groups": ("Groups",),
    "historical": ("ZooKeeper", "ZooKeeperController", "ZooKeeperBroker"),
}
"""The modules that define a protocol's behaviour. Modules of promises and histories are not mutated: they judge the mutants."""

NO_RULES = (
    frozenset({"Init", "Spec", "FairSpec", "Fairness", "Next", "Step", "On", "Spend", "Symmetry", "View"})
    | {"MessageSpec", "LateSpec", "InitMessages", "InitHistory", "HistoryAfter", "MessageNext", "LateStep"}
    | {"MessageStep", "Shows", "KeepsPromises", "KnownBugs", "FirstAssignments", "LateView", "MayLose"}
)
"""Definitions that are not mutated: initial states, whole specifications, names for readers, and the environment."""

MOVED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "=<": "<"}
CUT = {"Prefix"}
"""Operators whose second argument is the end of a log."""


@dataclass(frozen=True)
class Mutant:
    """One change: the place in the module's text, and the text that replaces it."""

    folder: str
    module: str
    definition: str
    kind: str
    number: int
    span: Span
    was: str
    becomes: str
    step: str = ""
    """The step that the definition records, if any."""

    @property
    def name(self) -> str:
        return f"{self.module}.{self.definition}.{self.kind}{self.number}"

    @property
    def change(self) -> str:
        """The former and the new text, in one line."""
        was, becomes = (" ".join(text.split()) for text in (self.was, self.becomes))
        return f"{was} -> {becomes}"

    def text(self) -> str:
        """The mutated module."""
        source = (SPEC / self.folder / f"{self.module}.tla").read_text()
        return source[: self.span.begin] + self.becomes + source[self.span.end :]


def definitions_in(folder: str) -> dict[str, Definition]:
    """The definitions of the mutated modules of a folder."""
    found: dict[str, Definition] = {}
    for module in MUTATED[folder]:
        found |= definitions_of(module, (SPEC / folder / f"{module}.tla").read_text())
    return found


def mutants_of(folder: str, behaviour: set[str]) -> list[Mutant]:
    """The mutants of the definitions of a folder that are in `behaviour`, in the order of the text."""
    everywhere = {
        name: definition
        for path in (SPEC / folder).glob("*.tla")
        for name, definition in definitions_of(path.stem, path.read_text()).items()
    }
    primed = primed_names(everywhere)
    return [
        mutant
        for definition in definitions_in(folder).values()
        if definition.name in behaviour - NO_RULES
        for mutant in _numbered(folder, definition, primed)
    ]


def primed_names(definitions: dict[str, Definition]) -> set[str]:
    """The definitions that describe the next state, directly or through others."""
    found = {name for name, definition in definitions.items() if definition.is_primed} | {"Step", "Spend"}
    while more := {name for name, it in definitions.items() if it.names & found} - found:
        found |= more
    return found


def _numbered(folder: str, definition: Definition, primed: set[str]) -> Iterator[Mutant]:
    seen: set[tuple[Span, str]] = set()
    numbers: dict[str, int] = {}
    for kind, span, becomes in _changes(definition, primed):
        was = span.of(definition.text)
        if (span, becomes) in seen or was == becomes or _concerns_switches(definition, span, kind):
            continue
        seen.add((span, becomes))
        numbers[kind] = numbers.get(kind, 0) + 1
        yield Mutant(
            folder, definition.module, definition.name, kind, numbers[kind], span, was, becomes, definition.action
        )


def _concerns_switches(definition: Definition, span: Span, kind: str) -> bool:
    """Whether the place is a switch, or is evaluated only with a switch on."""
    if kind == "action":
        return False
    text = definition.text
    if not re.sub(r'~?On\("\w+"\)|/\\|\\/|[()\s]', "", span.of(text)):
        return True
    for found in re.finditer(r'IF (?:[^\n]*/\\ )?On\("\w+"\)(?: /\\ [^\n]*?)?\s+THEN\b(.*?)\bELSE\b', text, re.S):
        if found.start(1) <= span.begin and span.end <= found.end(1):
            return True
    around = [item for item in definition.items() if item.span.begin <= span.begin and span.end <= item.span.end]
    return any(item.sign == "\\/" and re.match(r"(?:/\\ )?On\(", item.span.of(text)) for item in around)


Change = tuple[str, Span, str]


def _changes(definition: Definition, primed: set[str]) -> Iterator[Change]:
    yield from _operands(definition, primed)
    yield from _resets(definition)
    yield from _signs(definition)
    yield from _cuts(definition)
    if definition.action:
        yield "action", definition.body, f" FALSE /\\ ({definition.body.of(definition.text)})"


def _operands(definition: Definition, primed: set[str]) -> Iterator[Change]:
    items = definition.items()
    for item in items:
        text = item.span.of(definition.text)
        if _is_junction(item, items, definition.text):
            continue
        if "'" in text or "UNCHANGED" in text or primed & set(re.findall(r"\w+", text)):
            continue
        yield ("guard", item.span, "TRUE") if item.sign == "/\\" else ("alternative", item.span, "FALSE")


def _is_junction(item: Item, items: list[Item], text: str) -> bool:
    """Whether an item is only a conjunction or disjunction of other items, which are mutated one at a time instead."""
    within = [
        other.span
        for other in items
        if other.span != item.span and item.span.begin <= other.span.begin and other.span.end <= item.span.end
    ]
    left = [character for at, character in enumerate(item.span.of(text), item.span.begin) if not _covers(within, at)]
    return bool(within) and not "".join(left).strip(" /\\\n()")


def _covers(spans: list[Span], at: int) -> bool:
    return any(span.begin <= at < span.end for span in spans)


def _resets(definition: Definition) -> Iterator[Change]:
    tokens = definition.tokens
    whole: set[int] = set()
    for position in range(len(tokens) - 2):
        name, prime, equals = tokens[position : position + 3]
        if (prime.text, equals.text) != ("'", "=") or not name.text.isidentifier() or name.text == "step":
            continue
        span = _right_side(definition, position + 3)
        if span.of(definition.text).strip() != name.text:
            yield "reset", span, name.text
        if tokens[position + 3].text == "[":
            whole.add(position + 3)
    for position, token in enumerate(tokens):
        if token.text == "EXCEPT":
            yield from _entries(definition, position, whole)


def _right_side(definition: Definition, position: int) -> Span:
    """The right side of `variable' =`: up to the end of the innermost item that contains it."""
    begin = definition.tokens[position].at
    ends = [item.span.end for item in definition.items() if item.span.begin <= begin < item.span.end]
    if definition.tokens[position + 1].text in ("THEN", "ELSE"):
        ends.append(definition.tokens[position].end)
    return Span(begin, min([definition.body.end, *ends]))


def _entries(definition: Definition, position: int, whole: set[int]) -> Iterator[Change]:
    tokens, text = definition.tokens, definition.text
    commas, depth, end = [position], 0, position + 1
    while depth or tokens[end].text != "]":
        depth += (tokens[end].text in OPENING) - (tokens[end].text in CLOSING)
        if not depth and tokens[end].text == "," and tokens[end + 1].text == "!":
            commas.append(end)
        end += 1
    first = max(at for at in range(position) if tokens[at].text == "[" and _depth(tokens[at:position]) == 1)
    if len(commas) == 1:
        if first not in whole:
            kept = text[tokens[first + 1].at : tokens[position - 1].end]
            yield "reset", Span(tokens[first].at, tokens[end].end), kept
        return
    for number, comma in enumerate(commas):
        after = commas[number + 1] if number + 1 < len(commas) else end
        if number:
            yield "reset", Span(tokens[comma].at, tokens[after - 1].end), ""
        else:
            yield "reset", Span(tokens[comma + 1].at, tokens[after].end), ""


def _depth(tokens: Iterable[Token]) -> int:
    return sum((token.text in OPENING) - (token.text in CLOSING) for token in tokens)


def _signs(definition: Definition) -> Iterator[Change]:
    tokens = definition.tokens
    for position, token in enumerate(tokens):
        if token.text in MOVED:
            yield "comparison", Span(token.at, token.end), MOVED[token.text]
        following = tokens[position + 1] if position + 1 < len(tokens) else token
        if token.text in ("+", "-") and following.text == "1" and position:
            yield "count", Span(token.at, following.end), ""


def _cuts(definition: Definition) -> Iterator[Change]:
    tokens = definition.tokens
    for position, token in enumerate(tokens[:-1]):
        if token.text not in CUT or tokens[position + 1].text != "(":
            continue
        end = position + 2
        comma, depth = 0, 0
        while depth or tokens[end].text != ")":
            depth += (tokens[end].text in OPENING) - (tokens[end].text in CLOSING)
            comma = end if not depth and tokens[end].text == "," else comma
            end += 1
        records = definition.text[tokens[position + 2].at : tokens[comma - 1].end]
        span = Span(tokens[comma + 1].at, tokens[end - 1].end)
        was = span.of(definition.text)
        yield "bound", span, f"IF {was} < EndOffset({records}) THEN ({was}) + 1 ELSE {was}"
        yield "bound", span, f"({was}) - 1"
