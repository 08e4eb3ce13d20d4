"""From events to facts: pairs invocations with completions, and writes the facts of each operation by partition.

The derivation is a fold over one process file (or one history of many processes) that keeps in memory only what is open:
operations without a completion, transactions without an end, each consumer's assignment. Facts are emitted once they are known,
so a file of any length needs bounded memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from linearizability.history.contract import Contract
from linearizability.history.derivation_state import (
    Invocation,
    PartitionKey,
    Sessions,
    Tally,
    Transaction,
    microseconds_between,
    producing_flags,
)
from linearizability.history.event_fields import (
    BadEvent,
    check_same_sends,
    lacks_records,
    number_of,
    offset_of,
    place_of,
    process_of,
    records_of,
    time_of,
)
from linearizability.history.facts import OUTCOMES, UNKNOWN, Fact, FactsBuilder, Flag, Kind, Outcome, identity
from linearizability.history.keys import NEVER, split_key
from linearizability.history.operations import OPERATIONS, PASSES_NOTHING

STATES = {
    "high_watermark": Kind.HIGH_WATERMARK,
    "last_stable_offset": Kind.LAST_STABLE_OFFSET,
    "log_start": Kind.LOG_START,
    "log_end": Kind.LOG_END,
}
"""A node's numbers, and the kind of fact that each becomes."""

STEPS = ("send", "poll", "commit", "committed")
"""Operations that may name the transaction of which they are a part."""

REGISTER_FUNCTIONS = {"read": 0, "write": 1, "cas": 2}
"""The `position` of a REGISTER fact."""

IN_NO_PARTITION: PartitionKey = ("", -1)
"""The key of facts about a whole run: transactions."""


class Derivation:
    """The fold. Feed it the events of one file in order; take facts from `builder`; call `finish` at the end."""

    def __init__(self, builder: FactsBuilder, contract: Contract, number_base: int = 0) -> None:
        """`number_base` is added to operation numbers, to keep those of several files apart."""
        self.builder = builder
        self.contract = contract
        self.base = number_base
        self.tally = Tally()
        self.names: dict[int, str] = {}
        """Hashed values and names, back to their text; kept for witnesses, bounded by MAX_NAMES."""
        self._open: dict[int, Invocation] = {}
        self._transactions: dict[tuple[int, str], Transaction] = {}
        self._sessions = Sessions()
        self._assigned: dict[int, set[PartitionKey]] = {}
        self._subscribed: set[int] = set()
        self._group: dict[int, int] = {}
        self._producing = producing_flags(contract, contract.acks)
        self._consuming = Flag.READ_COMMITTED if contract.isolation == "read_committed" else 0
        self._begins = 0 if contract.reads_from_start else Flag.FROM_END

    MAX_NAMES = 100_000

    def open_operations(self) -> Iterable[int]:
        return self._open.keys()

    def invoke(self, number: int, process: int, event: dict[str, Any]) -> None:
        """Begin an operation."""
        if number in self._open:
            raise BadEvent(f"operation {number} is invoked twice")
        f = event.get("f")
        if f not in OPERATIONS:
            raise BadEvent(f"{f!r} is no operation")
        process_of(process)
        self.tally.invocations += 1
        mops = event.get("mops") or []
        invocation = Invocation(number + self.base, process, f, time_of(event), mops, event)
        self.tally.ends_at = max(self.tally.ends_at, invocation.time)
        self._place(invocation)
        if f == "drain":
            named = {split_key(mop["key"]) for mop in mops if mop.get("op") == "drain"}
            self._sessions.end_of(process, lambda key: key in named or not named)
        self._open[number] = invocation
        if invocation.polls:
            self._sessions.poll_begins(process, invocation.number)

    def _place(self, invocation: Invocation) -> None:
        """Record the operation in its transaction, of which it is a step or the end."""
        event = invocation.event
        transaction = (
            None if event.get("txn") is None else self._transactions.get((invocation.process, str(event["txn"])))
        )
        if transaction is None:
            return
        if invocation.f in STEPS:
            invocation.transaction = transaction
            transaction.written.update(str(mop["key"]) for mop in invocation.mops if mop.get("op") == "send")
        elif invocation.f == "end" and event.get("commit"):
            transaction.commits += 1
            if transaction.commit_time == UNKNOWN:
                transaction.commit_time = invocation.time

    def complete(self, number: int, process: int, event: dict[str, Any]) -> None:
        """End an operation and write its facts."""
        invocation = self._open.pop(number, None)
        if invocation is None:
            raise BadEvent(f"operation {number} ends without having begun")
        if invocation.process != process or invocation.f != event.get("f", invocation.f):
            raise BadEvent(f"operation {number} ends as another than it began")
        self.tally.ends_at = max(self.tally.ends_at, time_of(event))
        self._sessions.ends(invocation)
        self._settle(invocation, event, time_of(event), OUTCOMES[event["type"]])

    def never_answered(self, number: int) -> None:
        """Settle an operation without an end in this file: its outcome is unknown."""
        self._settle(self._open.pop(number), {}, NEVER, Outcome.INFO)

    def finish(self, complete: bool) -> None:
        """End the file: open operations were never answered. `complete`: nothing is missing from the file."""
        for number in list(self._open):
            self.never_answered(number)
        for transaction in list(self._transactions.values()):
            certainly_not = complete and not transaction.commits
            self._end_transaction(transaction, Outcome.FAIL if certainly_not else Outcome.INFO, NEVER)
        self._transactions.clear()

    def _settle(self, invocation: Invocation, event: dict[str, Any], completed: int, outcome: Outcome) -> None:
        self.tally.operations[f"{invocation.f}:{outcome.name.lower()}"] += 1
        mops = event.get("mops")
        if not mops:
            mops = [m for m in invocation.mops if m.get("op") != "poll"]
        elif invocation.f in ("send", "txn"):
            check_same_sends(invocation.mops, mops)
        common: dict[str, Any] = {
            "process": invocation.process,
            "operation": invocation.number,
            "invoked": invocation.time,
            "completed": completed,
            "outcome": int(outcome),
        }
        fields = invocation.event | event
        match invocation.f:
            case "send" | "poll" | "txn":
                self._records(invocation, fields, mops, common)
            case "begin":
                self._begin(invocation, fields, outcome)
            case "end":
                self._end(invocation, fields, completed, outcome)
            case "assign" | "subscribe":
                self._assign(invocation, fields, common, outcome)
            case "seek":
                for key in fields.get("keys") or []:
                    self._sessions.seek(invocation.process, split_key(key), fields.get("to") in PASSES_NOTHING)
            case "commit" | "committed":
                self._group_offsets(invocation, fields, mops, common)
            case "list_offsets" | "drain":
                self._offsets(mops, common)
            case "state" | "replica":
                self._inspection(mops, common)
            case _:
                self._register(invocation, fields, common)

    # -- records ---------------------------------------------------------------------------------------------------

    def _records(
        self, invocation: Invocation, fields: dict[str, Any], mops: list[dict[str, Any]], common: dict[str, Any]
    ) -> None:
        process = invocation.process
        whole = invocation.f == "txn"
        transaction = invocation.transaction
        number = invocation.number if whole else transaction.number if transaction else UNKNOWN
        if transaction is not None:
            fields = self._produced_by(transaction) | fields
        moved = {split_key(key) for key in fields.get("rebalanced") or []}
        for key in moved:
            self._sessions.end(process, key)
        written = {str(m["key"]) for m in mops if m.get("op") == "send"}
        position = 0
        for mop in mops:
            match mop.get("op"):
                case "send":
                    many = len(written) > 1
                    self._keep(transaction, self._append(mop, fields, common, position, number, many))
                    position += 1
                case "poll":
                    for fact in self._observations(mop, process, moved, common, position, number):
                        self._keep(transaction, fact)
                        position += 1
                case "commit":
                    for fact in self._commits(mop, common, number):
                        self._keep(transaction, fact)
                case other:
                    raise BadEvent(f"{other!r} is no micro-operation of {invocation.f}")
        for key in moved:
            self._sessions.end(process, key)
        if common["outcome"] == Outcome.INFO and lacks_records(invocation.mops, mops):
            self._sessions.lose(process, invocation.number)
        if whole:
            self.builder.add(
                IN_NO_PARTITION, Fact(Kind.TRANSACTION, **common, transaction=number, group=self._producer(fields))
            )

    def _append(
        self,
        mop: dict[str, Any],
        fields: dict[str, Any],
        common: dict[str, Any],
        position: int,
        transaction: int,
        many: bool,
    ) -> dict[str, Any]:
        acks = mop.get("acks")
        flags = self._producing if acks is None else producing_flags(self.contract, acks)
        self.tally.unanswered += (acks or self.contract.acks) == "0"
        if transaction != UNKNOWN:
            flags |= Flag.TRANSACTIONAL
        if many:
            flags |= Flag.MANY_PARTITIONS
        if common["outcome"] == Outcome.OK:
            flags |= Flag.ACKNOWLEDGED
            self.tally.acknowledged += 1
        return common | {
            "key": split_key(mop["key"]),
            "kind": Kind.APPEND,
            "position": position,
            "flags": int(flags),
            "offset": offset_of(mop.get("offset")),
            "value": self._identity(mop["value"]),
            "transaction": transaction,
            "epoch": number_of(fields.get("epoch", UNKNOWN), "epoch"),
            "group": self._producer(fields),
        }

    def _observations(
        self,
        mop: dict[str, Any],
        process: int,
        moved: set[PartitionKey],
        common: dict[str, Any],
        position: int,
        transaction: int,
    ) -> Iterator[dict[str, Any]]:
        flags = self._consuming | self._begins | (Flag.SUBSCRIBED if process in self._subscribed else 0)
        group = self._group.get(process, UNKNOWN)
        for name, offset, value, epoch in records_of(mop.get("records")):
            key = split_key(name)
            self.tally.observed += 1
            yield common | {
                "key": key,
                "kind": Kind.OBSERVATION,
                "position": position,
                "flags": int(flags | (Flag.REBALANCED if key in moved else 0) | self._sessions.flags(process, key)),
                "offset": UNKNOWN if offset is None else place_of(offset),
                "value": self._identity(value),
                "session": self._sessions.number(process, key),
                "transaction": transaction,
                "epoch": epoch,
                "group": group,
            }
            position += 1
        for name, end in (mop.get("ends") or {}).items():
            self.builder.add(split_key(name), Fact(Kind.END_OFFSETS, **common, position=1, offset=offset_of(end)))

    # -- transactions ----------------------------------------------------------------------------------------------

    def _producer(self, fields: dict[str, Any]) -> int:
        """The producer's identity; a new producer id makes a new one, because its epochs begin again."""
        producer, number = fields.get("producer"), fields.get("producer_id")
        if producer is None:
            return UNKNOWN
        return self._identity(producer if number is None else f"{producer} as {number}")

    def _produced_by(self, transaction: Transaction) -> dict[str, Any]:
        return {
            "producer": transaction.producer_name,
            "producer_id": transaction.producer_id,
            "epoch": transaction.epoch,
        }

    def _begin(self, invocation: Invocation, fields: dict[str, Any], outcome: Outcome) -> None:
        name = (invocation.process, str(fields.get("txn")))
        for known, other in list(self._transactions.items()):
            spoilt = other.commit_time != UNKNOWN and not other.commits  # after a new begin it cannot be aborted
            if spoilt and other.process == invocation.process and other.producer_name == fields.get("producer"):
                del self._transactions[known]
                self._end_transaction(other, Outcome.FAIL, invocation.time)
        if name in self._transactions:
            raise BadEvent(f"transaction {fields.get('txn')!r} begins twice")
        if outcome is not Outcome.FAIL:
            self._transactions[name] = Transaction(
                invocation.number,
                invocation.process,
                fields.get("producer"),
                fields.get("producer_id"),
                number_of(fields.get("epoch", UNKNOWN), "epoch"),
                invocation.time,
            )

    def _end(self, invocation: Invocation, fields: dict[str, Any], completed: int, outcome: Outcome) -> None:
        name = (invocation.process, str(fields.get("txn")))
        transaction = self._transactions.get(name)
        if transaction is None:
            raise BadEvent(f"transaction {fields.get('txn')!r} ends without having begun")
        if outcome is Outcome.FAIL and fields.get("commit"):
            transaction.commits -= 1
        if outcome is not Outcome.OK:
            return  # the client may try again, or abort; what never ends is settled when the file ends
        del self._transactions[name]
        if fields.get("commit"):
            became = Outcome.OK
        else:
            became = Outcome.INFO if transaction.commits else Outcome.FAIL
        self._end_transaction(transaction, became, completed)

    def _end_transaction(self, transaction: Transaction, outcome: Outcome, completed: int) -> None:
        transaction.became, transaction.completed = outcome, completed
        for fact in transaction.facts:
            self._settle_in(transaction, outcome, fact)
        self.builder.add(
            IN_NO_PARTITION,
            Fact(
                Kind.TRANSACTION,
                process=transaction.process,
                operation=transaction.number,
                invoked=transaction.invoked,
                completed=completed,
                outcome=int(outcome),
                transaction=transaction.number,
                epoch=transaction.epoch,
                group=self._producer(self._produced_by(transaction)),
            ),
        )

    def _settle_in(self, transaction: Transaction, became: Outcome, fact: dict[str, Any]) -> None:
        """Write a fact of a transaction that has ended."""
        if fact["kind"] == Kind.APPEND:
            fact["extra"] = transaction.commit_time
            fact["session"] = microseconds_between(transaction.commit_time, transaction.completed)
            if len(transaction.written) > 1:
                fact["flags"] |= int(Flag.MANY_PARTITIONS)
        if fact["kind"] == Kind.COMMIT:  # fenced when it is asked for, in force when the transaction ends
            fact["completed"] = max(fact["completed"], transaction.completed)
            if fact["outcome"] == Outcome.OK:
                fact["flags"] = fact.get("flags", 0) | int(Flag.ACKNOWLEDGED)
        if fact["outcome"] == Outcome.OK:
            fact["outcome"] = int(became)
        elif fact["outcome"] == Outcome.INFO and became is Outcome.FAIL:
            fact["outcome"] = int(Outcome.FAIL)
        self._write(fact)

    def _write(self, fact: dict[str, Any]) -> None:
        key = fact.pop("key")
        self.builder.add(key, Fact(**fact))

    # -- consumers -------------------------------------------------------------------------------------------------

    def _assign(self, invocation: Invocation, fields: dict[str, Any], common: dict[str, Any], outcome: Outcome) -> None:
        if outcome is Outcome.FAIL:
            return
        process = invocation.process
        keys = {split_key(key) for key in fields.get("keys") or []}
        self._sessions.end_of(process, lambda key: key not in keys)
        if invocation.f == "subscribe":
            self._subscribed.add(process)
        else:
            self._subscribed.discard(process)
        if fields.get("group") is None:
            return
        self._group[process] = self._identity(fields["group"])
        for key in keys:
            self.builder.add(
                key,
                Fact(
                    Kind.OWNERSHIP,
                    **common,
                    value=self._member(fields),
                    epoch=number_of(fields.get("generation", UNKNOWN), "generation"),
                    group=self._group[process],
                ),
            )

    def _member(self, named: dict[str, Any]) -> int:
        return UNKNOWN if named.get("member") in (None, "") else self._identity(named["member"])

    def _group_offsets(
        self, invocation: Invocation, fields: dict[str, Any], mops: list[dict[str, Any]], common: dict[str, Any]
    ) -> None:
        transaction = invocation.transaction
        for mop in mops:
            if mop.get("op") == "commit":
                for fact in self._commits(mop, common, transaction.number if transaction else UNKNOWN):
                    self._keep(transaction, fact)
                continue
            for key, offset in (mop.get("offsets") or {}).items():
                group = self._identity(mop["group"])
                fact = Fact(Kind.COMMITTED, **common, flags=self._consuming, offset=offset_of(offset), group=group)
                self.builder.add(split_key(key), fact)

    def _commits(self, mop: dict[str, Any], common: dict[str, Any], transaction: int) -> Iterator[dict[str, Any]]:
        for key, offset in mop["offsets"].items():
            yield common | {
                "key": split_key(key),
                "kind": Kind.COMMIT,
                "flags": int(self._begins | self._sessions.flags(common["process"], split_key(key))),
                "offset": offset_of(offset),
                "value": self._member(mop),
                "transaction": transaction,
                "epoch": number_of(mop.get("generation", UNKNOWN), "generation"),
                "group": self._identity(mop["group"]),
            }

    def _keep(self, transaction: Transaction | None, fact: dict[str, Any]) -> None:
        """Write a fact at once, or keep it until its transaction ends."""
        if transaction is None:
            self._write(fact)
        elif transaction.became is None:
            transaction.facts.append(fact)
        else:  # answered only after the transaction's end
            self._settle_in(transaction, transaction.became, fact)

    def _offsets(self, mops: list[dict[str, Any]], common: dict[str, Any]) -> None:
        for mop in mops:
            key = split_key(mop["key"])
            if mop["op"] == "drain":
                common["outcome"] = self._sessions.outcome_of_drain(common)
                start, end, position = offset_of(mop["start"]), offset_of(mop["end"]), offset_of(mop["position"])
                fact = Fact(Kind.DRAIN, **common, flags=self._consuming, offset=end, value=start, extra=position)
                self.builder.add(key, fact)
            elif mop.get("end") is not None or mop.get("start") is not None:
                start, end = offset_of(mop.get("start")), offset_of(mop.get("end"))
                self.builder.add(key, Fact(Kind.END_OFFSETS, **common, offset=end, extra=start))

    # -- nodes and registers ---------------------------------------------------------------------------------------

    def _inspection(self, mops: list[dict[str, Any]], common: dict[str, Any]) -> None:
        for mop in mops:
            key, node = split_key(mop["key"]), number_of(mop["node"], "node")
            if mop["op"] == "replica":
                high_watermark = offset_of(mop.get("high_watermark"))
                if not mop["records"]:
                    self.builder.add(key, Fact(Kind.REPLICA_RECORD, **common, node=node, extra=high_watermark))
                for position, (offset, value, *epoch) in enumerate(mop["records"]):
                    self.builder.add(
                        key,
                        Fact(
                            Kind.REPLICA_RECORD,
                            **common,
                            position=position,
                            offset=place_of(offset),
                            value=self._identity(value),
                            node=node,
                            epoch=number_of(epoch[0], "epoch") if epoch else UNKNOWN,
                            extra=high_watermark,
                        ),
                    )
                continue
            for name, kind in STATES.items():
                if mop.get(name) is not None:
                    epoch = number_of(mop.get("epoch", UNKNOWN), "epoch")
                    self.builder.add(key, Fact(kind, **common, offset=offset_of(mop[name]), node=node, epoch=epoch))

    def _register(self, invocation: Invocation, fields: dict[str, Any], common: dict[str, Any]) -> None:
        value = fields.get("value")
        expected = UNKNOWN
        if invocation.f == "cas":
            before, value = fields["value"]
            expected = self._identity(before)
        self.builder.add(
            split_key(fields.get("key", 0)),
            Fact(
                Kind.REGISTER,
                **common,
                position=REGISTER_FUNCTIONS[invocation.f],
                value=self._identity(value),
                extra=expected,
            ),
        )

    def _identity(self, value: Any) -> int:
        number = identity(value)
        if number is not value and len(self.names) < self.MAX_NAMES:
            self.names[number] = value if isinstance(value, str) else repr(value)
        return number
