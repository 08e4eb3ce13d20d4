"""An excuse explains an anomaly only if it touches the whole of it: what the part of a history shows that lies between two
excuses is not explained, and what shows in no such part is.

Checked for the rules whose anomalies show in what is there: leaving facts out hides such an anomaly, and never makes one. (Of
those that rest on what is missing `test_excuses.py` has examples.) Histories are random and small, and full of contradictions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from linearizability.history.keys import NEVER
from linearizability.history.notation import history
from linearizability.pipeline.engine import judge_history

RULES = (
    "duplicate",
    "high-watermark-regression",
    "inconsistent-offsets",
    "leader-epoch-regression",
    "nonlinearizable",
    "nonmonotonic-send",
    "offset-reuse",
    "realtime-order",
)
ORDERS = {"nonlinearizable", "nonmonotonic-send", "realtime-order"}


@dataclass(frozen=True)
class Operation:
    process: int
    began: int
    ended: int
    """NEVER where it had no answer."""
    f: str
    records: tuple[tuple[int, int, int], ...] = ()
    """Value, offset and leader epoch."""
    acks: str = "all"

    def __str__(self) -> str:
        duration = f"{self.process} [{self.began} {'-' if self.ended == NEVER else self.ended}]"
        if self.f == "state":
            return f"{duration} state t-0 node=1 high_watermark={self.records[0][1]} epoch=1"
        if self.f == "send":
            return f"{duration} send " + " ".join(f"t-0:{value}@{at}" for value, at, _ in self.records) + self._acks
        return f"{duration} poll " + " ".join(f"t-0:{value}@{at}/{epoch}" for value, at, epoch in self.records)

    @property
    def _acks(self) -> str:
        return f" acks={self.acks}"


def random_operations(rng: Random) -> list[Operation]:
    """No client reads what was not sent by then; else the answers have nothing to do with each other."""
    operations: list[Operation] = []
    clocks, sent = Counter[int](), dict[int, int]()
    places = [rng.randrange(4) for _ in range(10)]
    strays = rng.random() < 0.3  # records that lie at several places

    def place(value: int) -> int:
        return rng.randrange(4) if strays else places[value]

    for _ in range(rng.randint(3, 9)):
        f = rng.choice(["send", "send", "poll", "poll", "state"])
        process = 9 if f == "state" else rng.randrange(3)
        began = clocks[process] + rng.randint(1, 30)
        ended = clocks[process] = began + rng.randint(1, 12)
        known = [value for value, time in sent.items() if time < ended]
        match f:
            case "send":
                sent[len(sent) + 1] = began
                records = ((len(sent), place(len(sent)), 0),)
                operations.append(Operation(process, began, ended, f, records, rng.choice(["1", "all"])))
            case "poll" if known:
                chosen = sorted(
                    (place(value), value) for value in rng.sample(known, rng.randint(1, min(3, len(known))))
                )
                read = tuple((value, offset, rng.randrange(3)) for offset, value in chosen)
                operations.append(Operation(process, began, ended, f, read))
            case "state":
                operations.append(Operation(process, began, ended, f, ((0, rng.randrange(4), 1),)))
            case _:
                pass
    return operations


def random_excuses(rng: Random) -> list[tuple[int, int]]:
    begins = [rng.randrange(80) for _ in range(rng.randint(1, 2))]
    return [(begin, rng.choice([NEVER, begin + rng.randrange(25), begin + rng.randrange(25)])) for begin in begins]


def between(operations: list[Operation], after: int, before: int) -> Iterator[Operation]:
    """The operations on records made after one time and seen before the other; a later response counts as not received."""
    sent = {value: each.began for each in operations if each.f == "send" for value, _, _ in each.records}
    for each in operations:
        records = each.records
        if each.f == "poll":
            records = tuple(record for record in records if sent[record[0]] > after)
        elif each.began <= after:
            continue
        if records and each.began < before and (each.ended < before or each.f == "send"):
            yield replace(each, records=records, ended=each.ended if each.ended < before else NEVER)


def violated(operations: list[Operation], excuses: list[tuple[int, int]]) -> set[str]:
    marks = [
        f"! [{begins} {begins}] excuse number={number} cause=power-loss keys=t-0 nodes=1,2"
        + (f"\n! [{ends} {ends}] excuse-over number={number}" if ends != NEVER else "")
        for number, (begins, ends) in enumerate(excuses)
    ]
    judgement = judge_history(history("\n".join([*marks, *map(str, operations)])))
    return {item.rule for item in judgement.findings if not item.permitted} & set(RULES)


def undefined(operations: list[Operation]) -> set[str]:
    """The rules without a definite result: those about the order of records if a record has several offsets, and
    `nonmonotonic-send` if a record was read before its send got a response."""
    places = {(value, at) for each in operations if each.f != "state" for value, at, _ in each.records}
    if len(places) > len({value for value, _ in places}):
        return ORDERS
    answered = {value: each.ended for each in operations if each.f == "send" for value, _, _ in each.records}
    read = [(each.ended, value) for each in operations if each.f == "poll" for value, _, _ in each.records]
    return {"nonmonotonic-send"} if any(ended < answered[value] for ended, value in read) else set()


def eras(excuses: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """What the excuses leave of time, by the definition: no excuse touches any of it."""
    times = sorted({-1, *(ends for _, ends in excuses)})
    found = [(after, min([begins for begins, ends in excuses if ends > after], default=NEVER)) for after in times]
    return [(after, before) for after, before in found if before > after + 1 and after != NEVER]


def test_what_excuses_explain_is_what_shows_in_no_part_between_them() -> None:
    met: Counter[str] = Counter()
    for seed in range(600):
        rng = Random(seed)
        operations, excuses = random_operations(rng), random_excuses(rng)
        expected: set[str] = set()
        for after, before in eras(excuses):
            expected |= violated(list(between(operations, after, before)), [])
        expected -= undefined(operations)
        found = violated(operations, excuses) - undefined(operations)
        assert found == expected, (seed, excuses, [*map(str, operations)])
        met.update(found)
        met.update(f"no {rule}" for rule in violated(operations, []) - found - undefined(operations))
    assert set(met) == {*RULES, *(f"no {rule}" for rule in RULES)}  # each was found, and each explained
