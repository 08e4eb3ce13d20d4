"""A partition that is recognised as plain has no findings, and emits the same dependencies: judging many together hides none."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from linearizability.history.contract import Contract
from linearizability.history.facts import COLUMNS, SCHEMA, Flag, Kind, Outcome
from linearizability.history.notation import history
from linearizability.pipeline import local
from linearizability.pipeline.local import batches, emissions, judge_partition, judge_run, partitions
from linearizability.pipeline.plain import SILENT, Screen, applies
from linearizability.rules import PARTITION_RULES, RULES, RUN_RULES
from linearizability.rules.rule import Context
from tests.pipeline.test_parts import random_context, random_facts

Row = dict[str, int]
FACTS_OF_DAMAGE = {
    "kind": range(14),
    "outcome": range(3),
    "flags": [int(flag) for flag in Flag],
    "position": range(3),
}
UNKNOWN_ROW = dict.fromkeys(COLUMNS, -1)


def healthy(rng: Random) -> list[Row]:
    """A partition in which nothing went wrong: producers, polls from one process to the next, log ends, a final read."""
    rows: list[Row] = []
    now, offset, numbers, epoch = rng.randrange(100), 0, [0] * 6, rng.choice([-1, 3])
    named = rng.choice([-1, 40])

    def add(kind: Kind, process: int, position: int, times: tuple[int, int], **given: int) -> None:
        operation = process << 32 | numbers[process]
        known = {"outcome": Outcome.OK, "flags": 0, "session": 0, "invoked": times[0], "completed": times[1]}
        rows.append(
            UNKNOWN_ROW
            | known
            | {"kind": kind, "process": process, "operation": operation, "position": position}
            | given
        )

    for _ in range(rng.randint(1, 5)):
        process, times = rng.randrange(3), (now, now + rng.randrange(1, 9))
        for position in range(rng.randint(1, 3)):
            flags = Flag.ACKNOWLEDGED | Flag.ACKS_ALL | Flag.ORDERED | Flag.IDEMPOTENT
            who = {"group": 90 + process, "epoch": 1} if named >= 0 else {}
            add(Kind.APPEND, process, position, times, flags=int(flags), offset=offset, value=100 + offset, **who)
            offset += 1 if position else rng.choice([1, 1, 2]) if rng.random() < 0.2 else 1
        offset += rng.choice([0, 0, 1])
        numbers[process] += 1
        now = times[1] + rng.choice([1, 1, 1, 2_000_000_000])
    sent = [(row["offset"], row["value"]) for row in rows]
    falls = rng.randrange(len(sent))
    for process in (3, 4):
        for place, (at, value) in enumerate(sent):
            if place == 0 or rng.random() < 0.4:
                numbers[process] += 1
                now += rng.randrange(1, 4)
            seen = {"offset": at, "value": value, "session": 0 if process == 3 else 1, "group": named}
            seen["epoch"] = -1 if epoch < 0 else epoch + (place >= falls)
            position = sum(row["operation"] == process << 32 | numbers[process] for row in rows)
            add(Kind.OBSERVATION, process, position, (now, now + 2), **seen)
    numbers[5] += 1
    add(Kind.END_OFFSETS, 5, 0, (now + 3, now + 4), offset=offset, extra=0)
    if rng.random() < 0.5:
        numbers[5] += 1
        began = now + 5
        for position, (at, value) in enumerate(sent):
            add(Kind.OBSERVATION, 5, position, (began + 1, began + 2), offset=at, value=value, session=9)
        numbers[5] += 1
        add(Kind.DRAIN, 5, 0, (began, began + 9), offset=offset, value=0, extra=offset)
    return rows


def damaged(rng: Random) -> list[Row]:
    """A healthy partition in which one fact is removed, doubled or changed."""
    rows = healthy(rng)
    row = rng.choice(rows)
    if rng.random() < 0.1:
        rows.remove(row)
    elif rng.random() < 0.1:
        numbers = {"operation": row["operation"] + 1, "position": row["position"] + 1}
        rows.append(row | rng.choice([{}, numbers]))
    else:
        name = rng.choice([name for name in COLUMNS if name not in ("node",)])
        others = [*(each[name] for each in rows), row[name] + 1, row[name] - 1, -1, *FACTS_OF_DAMAGE.get(name, ())]
        value = rng.choice(others)
        row[name] = (
            row[name] ^ value if name == "flags" and value > 0 else abs(value) if name in ("kind", "outcome") else value
        )
        row["outcome"] = min(row["outcome"], 2)
    return rows


def table_of(parts: list[list[Row]]) -> pa.Table:
    """Each part as a partition, rows of several mixed as they came."""
    rows = [(number, row) for number, part in enumerate(parts) for row in part]
    rows.sort(key=lambda each: (each[1]["operation"] & 0xFFFFFFFF, each[0]))
    columns = [pa.array(np.array([row[name] for _, row in rows], kind)) for name, kind in COLUMNS.items()]
    names = [pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(rows), np.int32)), pa.array([each])) for each in "rt"]
    return pa.Table.from_arrays([*names, pa.array([number for number, _ in rows], pa.int32()), *columns], schema=SCHEMA)


def rows_of(columns: dict[str, np.ndarray]) -> list[Row]:
    return [{name: int(column[row]) for name, column in columns.items()} for row in range(len(columns["kind"]))]


def contexts(rng: Random) -> Iterator[Context]:
    yield Context()
    yield replace(random_context(rng), heals_at=30, ends_at=90)
    yield Context(Contract(strict_recency=True))


def screens(facts: pa.Table, context: Context):  # type: ignore[no-untyped-def]
    for batch in batches(facts, "r"):
        yield batch, Screen(batch.part, batch.columns, context)


def assert_nothing_is_hidden(parts: list[list[Row]], context: Context) -> tuple[int, set[str]]:
    """How many partitions were plain, and what was found in the others."""
    facts = table_of(parts)
    plain, found = 0, set[str]()
    for batch, screen in screens(facts, context):
        emitted: list[np.ndarray] = []
        for number in range(len(batch.names)):
            partition = batch.partition(number)
            findings = {item.rule for item in judge_partition(partition, context, PARTITION_RULES)}
            if not screen.plain[number]:
                found |= findings
                continue
            plain += 1
            asked = {rule.id for rule in PARTITION_RULES if screen.asks(rule)[number]}
            assert findings <= asked, parts[batch.names[number][1]]
            of_name = dict(emissions(partition, context, RUN_RULES))
            assert set(of_name) <= {"emit_dependencies"}
            emitted += of_name.values()
        expected = np.concatenate([np.empty((0, 4), np.int64), *emitted])
        ours = screen.dependencies()
        np.testing.assert_array_equal(ours[np.lexsort(ours.T)], expected[np.lexsort(expected.T)])
    return plain, found


def compare(count: int, seed: int) -> None:
    rng = Random(seed)
    found: set[str] = set()
    for context in contexts(rng):
        intact = [healthy(rng) for _ in range(count)]
        plain, beside = assert_nothing_is_hidden(intact, context)
        assert beside <= {"availability-gap"}
        assert plain == (0 if context.contract.strict_recency else count)
        hurt = [damaged(rng) for _ in range(3 * count)]
        plain, beside = assert_nothing_is_hidden(hurt, context)
        assert context.contract.strict_recency or 0 < plain < len(hurt)
        found |= beside
        assert_nothing_is_hidden([rows_of(random_facts(rng)) for _ in range(count)], context)
    assert len(found) >= 20, found


@pytest.mark.sampled(days=3)
def test_nothing_is_hidden_by_looking_at_many() -> None:
    compare(60, 1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 8))
def test_nothing_is_hidden_by_looking_at_many_more(seed: int) -> None:
    compare(3_000, seed)


@pytest.mark.sampled(days=5)
@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_an_anomaly_among_healthy_partitions_is_found(rule, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    """The example of each rule, among twenty healthy partitions, is judged as it is alone."""
    rng = Random(3)
    example = history(rule.example, {"strict_recency": rule.optional}, "r")
    beside = table_of([of_others(healthy(rng), 100 + 10 * number) for number in range(20)])
    facts = pa.concat_tables([example.facts, beside.set_column(1, SCHEMA.field("topic"), named("z", beside.num_rows))])
    context = local.context_of(example.contract, example.marks, example.tally.ends_at)
    together = judge_run(facts, "r", context, RULES.values())
    assert rule.id in {item.rule for item in together}
    monkeypatch.setattr(local, "TOGETHER", 1_000_000)
    assert judge_run(facts, "r", context, RULES.values()) == together


def of_others(rows: list[Row], first: int) -> list[Row]:
    """The same by other processes, so that no operation is in several partitions."""
    moved = {"process": first, "operation": first << 32}
    return [row | {name: row[name] + by for name, by in moved.items()} for row in rows]


def named(topic: str, rows: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([topic]))


def test_partitions_come_as_they_are_whole_or_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small ones in batches, large ones alone, all with their rows, in the order of topic and number."""
    rng = Random(5)
    parts = [healthy(rng) for _ in range(30)]
    facts = table_of(parts)
    monkeypatch.setattr(local, "FACTS_A_BATCH", 60)
    monkeypatch.setattr(local, "SMALL", 25)
    sizes = [[len(parts[number]) for _, number in batch.names] for batch in batches(facts, "r")]
    assert [size for batch in sizes for size in batch] == [len(part) for part in parts]
    assert any(len(batch) > 1 for batch in sizes) and any(batch[0] > 25 for batch in sizes)
    assert all(len(batch) == 1 or (sum(batch) <= 60 and max(batch) <= 25) for batch in sizes)
    for number, partition in enumerate(partitions(facts, "r")):
        assert partition.partition == number
        values = [row["value"] for row in parts[number] if row["kind"] == Kind.APPEND]
        assert sorted(partition.appends.value.tolist()) == sorted(values)


def test_what_is_not_known_is_asked() -> None:
    """A rule that was added later is neither silent nor assumed to emit nothing."""
    assert {"availability-gap"} == {rule.id for rule in PARTITION_RULES} ^ SILENT
    unknown = replace(PARTITION_RULES[0], id="new")
    (item,) = screens(table_of([healthy(Random(1))] * 2), Context())
    assert item[1].asks(unknown).all() and not item[1].asks(PARTITION_RULES[0]).any()
    assert applies(RUN_RULES)
    assert not applies([replace(RUN_RULES[0], emit=lambda partition, context: np.empty((0, 4), np.int64))])
