"""Is a register's history linearizable? The search of Wing and Gong with Lowe's memory of visited configurations.

For registers: a group's committed offset, or a history of some other store that was imported. The search walks
the history's events; it lifts an operation whose invocation it meets (if the register allows it), and goes back when it
meets the completion of one that it has not lifted. Configurations (which operations are lifted, and the register's value)
that failed once are never tried again. Exponential in the worst case, so its steps are bounded; then the answer is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

READ, WRITE, CAS = 0, 1, 2
MAX_STEPS = 1_000_000
"""Steps after which the search gives up, beyond those that every history of its length needs: some seconds of Python."""


@dataclass(frozen=True, slots=True)
class RegisterOperation:
    """One operation on a register. `completed` is None if it is unknown whether it happened."""

    function: int
    value: int
    expected: int
    invoked: int
    completed: int | None
    known_value: bool = True
    """Whether a read's value is known."""
    may_be_lost: bool = False
    """Whether it may have changed nothing, although it completed."""


def that_matter(operations: Sequence[RegisterOperation]) -> list[int]:
    """Which operations decide whether a history is linearizable, by their places.

    Not the reads of unknown outcome; nor a change that need not have happened and whose value no read or CAS needs: what was read
    can be explained without it wherever it can be with it. Each of these would double what is to be searched.
    """
    needed = {op.value for op in operations if op.function == READ and op.known_value and op.completed is not None}
    needed |= {op.expected for op in operations if op.function == CAS}
    return [
        i
        for i, op in enumerate(operations)
        if (op.completed is not None and not op.may_be_lost) or (op.function != READ and op.value in needed)
    ]


def linearizable(operations: Sequence[RegisterOperation], initial: int, max_steps: int | None = None) -> bool | None:
    """Whether the operations can be ordered within their durations so that a register explains them; None: not decided."""
    chosen = [operations[i] for i in that_matter(operations)]
    events: list[tuple[int, int, int]] = []
    for number, op in enumerate(chosen):
        events.append((op.invoked, 0, number))
        if op.completed is not None:
            events.append((op.completed, 1, number))
    events.sort()  # at equal times invocations come first: such operations may overlap
    limit = MAX_STEPS + 2 * len(events) if max_steps is None else max_steps
    return _search(chosen, [(kind, number) for _, kind, number in events], initial, limit)


def _search(
    operations: Sequence[RegisterOperation], events: list[tuple[int, int]], initial: int, max_steps: int
) -> bool | None:
    count = len(events)
    following, preceding = [*range(1, count + 1), 0], [count, *range(count)]  # a ring with `count` as its anchor
    completion = {number: i for i, (kind, number) in enumerate(events) if kind == 1}
    due = [number for kind, number in events if kind == 1]  # in the order of their completions
    value, passed, ahead = initial, 0, frozenset[int]()
    failed: set[tuple[int, frozenset[int], int]] = set()
    path: list[tuple[int, bool, int, int, frozenset[int]]] = []
    # Event of the invocation, whether it was taken for lost; value, passed and ahead before.
    at, is_lost = following[count], False
    for _ in range(max_steps):
        if passed == len(due):
            return True
        if at != count and events[at][0] == 0:
            number = events[at][1]
            after = value if is_lost else _apply(operations[number], value)
            then = _advance(due, passed, ahead | {number})
            if after is not None and (*then, after) not in failed:
                failed.add((*then, after))
                path.append((at, is_lost, value, passed, ahead))
                value, (passed, ahead) = after, then
                _unlink(following, preceding, at)
                if number in completion:
                    _unlink(following, preceding, completion[number])
                at, is_lost = following[count], False
            elif operations[number].may_be_lost and not is_lost:
                is_lost = True
            else:
                at, is_lost = following[at], False
            continue
        if not path:
            return False
        at, is_lost, value, passed, ahead = path.pop()
        number = events[at][1]
        if number in completion:
            _relink(following, preceding, completion[number])
        _relink(following, preceding, at)
        if operations[number].may_be_lost and not is_lost:
            is_lost = True
        else:
            at, is_lost = following[at], False
    return None


def _advance(due: list[int], passed: int, lifted: frozenset[int]) -> tuple[int, frozenset[int]]:
    """The compact form of a configuration: how many operations in the order of their completions are lifted without a gap, and
    which are lifted ahead of that. As many as are concurrent, not as many as there are."""
    while passed < len(due) and due[passed] in lifted:
        lifted = lifted - {due[passed]}
        passed += 1
    return passed, lifted


def _apply(operation: RegisterOperation, value: int) -> int | None:
    """The register's value after the operation, or None where it cannot happen."""
    if operation.function == WRITE:
        return operation.value
    if operation.function == CAS:
        return operation.value if operation.expected == value else None
    return value if not operation.known_value or operation.value == value else None


def _unlink(following: list[int], preceding: list[int], at: int) -> None:
    following[preceding[at]], preceding[following[at]] = following[at], preceding[at]


def _relink(following: list[int], preceding: list[int], at: int) -> None:
    following[preceding[at]], preceding[following[at]] = at, at
