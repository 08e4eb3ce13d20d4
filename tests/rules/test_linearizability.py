"""The exact checks agree with a search that tries every order, on random small histories."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from linearizability.history.keys import NEVER
from linearizability.rules import wgl
from linearizability.rules.linearizability import BEFORE_ALL, first_conflict
from linearizability.rules.wgl import CAS, READ, WRITE, RegisterOperation, linearizable

Operation = tuple[str, int, int, int]
"""`append` of a position, `read` of a position, or `end` offset; then invocation and completion."""


def by_the_rule(operations: list[Operation], strict: bool) -> bool:
    place, invoked, completed = [], [], []
    for kind, position, began, ended in operations:
        stale = kind == "read" or (kind == "end" and not strict)
        place.append({"append": 4 * position, "read": 4 * position + 1}.get(kind, 4 * position - (2 if strict else 3)))
        invoked.append(BEFORE_ALL if stale else began)
        completed.append(ended)
    order = np.argsort(np.array(place), kind="stable")
    columns = [np.array(column, np.int64)[order] for column in (place, invoked, completed)]
    return first_conflict(columns[0], columns[1], columns[2]) is None


def random_log(rng: Random) -> list[Operation]:
    positions = rng.sample(range(5), rng.randint(1, 4))
    operations = []
    for position in positions:
        began = rng.randint(0, 12)
        ended = NEVER if rng.random() < 0.1 else began + rng.randint(0, 6)
        operations.append(("append", position, began, ended))
    for _ in range(rng.randint(0, 2)):
        began = rng.randint(0, 14)
        kind = rng.choice(["read", "end"])
        position = rng.choice(positions) + (kind == "end")
        operations.append((kind, position, began, began + rng.randint(0, 6)))
    return operations


def exhaustively(operations: list[Operation], strict: bool) -> bool:
    """Is there a choice of moments? Operations with an order and without: a stale read is placed before its completion.

    A stale read may be moved behind whatever came between, so all that binds it is that the appends which it needs, and
    those below them, had been invoked when it ended. That is checked by giving it the time of its completion.
    """
    moments = []
    for kind, position, began, ended in operations:
        stale = kind == "read" or (kind == "end" and not strict)
        moments.append((kind, position, BEFORE_ALL if stale else began, ended))
    return _orders(moments, strict)


def _orders(operations: list[Operation], strict: bool) -> bool:
    def go(done: frozenset[int], last: int) -> bool:
        if len(done) == len(operations):
            return True
        appended = {operations[j][1] for j in done if operations[j][0] == "append"}
        for i in set(range(len(operations))) - done:
            kind, position, began, _ = operations[i]
            if any(j not in done and operations[j][3] < began for j in range(len(operations)) if j != i):
                continue
            if kind == "append":
                allowed = position > last
            elif kind == "read":
                allowed = position in appended
            else:
                allowed = (position == 0 or position - 1 in appended) and (
                    not strict or all(p < position for p in appended)
                )
            if allowed and go(done | {i}, position if kind == "append" else last):
                return True
        return False

    return go(frozenset(), -1)


def compare_logs(seeds: range) -> list[int]:
    counts = [0, 0]
    for seed in seeds:
        rng = Random(seed)
        operations = random_log(rng)
        strict = rng.random() < 0.5
        expected = exhaustively(operations, strict)
        assert by_the_rule(operations, strict) == expected, (seed, strict, operations)
        counts[expected] += 1
    return counts


def test_partition_against_every_order() -> None:
    no, yes = compare_logs(range(4000))
    assert no > 400 and yes > 400


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_partition_against_every_order_a_hundred_thousand_times() -> None:
    compare_logs(range(100_000, 200_000))


# -- registers -----------------------------------------------------------------------------------------------------------


def register_order_exists(operations: list[RegisterOperation], initial: int) -> bool:
    def go(done: frozenset[int], value: int) -> bool:
        if all(i in done or op.completed is None for i, op in enumerate(operations)):
            return True
        for i, op in enumerate(operations):
            if i in done or (op.completed is None and op.function == READ):
                continue
            ends = (p.completed for j, p in enumerate(operations) if j != i and j not in done)
            if any(end is not None and end < op.invoked for end in ends):
                continue
            if (op.function == READ and op.value != value) or (op.function == CAS and op.expected != value):
                continue
            if go(done | {i}, value if op.function == READ else op.value):
                return True
        # One that may be lost changes nothing, whenever it is placed.
        return any(op.may_be_lost and i not in done and go(done | {i}, value) for i, op in enumerate(operations))

    return go(frozenset(), initial)


def random_register(rng: Random) -> list[RegisterOperation]:
    operations = []
    for _ in range(rng.randint(0, 6)):
        began = rng.randint(0, 10)
        ended = began + rng.randint(0, 6) if rng.random() < 0.8 else None
        function = rng.choice([READ, READ, WRITE, WRITE, CAS])
        may_be_lost = function == WRITE and rng.random() < 0.3
        value, expected = rng.randint(0, 2), rng.randint(0, 2)
        operations.append(RegisterOperation(function, value, expected, began, ended, may_be_lost=may_be_lost))
    return operations


def compare_registers(seeds: range) -> list[int]:
    counts = [0, 0]
    for seed in seeds:
        operations = random_register(Random(seed))
        expected = register_order_exists(operations, 0)
        assert linearizable(operations, 0) == expected, (seed, operations)
        counts[expected] += 1
    return counts


def test_register_against_every_order() -> None:
    no, yes = compare_registers(range(4000))
    assert no > 400 and yes > 400


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_register_against_every_order_a_hundred_thousand_times() -> None:
    compare_registers(range(100_000, 200_000))


def test_a_long_register_takes_time_by_its_length() -> None:
    """Twenty thousand operations, two at a time, some of them never answered."""
    operations = []
    for i in range(10_000):
        operations.append(RegisterOperation(WRITE, i, 0, 10 * i, None if i % 1000 == 500 else 10 * i + 8))
        operations.append(RegisterOperation(READ, i, 0, 10 * i + 2, 10 * i + 9))
    assert linearizable(operations, 0) is True
    stale = RegisterOperation(READ, 3, 0, 200_000, 200_001)
    assert linearizable([*operations, stale], 0) is False


def test_a_history_is_not_given_up_for_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wgl, "MAX_STEPS", 10)
    operations = [RegisterOperation(WRITE, i, 0, 10 * i, 10 * i + 5) for i in range(100)]
    assert linearizable(operations, 0) is True


def test_changes_that_need_not_have_happened_are_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wgl, "MAX_STEPS", 10)
    never_answered = [RegisterOperation(WRITE, 100 + i, 0, i, None) for i in range(200)]
    maybe_lost = [RegisterOperation(WRITE, 400 + i, 0, i, i + 50, may_be_lost=True) for i in range(200)]
    written = [RegisterOperation(WRITE, 1, 0, 500, 505), RegisterOperation(WRITE, 2, 0, 510, 515)]
    # The write of 400 was over before the others began.
    for value, answer in ((2, True), (100, True), (400, False), (1, False), (9, False)):
        read = RegisterOperation(READ, value, 0, 520, 525)
        assert linearizable([*never_answered, *maybe_lost, *written, read], 0) is answer, value
    swapped = RegisterOperation(CAS, 3, 100, 520, 525)
    assert linearizable([*never_answered, *written, swapped, RegisterOperation(READ, 3, 0, 530, 535)], 0) is True


def test_the_search_gives_up_rather_than_guess() -> None:
    concurrent = [RegisterOperation(WRITE, i, 0, 0, 100) for i in range(12)]
    assert linearizable([*concurrent, RegisterOperation(READ, 99, 0, 0, 100)], 0, max_steps=1000) is None
