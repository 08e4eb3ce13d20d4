"""Random histories of a log that keeps its contract, and what its clients may see of it: no verdict on them is invalid.

Two partitions, each with one log: a record is *committed* once all in-sync replicas have it. Producers send with any acks, and a
send without an answer takes effect at any later time; a leader is deposed and goes on answering what it can; transactions end
before their markers are written; consumers read alone or in a group. What happens, and what the contract declares, is drawn: each
`Feature` is there or not, so that every two of them meet. A `defect` breaks the log once, so that the verdict must not be valid.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Any

from linearizability.history.contract import Contract
from linearizability.simulation.history_recorder import ClientHistory

Mop = dict[str, Any]
PRODUCERS, TRANSACTORS, READERS, MEMBERS = range(3), range(3, 5), range(10, 13), range(20, 22)
ASKER, DRAINER, LAST_DRAINER, WORLD = 30, 40, 41, 99


class Feature(Enum):
    LOWER_ACKS = "some sends ask for acks=0 or acks=1"
    UNCLEAN = "an unclean election drops what was committed"
    EXCUSE = "so does a power loss, with an excuse"
    DEPOSED = "a deposed leader answers lower acks, and reads"
    LATE = "a send without an answer takes effect later, or never"
    REPEATED = "a producer without idempotence stores a record twice"
    ONE_IN_FLIGHT = "producers have one request in flight"
    TRANSACTIONS = "producers commit and abort"
    WHOLE = "a transaction is one operation of the history, as in imported ones"
    UNCOMMITTED = "consumers read uncommitted records"
    GROUP = "members of a group read one after the other, and commit"
    RETENTION = "the oldest records expire"
    COMPACTION = "records are compacted away"
    SEEKS = "consumers seek other positions"
    DRAINS = "partitions are read to their end while others work"
    EPOCHS = "consumers report leader epochs"


class Defect(Enum):
    LOST = "a record that was acknowledged with acks=all is gone"
    TWICE = "a record of an idempotent producer is stored again"
    OTHER = "another record lies at an acknowledged offset"
    REVIVED = "an aborted record is given to readers of committed ones"
    HIDDEN = "a record of a committed transaction is gone"


@dataclass
class Record:
    offset: int
    value: int
    epoch: int
    transaction: int = -1
    marker: str = ""
    """`commit` or `abort`: the end of the transaction."""


@dataclass
class Log:
    name: str
    records: list[Record] = field(default_factory=list)
    end: int = 0
    committed: int = 0
    start: int = 0
    epoch: int = 0
    deposed: Log | None = None
    """The log of a deposed leader that does not know of its successor."""

    def append(self, value: int, transaction: int = -1, marker: str = "", committed: bool = True) -> int:
        self.records.append(Record(self.end, value, self.epoch, transaction, marker))
        self.end += 1
        self.committed = self.end if committed else self.committed
        return self.end - 1

    def truncate(self, end: int) -> None:
        self.records = [record for record in self.records if record.offset < end]
        self.end, self.committed = end, min(self.committed, end)

    def last_stable(self) -> int:
        ended = {record.transaction for record in self.records if record.marker and record.offset < self.committed}
        unstable = (
            r.offset for r in self.records if r.transaction >= 0 and not r.marker and r.transaction not in ended
        )
        return min([self.committed, *unstable])

    def read(self, begin: int, uncommitted: bool, most: int) -> tuple[list[Record], int]:
        """Records from there on, and the position after them."""
        end = self.committed if uncommitted else self.last_stable()
        aborted = {record.transaction for record in self.records if record.marker == "abort"}
        found: list[Record] = []
        for record in (each for each in self.records if begin <= each.offset < end):
            if len(found) == most:
                return found, record.offset
            if not record.marker and (uncommitted or record.transaction not in aborted):
                found.append(record)
        return found, max(begin, end)


@dataclass
class Member:
    process: int
    positions: dict[str, int]


class Play:
    """One run: `histories` after it was played."""

    def __init__(self, seed: int, defect: Defect | None = None) -> None:
        rng = self.rng = Random(seed)
        self.has = {feature for feature in Feature if rng.random() < 0.45} - _hiding(defect)
        if defect in (Defect.REVIVED, Defect.HIDDEN):
            self.has |= {Feature.TRANSACTIONS}
        self.defect, self.is_broken, self.breaks_at = defect, False, rng.randint(8, 60)
        self.contract = Contract(
            idempotence=Feature.REPEATED not in self.has,
            max_in_flight=1 if Feature.ONE_IN_FLIGHT in self.has else 5,
            unclean_election=Feature.UNCLEAN in self.has,
            isolation="read_uncommitted" if Feature.UNCOMMITTED in self.has else "read_committed",
            cleanup="compact"
            if Feature.COMPACTION in self.has
            else "delete"
            if Feature.RETENTION in self.has
            else "keep",
        )
        self.now, self.sent, self.begun, self.excuses, self.generation = 0, 0, 0, 0, 0
        self.logs = [Log("t-0"), Log("t-1")]
        self.clients: dict[int, ClientHistory] = {}
        self.world = ClientHistory(WORLD, self.contract)
        self.numbers, self.busy_until, self.crashed = Counter[int](), Counter[int](), Counter[int]()
        self.pending: list[tuple[int, Callable[[], object]]] = []
        self.acknowledged: set[int] = set()
        self.ended_for_sure: set[int] = set()
        self.open: dict[int, tuple[int, list[Log]]] = {}
        self.positions: dict[int, dict[str, int]] = {}
        self.group_offsets: dict[str, int] = {}
        self.member: Member | None = None
        self.excused: list[str] = []
        for step in range(rng.randint(10, 120)):
            self._step(drains=True)
            if defect is not None and step >= self.breaks_at and not self.is_broken:
                self._break(rng.choice(self.logs))
        self._end()

    @property
    def histories(self) -> list[ClientHistory]:
        return [*self.clients.values(), self.world]

    # -- time and operations -------------------------------------------------------------------------------------------

    def _event(self, process: int, number: int, kind: str, f: str, time: int, mops: list[Mop], **fields: Any) -> None:
        """A moment of a play is a millisecond: waits are recorded as so many."""
        event = {"type": kind, "time": 1000 * time, "process": process, "operation": number, "f": f} | fields
        client = self.clients.setdefault(process, ClientHistory(process, self.contract))
        client.events.append(event | ({"mops": mops} if mops else {}))

    def _act(
        self, process: int, f: str, asked: list[Mop], done: list[Mop] | None = None, outcome: str = "ok", **fields: Any
    ) -> None:
        """An operation that takes effect now: it began a while ago, and ends a while later."""
        self.now = max(self.now, self.busy_until[process] + 1)
        number, began = self.numbers[process], max(self.busy_until[process] + 1, self.now - self.rng.randint(0, 12))
        self.numbers[process] += 1
        self.busy_until[process] = self.now + self.rng.randint(1, 12)
        self._event(process, number, "invoke", f, began, asked, **fields)
        done = asked if done is None else done
        self._event(process, number, outcome, f, self.busy_until[process], done, **fields)

    def _is_free(self, process: int) -> bool:
        return self.busy_until[process] < self.now

    def _later(self, wait: int, effect: Callable[[], object]) -> None:
        self.pending.append((self.now + wait, effect))

    def _apply_due(self) -> None:
        due = sorted((each for each in self.pending if each[0] <= self.now), key=lambda each: each[0])
        self.pending = [each for each in self.pending if each[0] > self.now]
        for _, effect in due:
            effect()

    def _step(self, drains: bool) -> None:
        self.now += self.rng.randint(1, 6)
        self._apply_due()
        steps = [*[self._send] * 6, *[self._poll] * 5, *[self._in_group] * 3, *[self._in_transaction] * 4]
        steps += [self._replicate, self._elect, self._lose_power, self._clean_up, self._ask]
        if drains and Feature.DRAINS in self.has and self.rng.random() < 0.3:
            steps.append(lambda: self._drain(DRAINER, self.rng.choice(self.logs)))
        self.rng.choice(steps)()

    def _end(self) -> None:
        """All is answered, all is replicated, and every partition is read to its end."""
        for process in list(self.open):
            self._finish(process, self.rng.random() < 0.5, "ok")
        if self.excused:
            self._lose_power()
        while self.pending:
            self.now += 10
            self._apply_due()
        for log in self.logs:
            log.committed = log.end
            self.now = max(self.now, self.busy_until[LAST_DRAINER]) + 1
            self._drain(LAST_DRAINER, log)

    # -- producers -----------------------------------------------------------------------------------------------------

    def _value(self) -> int:
        self.sent += 1
        return self.sent

    def _send(self) -> None:
        process, log, rng = self.rng.choice(PRODUCERS), self.rng.choice(self.logs), self.rng
        if not self._is_free(process):
            return
        acks = rng.choice(["all", "1", "1", "0"]) if Feature.LOWER_ACKS in self.has else "all"
        value = self._value()
        mop = {"op": "send", "key": log.name, "value": value, "acks": acks}
        if Feature.DEPOSED in self.has and log.deposed is not None and acks != "all" and rng.random() < 0.5:
            self._answer(process, mop, log.deposed.append(value, committed=False))
        elif Feature.LATE in self.has and rng.random() < 0.25:
            if rng.random() < 0.6:
                self._later(
                    rng.choice([0, 5, 40, 150, 400]),
                    lambda: log.append(value, committed=acks == "all" or rng.random() < 0.5),
                )
            self._act(process, "send", [mop], outcome="info")
        else:
            offset = log.append(value, committed=acks == "all")
            if Feature.REPEATED in self.has and rng.random() < 0.2:
                self._later(rng.choice([0, 20, 100]), lambda: log.append(value))
            self._answer(process, mop, offset)

    def _answer(self, process: int, mop: Mop, offset: int) -> None:
        if mop["acks"] == "0" or self.rng.random() < 0.08:
            self._act(process, "send", [mop], outcome="info")
            return
        self._act(process, "send", [mop], [mop | {"offset": offset}])
        if mop["acks"] == "all":
            self.acknowledged.add(mop["value"])

    def _in_transaction(self) -> None:
        place, rng = self.rng.choice(TRANSACTORS), self.rng
        process = place + 100 * self.crashed[place]
        if Feature.TRANSACTIONS not in self.has or not self._is_free(process):
            return
        if process not in self.open and Feature.WHOLE in self.has and rng.random() < 0.5:
            self._transact(process)
        elif process not in self.open:
            self.begun += 1
            self.open[process] = self.begun, []
            self._act(process, "begin", [], txn=f"x{self.begun}", producer=f"p{process}", epoch=self.begun)
        elif rng.random() < 0.6:
            number, logs = self.open[process]
            log, value, is_answered = rng.choice(self.logs), self._value(), rng.random() < 0.9
            mop = {"op": "send", "key": log.name, "value": value}
            if is_answered or rng.random() < 0.5:
                offset = log.append(value, number)
                logs.append(log)
            if is_answered:
                self._act(process, "send", [mop], [mop | {"offset": offset}], txn=f"x{number}")
            else:
                self._act(process, "send", [mop], outcome="info", txn=f"x{number}")
                self._finish(process, False, "ok")
        else:
            self._finish(process, rng.random() < 0.7, rng.choices(["ok", "info"], [4, 1])[0])

    def _transact(self, process: int) -> None:
        """A whole transaction. Without an answer all of it may happen later, and be seen in one partition before the other; its
        process ends there, as Jepsen has it."""
        self.begun += 1
        number, rng = self.begun, self.rng
        logs = [rng.choice(self.logs) for _ in range(rng.randint(1, 3))]
        mops: list[Mop] = [{"op": "send", "key": log.name, "value": self._value()} for log in logs]
        decided = rng.choice(["commit", "commit", "abort"])

        def end() -> None:
            for log in {id(each): each for each in logs}.values():
                self._later(rng.choice([0, 1, 3, 30, 200]), lambda log=log: log.append(-1, number, decided))

        def send() -> list[Mop]:
            return [mop | {"offset": log.append(mop["value"], number)} for mop, log in zip(mops, logs, strict=True)]

        if rng.random() < 0.5:
            done, outcome = send(), "ok" if decided == "commit" else "fail"
            end()
            self._act(process, "txn", mops, done, outcome=outcome)
            if outcome == "ok":
                self.ended_for_sure.add(number)
        else:
            if rng.random() < 0.8:
                self._later(rng.choice([0, 5, 40, 150]), lambda: (send(), end()))
            self._act(process, "txn", mops, outcome="info")
            self.crashed[process % 100] += 1

    def _finish(self, process: int, commit: bool, outcome: str) -> None:
        """The end of a transaction: the markers are written after the answer, one by one."""
        number, logs = self.open.pop(process)
        decided = "commit" if commit and (outcome == "ok" or self.rng.random() < 0.5) else "abort"
        self._act(process, "end", [], outcome=outcome, txn=f"x{number}", commit=commit)
        if outcome == "ok":
            self.ended_for_sure.add(number)
        for log in {id(each): each for each in logs}.values():
            self._later(self.rng.choice([0, 1, 3, 30, 200]), lambda log=log: log.append(-1, number, decided))

    # -- brokers -------------------------------------------------------------------------------------------------------

    def _replicate(self) -> None:
        log = self.rng.choice(self.logs)
        log.committed = log.end

    def _elect(self) -> None:
        """The next leader lacks what was not committed, and more where that is permitted."""
        log, rng = self.rng.choice(self.logs), self.rng
        kept = log.committed
        if (Feature.UNCLEAN in self.has or log.name in self.excused) and kept > log.start:
            kept = rng.randint(max(log.start, kept - 6), kept)
        if kept < log.end:
            log.deposed = Log(log.name, list(log.records), log.end, log.committed, log.start, log.epoch)
            log.truncate(kept)
        log.epoch += 1

    def _lose_power(self) -> None:
        """An excuse begins, or is over."""
        if Feature.EXCUSE not in self.has:
            return
        common = {"type": "mark", "time": 1000 * self.now, "number": self.excuses}
        if self.excused:
            self.world.events.append(common | {"f": "excuse-over"})
            self.excused = []
            return
        self.excuses += 1
        keys = self.rng.choice([["t-0"], ["t-1"], ["t"], ["t-0", "t-1"]])
        self.excused = [log.name for log in self.logs if log.name in keys or "t" in keys]
        mark = {"f": "excuse", "number": self.excuses, "cause": "power-loss", "keys": keys, "nodes": [1, 2]}
        self.world.events.append(common | mark)

    def _clean_up(self) -> None:
        log, rng = self.rng.choice(self.logs), self.rng
        if Feature.COMPACTION in self.has:
            stable = [each for each in log.records if each.offset < log.last_stable() and not each.marker]
            if len(stable) > 2:
                log.records.remove(rng.choice(stable[:-1]))
        elif Feature.RETENTION in self.has and log.committed > log.start + 2:
            log.start = rng.randint(log.start, log.committed - 1)
            log.records = [record for record in log.records if record.offset >= log.start]

    # -- consumers -----------------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        if self._is_free(ASKER):
            self._list_offsets(ASKER, self.rng.choice(self.logs))

    def _list_offsets(self, process: int, log: Log) -> None:
        mop = {"op": "list_offsets", "key": log.name}
        self._act(process, "list_offsets", [mop], [mop | {"start": log.start, "end": log.committed}])

    def _poll(self) -> None:
        process, rng = self.rng.choice(READERS), self.rng
        if not self._is_free(process):
            return
        if process not in self.positions:
            self._act(process, "assign", [], keys=[log.name for log in self.logs])
            self.positions[process] = {log.name: 0 for log in self.logs}
        elif Feature.SEEKS in self.has and rng.random() < 0.1:
            log = rng.choice(self.logs)
            self._act(process, "seek", [], keys=[log.name])
            self.positions[process][log.name] = rng.randint(log.start, log.end)
        else:
            self._fetch(process, self.positions[process])

    def _fetch(self, process: int, positions: dict[str, int]) -> None:
        cut = [log.name for log in self.logs if positions[log.name] > log.end]
        if cut:
            self._act(process, "seek", [], keys=cut, to="truncation")
            positions.update(dict.fromkeys(cut, 0))
            return
        records: dict[str, list[list[int]]] = {}
        ends: dict[str, int] = {}
        for log in self.logs:
            source, position = log, positions[log.name]
            if Feature.DEPOSED in self.has and log.deposed is not None and self.rng.random() < 0.2:
                source = log.deposed
                if position > source.committed:
                    continue
            found, positions[log.name] = source.read(max(position, log.start), self._reads_all, self.rng.randint(1, 5))
            if found:
                records[log.name] = self._as_read(found)
            if self.rng.random() < 0.5:
                ends[log.name] = source.committed
        if records or ends:
            self._act(process, "poll", [{"op": "poll"}], [{"op": "poll", "records": records, "ends": ends}])

    @property
    def _reads_all(self) -> bool:
        return Feature.UNCOMMITTED in self.has

    def _as_read(self, found: list[Record]) -> list[list[int]]:
        width = 3 if Feature.EPOCHS in self.has else 2
        return [[record.offset, record.value, record.epoch][:width] for record in found]

    def _in_group(self) -> None:
        if Feature.GROUP not in self.has:
            return
        member, rng = self.member, self.rng
        if member is None or rng.random() < 0.12:
            process = rng.choice(MEMBERS)
            if self._is_free(process) and (member is None or self._is_free(member.process)):
                self._join(process)
        elif self._is_free(member.process):
            if rng.random() < 0.3:
                self._commit(member)
            else:
                self._fetch(member.process, member.positions)

    def _join(self, process: int) -> None:
        self.generation += 1
        place: dict[str, Any] = {"group": "g", "generation": self.generation, "member": f"m{process}"}
        self._act(process, "subscribe", [], keys=[log.name for log in self.logs], **place)
        offsets = {log.name: self.group_offsets.get(log.name) for log in self.logs}
        asked = {"op": "committed", "group": "g"}
        self._act(process, "committed", [asked], [asked | {"offsets": offsets}])
        self.member = Member(process, {name: offset or 0 for name, offset in offsets.items()})

    def _commit(self, member: Member) -> None:
        outcome = self.rng.choices(["ok", "info"], [5, 1])[0]
        if outcome == "ok" or self.rng.random() < 0.5:
            self.group_offsets.update(member.positions)
        place = {"group": "g", "generation": self.generation, "member": f"m{member.process}"}
        self._act(
            member.process, "commit", [{"op": "commit", "offsets": dict(member.positions), **place}], outcome=outcome
        )

    def _drain(self, process: int, log: Log) -> None:
        """A final read of one partition; others go on, but for the last."""
        if not self._is_free(process):
            return
        number, began = self.numbers[process], self.now
        self.numbers[process] += 1
        start, end, position = log.start, log.committed, log.start
        self._event(process, number, "invoke", "drain", began, [])
        self.busy_until[process] = began
        for _ in range(40):
            for _ in range(self.rng.randint(0, 2) if process == DRAINER else 0):
                self._step(drains=False)
            if position < log.start:
                self._list_offsets(process, log)
            found, position = log.read(max(position, log.start), self._reads_all, self.rng.randint(1, 8))
            if found:
                read = {"op": "poll", "records": {log.name: self._as_read(found)}}
                self._act(process, "poll", [{"op": "poll"}], [read])
            self.now = max(self.now, self.busy_until[process]) + 1
            if position >= end:
                break
        self.busy_until[process] = self.now
        done = {"op": "drain", "key": log.name, "start": start, "end": end, "position": position}
        self._event(process, number, "ok", "drain", self.now, [done])

    # -- defects -------------------------------------------------------------------------------------------------------

    def _break(self, log: Log) -> None:
        """Break the log, if it has what can be broken."""
        sure = [each for each in log.records if each.value in self.acknowledged and each.offset < log.committed]
        ended = {r.transaction: r.marker for r in log.records if r.marker and r.transaction in self.ended_for_sure}
        mine = [each for each in log.records if not each.marker and each.transaction in ended]
        aborted = [each for each in mine if ended[each.transaction] == "abort"]
        candidates = {Defect.REVIVED: aborted, Defect.HIDDEN: [each for each in mine if each not in aborted]}
        chosen = candidates.get(self.defect, sure) if self.defect is not None else []
        if not chosen:
            return
        record, self.is_broken = self.rng.choice(chosen), True
        match self.defect:
            case Defect.LOST | Defect.HIDDEN:
                log.records.remove(record)
            case Defect.TWICE:
                log.append(record.value)
            case Defect.OTHER:
                record.value = self._value()
                mop = {"op": "send", "key": log.name, "value": record.value}
                self._act(PRODUCERS[0], "send", [mop], [mop | {"offset": record.offset}])
            case _:
                record.transaction = -1


def _hiding(defect: Defect | None) -> set[Feature]:
    """With which features the defect is permitted, or need not show; and of two kinds of cleaning up one."""
    losing = {Feature.UNCLEAN, Feature.EXCUSE, Feature.COMPACTION, Feature.RETENTION, Feature.DEPOSED}
    match defect:
        case None:
            return set()
        case Defect.TWICE:
            return losing | {Feature.REPEATED}
        case Defect.REVIVED:
            return losing | {Feature.UNCOMMITTED}
        case _:
            return losing | {Feature.REPEATED}
