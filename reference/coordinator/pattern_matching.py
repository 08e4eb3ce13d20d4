"""Matches a pattern against names in linear time: it follows all paths at once, without backtracking (CGH-16, TXN-42).

Groups subscribe to topics by a pattern, and ListTransactions filters transactional ids by one.
Source: KIP-848, KIP-1152 (patterns are of RE2's syntax and must match a name as a whole); Thompson's construction.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from reference.coordinator.pattern_syntax import Allows, Assertion, Chain, Characters, Choice, Node, PatternError, parse
from reference.protocol.errors import ErrorCode, KafkaError

MAX_STATES = 10_000
"""The largest size of a pattern: about one state per character, with repetitions expanded. For its reasons see `MAX_LENGTH`."""

MAX_CACHED_STEPS = 20_000

_Kind = str | None
"""The kind of a character next to a position: None at either end of the text, "w" in a word, a newline, "-" for another."""


@dataclass(frozen=True, slots=True)
class _State:
    """One state of a pattern: `allows` accepts the characters that it consumes; None where it consumes none."""

    next: list[int]
    allows: Allows | None = None
    assertion: str | None = None


@dataclass(slots=True)
class Regex:
    """A compiled pattern."""

    start: int
    states: list[_State]
    _steps: dict[tuple[frozenset[int], _Kind, str], frozenset[int]] = field(
        default_factory=dict[tuple[frozenset[int], _Kind, str], frozenset[int]]
    )

    def matches(self, name: str) -> bool:
        """Whether the pattern matches the whole name."""
        reached, kind = frozenset({self.start}), None
        for sign in name:
            reached, kind = self._after(reached, kind, sign), _kind_of(sign)
            if not reached:
                return False
        return _END in self._closure(reached, kind, None)

    def _after(self, reached: frozenset[int], kind: _Kind, sign: str) -> frozenset[int]:
        step = (reached, kind, sign)
        if step not in self._steps:
            if len(self._steps) >= MAX_CACHED_STEPS:
                self._steps.clear()
            by_class: dict[Allows, list[int]] = {}
            for each in self._closure(reached, kind, _kind_of(sign)):
                state = self.states[each]
                if state.allows is not None:
                    by_class.setdefault(state.allows, []).extend(state.next)
            self._steps[step] = frozenset(
                after for allows, places in by_class.items() if allows(sign) for after in places
            )
        return self._steps[step]

    def _closure(self, reached: frozenset[int], before: _Kind, after: _Kind) -> set[int]:
        """All states that are reachable from these without a character, between two characters of these kinds."""
        found: set[int] = set()
        pending = [*reached]
        while pending:
            each = pending.pop()
            state = self.states[each]
            if each in found or not _holds(state.assertion, before, after):
                continue
            found.add(each)
            if state.allows is None:
                pending += state.next
        return found


_END = 0
"""The state of a complete match."""


def _kind_of(sign: str) -> str:
    if sign == "\n":
        return sign
    return "w" if sign.isascii() and (sign.isalnum() or sign == "_") else "-"


def _holds(assertion: str | None, before: _Kind, after: _Kind) -> bool:
    if assertion is None:
        return True
    if assertion in ("start", "end"):
        return (before if assertion == "start" else after) is None
    if assertion in ("start of line", "end of line"):
        return (before if assertion == "start of line" else after) in (None, "\n")
    return ((before == "w") != (after == "w")) == (assertion == "boundary")


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> Regex:
    """Errors: KafkaError INVALID_REGULAR_EXPRESSION."""
    try:
        states = [_State([])]
        return Regex(_build(parse(pattern), _END, states), states)
    except PatternError as error:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {error}.",
        ) from error


def _build(node: Node, after: int, states: list[_State]) -> int:
    """Add the states of a part that is followed by state `after`; return its first state."""
    if isinstance(node, Characters):
        return _add(states, _State([after], allows=node.allows))
    if isinstance(node, Assertion):
        return _add(states, _State([after], assertion=node.kind))
    if isinstance(node, Chain):
        for part in reversed(node.parts):
            after = _build(part, after, states)
        return after
    if isinstance(node, Choice):
        return _add(states, _State([_build(option, after, states) for option in node.options]))
    if node.most is None:
        loop = _add(states, _State([after]))
        states[loop].next.append(_build(node.part, loop, states))
        after = loop
    else:
        end = after
        for _ in range(node.most - node.least):
            after = _add(states, _State([_build(node.part, after, states), end]))
    for _ in range(node.least):
        after = _build(node.part, after, states)
    return after


def _add(states: list[_State], state: _State) -> int:
    if len(states) >= MAX_STATES:
        raise PatternError("expression too large")
    states.append(state)
    return len(states) - 1
