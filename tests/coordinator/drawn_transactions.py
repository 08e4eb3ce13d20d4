"""Random steps of producers, brokers, administrators and time, for `paired_transactions`.

`python -m tests.coordinator.drawn_transactions 0 1000` makes the runs of these seeds, and prints the last steps of those that
differ; a third number is the steps of a run.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable

from reference.coordinator.transaction_records import KeyValue, transaction_record
from reference.coordinator.transaction_state import (
    COMPLETED,
    EXHAUSTED_EPOCH,
    LAST_EPOCH,
    PREPARED,
    State,
    TopicPartition,
    Transaction,
)
from reference.protocol.errors import ErrorCode
from reference.protocol.primitives import NO_TIMESTAMP, ProducerEpoch, ProducerId
from tests.coordinator.our_transactions import EXPIRATION_MS, LONGEST_MS, OFFSETS
from tests.coordinator.paired_groups import Difference, Kafka
from tests.coordinator.paired_transactions import IDS, SOURCE, PairedTransactions, Step, as_text

STEPS = 80
"""The number of steps of a run."""
LEADERS = {("t", 0): 1, ("t", 1): 2, ("u", 0): 3, OFFSETS: 1}
RETRIED = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
GIVEN_UP = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
REMOVED = (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION)


class DrawnTransactions:
    """Draws steps; most of them are those of well-behaved clients."""

    def __init__(self, kafka: Kafka, seed: int) -> None:
        chance = self.chance = random.Random(seed)
        self.pair = PairedTransactions(kafka, allows_two_phase_commit=chance.random() < 0.5)
        self.pair.version = chance.choice([0, 1, 2, 2, 2])
        self.pair.leaders = dict(LEADERS)
        self.steps: list[str] = []
        self._ids = IDS[: chance.choice([1, 2, 3])]
        self._spoken = {id: chance.choice([0, 2]) if self.pair.version else 0 for id in IDS}
        self._seen: dict[str, list[tuple[int, int]]] = {id: [(5, 0)] for id in IDS}
        self._last: Step | None = None
        self._weights = {
            self._begin: 6,
            self._add: chance.choice([10, 20]),
            self._verify: 3,
            self._end: chance.choice([5, 15]),
            self._repeat: chance.choice([2, 15]),
            self._answer: chance.choice([10, 20]),
            self._let_time_pass: 3,
            self._change_leaders: chance.choice([0, 2]),
            self._load: chance.choice([0, 1, 4]),
            self._change_versions: chance.choice([0, 0, 1]),
        }

    def run(self, count: int) -> None:
        if self.chance.random() < 0.5:
            log = [transaction_record(self._worn_out(), 1)]
            self._make({"op": "load", "log": as_text(log)}, log)
        for _ in range(count):
            self.pair.now += self.chance.choice([51, 53, 60, 97, 501, 1_009])
            (act,) = self.chance.choices([*self._weights], [*self._weights.values()])
            act()

    def _worn_out(self) -> Transaction:
        """A transactional id whose producer has few epochs left."""
        chance, version = self.chance, self.chance.choice([0, 2]) if self.pair.version else 0
        state = chance.choice([State.EMPTY, State.ONGOING, State.COMPLETE_ABORT, State.COMPLETE_COMMIT])
        return Transaction(
            "a",
            ProducerId(chance.choice([7, 8])),
            ProducerEpoch(
                chance.choice([EXHAUSTED_EPOCH - 2, EXHAUSTED_EPOCH - 1, EXHAUSTED_EPOCH])
                if state is State.ONGOING
                else chance.choice([EXHAUSTED_EPOCH - 1, EXHAUSTED_EPOCH, LAST_EPOCH])
            ),
            5_000,
            state,
            frozenset({TopicPartition("t", 0)}) if state is State.ONGOING else frozenset(),
            self.pair.now if state is not State.EMPTY else NO_TIMESTAMP,
            self.pair.now,
            ProducerId(chance.choice([-1, 7, 8])),
            client_version=version,
        )

    def _make(self, step: Step, log: list[KeyValue] | None = None) -> None:
        chance, ours = self.chance, self.pair.ours
        step = {"filters": self._filters()} | step
        if step["op"] != "load":
            step["has_ids"] = chance.random() > 0.05
            if chance.random() < 0.05:
                step["refusal"] = chance.choice(["NOT_ENOUGH_REPLICAS", "NOT_LEADER_OR_FOLLOWER"])
            elif chance.random() < 0.05:
                step["is_held"] = not self._has_refused_end()
        before = len(ours.log.records), len(self.pair.kafkas_log)
        self.steps.append(
            f"{self.pair.now} v{self.pair.version} { ({**step, 'log': '...'} if log is not None else step) }"
        )
        self.pair.make(step, log or [])
        for id, each in self._known().items():
            if (each.producer_id, each.epoch) not in self._seen[id]:
                self._seen[id].append((each.producer_id, min(each.epoch, EXHAUSTED_EPOCH)))
        if step.get("is_held"):
            self.pair.now += 100
            self._load(before if chance.random() < 0.5 else None)
        elif step.get("refusal") == "NOT_LEADER_OR_FOLLOWER" or (
            step.get("refusal") and step["op"] in ("init", "time")
        ):
            self.pair.now += 100
            self._load()

    def _has_refused_end(self) -> bool:
        """Whether the last record of a transaction was refused: Kafka would then refuse the step with which it is held."""
        return any(each.state in PREPARED and not each.partitions for each in self._known().values())

    def _known(self) -> dict[str, Transaction]:
        (coordinator,) = [each for _, each in self.pair.ours.transactions.coordination.loaded()]
        return coordinator.transactions

    def _filters(self) -> list[object]:
        chance = self.chance
        return [
            chance.choice([[], [], [1000, 1001], [7]]),
            chance.choice([[], [], ["Ongoing", "Empty"], ["PrepareCommit", "Nothing"], ["PrepareEpochFence", "Dead"]]),
            chance.choice([-1, -1, 0, 500, 5_000]),
            chance.choice(["", "", "a|b", "[", "x"]),
        ]

    # ---- producers

    def _ask(self, step: Step) -> None:
        """Make a request, unless it is one of those to which Kafka's answers differ (`paired_transactions`)."""
        known = self._known().get(step["id"])
        if known is not None:
            op, epoch = step["op"], step["epoch"]
            is_late = op == "end" and known.state in COMPLETED and epoch == known.epoch - 1
            if (op == "init" and known.is_exhausted and epoch not in (-1, known.epoch)) or (
                is_late and known.client_version < 2
            ):
                return
        self._last = step
        self._make(step)

    def _repeat(self) -> None:
        """Repeat a request, as after a lost response."""
        if self._last is not None and all(place in self.pair.leaders for place in self._last.get("partitions", ())):
            self._ask(self._last)

    def _identity(self, id: str) -> tuple[int, int]:
        chance = self.chance
        known = self._known().get(id)
        if known is None or chance.random() < 0.1:
            return chance.choice(self._seen[id][-4:])
        shift = chance.choices([0, -1, 1], [85, 10, 5])[0]
        return known.producer_id, min(max(known.epoch + shift, 0), EXHAUSTED_EPOCH)  # no client has the last epoch

    def _begin(self) -> None:
        chance, id = self.chance, self.chance.choice(self._ids)
        producer, epoch = self._identity(id) if chance.random() < 0.5 else (-1, -1)
        timeout_ms = chance.choice([1_000, 5_000, LONGEST_MS, LONGEST_MS, LONGEST_MS, LONGEST_MS + 1, 0])
        flags = {"two_phase": chance.random() < 0.1, "keep": chance.random() < 0.05}
        self._ask({"op": "init", "id": id, "producer": producer, "epoch": epoch, "timeout": timeout_ms} | flags)

    def _asked(self, op: str) -> Step:
        id = self.chance.choice(self._ids)
        if self.pair.version and self.chance.random() < 0.03:
            self._spoken[id] = 2 - self._spoken[id]
        producer, epoch = self._identity(id)
        return {"op": op, "id": id, "producer": producer, "epoch": epoch, "spoken": self._spoken[id]}

    def _places(self) -> list[tuple[str, int]]:
        places = sorted(place for place in self.pair.leaders if place != OFFSETS)
        return self.chance.sample(places, self.chance.randint(0, len(places)))

    def _add(self) -> None:
        step = self._asked("add")
        if self.chance.random() < 0.2:
            self._ask(step | {"partitions": [OFFSETS], "spoken": 0})
        elif places := self._places():
            self._ask(step | {"partitions": places})

    def _verify(self) -> None:
        if places := self._places():
            self._ask(self._asked("verify") | {"partitions": places, "spoken": 2})

    def _end(self) -> None:
        self._ask(self._asked("end") | {"commits": self.chance.random() < 0.6})

    # ---- brokers, administrators, time

    def _answer(self) -> None:
        chance = self.chance
        errors = {f"{topic}-{index}": chance.choice(RETRIED) for topic, index in LEADERS if chance.random() < 0.2}
        if chance.random() < 0.03:
            errors = {"t-0": chance.choice(GIVEN_UP + REMOVED)}
        self._make(
            {"op": "answer", "broker": chance.choice([1, 2, 3]), "errors": errors, "is_lost": chance.random() < 0.1}
        )

    def _let_time_pass(self) -> None:
        passed_ms = self.chance.choice([0, 1_000, 6_000, 20_000, EXPIRATION_MS, EXPIRATION_MS // 2, 1 << 31])
        known = self._known().values()
        empty = [each.updated_at for each in known if each.state is State.EMPTY]
        if empty and not any(each.state in COMPLETED for each in known) and self.chance.random() < 0.5:
            # The last of those that have written nothing expires just then, or a moment before or after it.
            passed_ms = max(0, max(empty) + EXPIRATION_MS + self.chance.choice([-1, 0, 0, 1]) - self.pair.now)
        if passed_ms >= EXPIRATION_MS // 2:
            if any(each.state in PREPARED for each in self._known().values()):
                return
            for broker in (1, 2, 3):  # what was asked earlier has no answer by then
                self._make({"op": "answer", "broker": broker, "errors": {}, "is_lost": True})
        self.pair.now += passed_ms
        self._make({"op": "time"})

    def _change_leaders(self) -> None:
        place = self.chance.choice([each for each in LEADERS if each != OFFSETS])
        self.pair.leaders.pop(place, None)
        leader = self.chance.choice([1, 2, 3, None])
        if leader is not None:
            self.pair.leaders[place] = leader
        self._make({"op": "leaders"})

    def _change_versions(self) -> None:
        if self.pair.version:  # Kafka cannot write to a log of version 0 what a client of version 2 has done
            self.pair.version = self.chance.choice([1, 2])
            self._make({"op": "version"})

    def _load(self, kept: tuple[int, int] | None = None) -> None:
        """Let another coordinator take over with the log."""
        ours, kafkas = self.pair.ours.log.records, self.pair.kafkas_log
        if kept is not None:
            ours, kafkas = ours[: kept[0]], kafkas[: kept[1]]
        if self.chance.random() < 0.5:
            ours, kafkas = kafkas, ours
        self._make({"op": "load", "log": as_text(kafkas)}, ours)


def differences(kafka: Kafka, seeds: Iterable[int], steps: int) -> Iterable[str]:
    """The last steps and the difference of each run in which the two coordinators differ."""
    for seed in seeds:
        drawn = DrawnTransactions(kafka, seed)
        try:
            drawn.run(steps)
        except Difference as difference:
            yield "\n".join([f"seed {seed}, {len(drawn.steps)} steps", *drawn.steps[-6:], str(difference)])


if __name__ == "__main__":
    first, last, *steps = map(int, sys.argv[1:])
    for difference in differences(Kafka(SOURCE), range(first, last), *(steps or [STEPS])):
        print(difference)
