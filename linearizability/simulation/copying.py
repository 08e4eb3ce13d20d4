"""A copier: a member of a group that consumes, transforms and produces exactly once (KIP-98, KIP-447).

It writes the records that it has read into the output topics in one transaction, which also commits the group's offsets. It
recovers from faults within a transaction: a killed copier begins a new session under the same transactional id, a paused one
learns that others own its partitions. After a transaction that is not committed, the copier returns to the group's committed
offsets. It waits for offsets whose transaction is undecided.

The history names a transaction step by step: it begins before the first poll, and is certain to have failed unless its
commit was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from linearizability.client.errors import (
    JOIN_AGAIN,
    NO_COORDINATOR,
    SESSION_OVER,
    STALE,
    TRANSACTION_RETRIABLE,
    error_name,
    error_of,
    errors_in,
)
from linearizability.client.producer_session import NO_PRODUCER, ProducerSession
from linearizability.client.requests import TRANSACTION, produced
from linearizability.history.operations import commit, send
from linearizability.simulation.client import PRODUCE, Key
from linearizability.simulation.cluster import SimulatedCluster
from linearizability.simulation.consuming import name_of
from linearizability.simulation.grouping import (
    FIND_COORDINATOR,
    VERSIONS,
    Position,
    SimulatedMember,
    named,
    to_commit,
)
from linearizability.simulation.history_recorder import HistoryRecorder
from linearizability.simulation.line import REQUEST_TIMEOUT_MS, Line
from linearizability.simulation.producing import PRODUCE_TIMEOUT_MS, records_with
from linearizability.simulation.schedule import TRANSACTION_TIMEOUT_MS, Copier
from linearizability.simulation.transacting import (
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
)
from linearizability.simulation.transacting import VERSIONS as TRANSACTIONAL_VERSIONS
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from reference.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from reference.protocol.messages.end_txn import EndTxnResponse
from reference.protocol.messages.fetch import FetchResponse
from reference.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from reference.protocol.messages.init_producer_id import InitProducerIdResponse
from reference.protocol.messages.produce import ProduceResponse
from reference.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse

ADD_OFFSETS_TO_TXN, TXN_OFFSET_COMMIT = 25, 28
OFFSETS_VERSIONS = {1: 4, 2: 5}
"""TxnOffsetCommit: from version 5 on it adds the group's partition to the transaction (KIP-890)."""
ADD_OFFSETS_VERSION = 3
MOST_RECORDS = 12
"""The most records in one batch: the smallest segments hold no more."""


@dataclass(slots=True)
class Copy:
    """The open transaction."""

    name: str
    offsets: dict[Key, Position] = field(default_factory=dict[Key, Position])
    batches: list[tuple[Key, list[int]]] = field(default_factory=list[tuple[Key, list[int]]])
    """The batches to write: output partition and values."""
    written: int = 0
    """The number of acknowledged batches."""
    send_operation: int | None = None
    """The operation of the next batch, if it was sent and is not acknowledged yet."""
    is_composed: bool = False
    is_known: bool = False
    """Whether a broker may have received a part of it."""
    partitions_are_added: bool = False
    offsets_are_added: bool = False
    offsets_operation: int | None = None
    offsets_are_committed: bool = False
    is_decided: bool = False
    """Everything is written, and the commit comes next."""
    end_operation: int | None = None
    ends_asked: int = 0
    end_was_refused: bool = False
    """The only EndTxn was refused, as the session had ended: no coordinator has committed it."""


class SimulatedCopier(SimulatedMember):
    """One copier."""

    isolation = "read_committed"
    requires_stable = True

    def __init__(self, cluster: SimulatedCluster, number: int, recorder: HistoryRecorder, plan: Copier) -> None:
        super().__init__(cluster, number, recorder, plan)
        self.copier = plan
        self.id = plan.id or f"copier-{number}"
        self._decider = -1
        """The transaction coordinator's node; -1 where it is unknown."""
        self._session = ProducerSession(self.id, timeout_ms=TRANSACTION_TIMEOUT_MS)
        self._taken: dict[Key, int] = {}
        """Input partition -> the number of records that were read and are not copied yet."""
        self._copy: Copy | None = None
        self._must_abort = False
        """Whether a transaction was given up that its coordinator may know."""
        self._aborts_asked = 0
        self._begun = 0
        self._values = 0

    @property
    def is_ending(self) -> bool:
        """Whether a commit has no known outcome yet."""
        return self._copy is not None and self._copy.end_operation is not None

    # ---- reading

    def _poll_fields(self) -> dict[str, Any]:
        return {"txn": self._begun_copy().name}

    def _begun_copy(self) -> Copy:
        if self._copy is None:
            self._begun += 1
            self._copy = Copy(f"copy-{self._begun}")
            self.recorder.ok(self.recorder.invoke("begin", txn=self._copy.name))
        return self._copy

    def _records(self, key: Key, answer: FetchResponse.PartitionData) -> Iterator[list[int]]:
        for record in super()._records(key, answer):
            self._taken[key] = self._taken.get(key, 0) + 1
            yield record

    # ---- steps

    def _next_step(self) -> Callable[[], None]:
        if self.is_ending:
            return self._end
        if self._copy is not None and self._copy.is_decided:
            return self._begin_to_end
        if self._must_abort:
            return self._abort
        return super()._next_step()

    def _commit(self) -> None:
        """Take the next step of the transaction."""
        copy = self._begun_copy()
        if not copy.is_composed:
            self._compose(copy)
        if not copy.offsets:
            # A position was lost (its offset is out of range), so there is nothing to commit, and no request is sent.
            copy.is_composed = False
            self._committed = dict(self._processed)
            self._go_on()
            return
        is_old = self.copier.version == 1
        due = (
            (not self._session.has_identity, self._begin_session),
            (is_old and copy.batches and not copy.partitions_are_added, self._add_partitions),
            (copy.written < len(copy.batches), self._produce),
            (is_old and not copy.offsets_are_added, self._add_offsets),
            (not copy.offsets_are_committed, self._commit_offsets),
        )
        step = next((step for is_due, step in due if is_due), self._decide)
        if step == self._decide:
            self._decide()
        else:
            copy.is_known |= step != self._begin_session
            step()

    def _compose(self, copy: Copy) -> None:
        """Compose one output record for each record read; each input partition has its output partition."""
        outputs, inputs = self.cluster.outputs(), self.cluster.inputs()
        for key, count in sorted(self._taken.items()):
            output = outputs[inputs.index(key) % len(outputs)]
            values = [(self.number << 32) | (self._values + index) for index in range(count)]
            self._values += count
            copy.batches += [(output, values[at : at + MOST_RECORDS]) for at in range(0, count, MOST_RECORDS)]
        copy.offsets = {key: at for key, at in self._processed.items() if self._committed.get(key) != at}
        copy.is_composed = True

    # ---- asking

    def _ask_node(
        self,
        node: int,
        key: int,
        version: int,
        body: Any,
        answered: Callable[..., None],
        patience_ms: int = REQUEST_TIMEOUT_MS,
    ) -> bool:
        """Send a request to a node; without a connection, retry a little later. Returns whether it was sent."""
        line = self.line_to(node)
        if line is None:
            self.refresh_soon()
            self._pause()
            return False
        self._asking = line
        self.ask(key, version, body, self._answered, answered, patience_ms, line)
        return True

    def _report_to_decider(self, key: int, version: int, body: Any, answered: Callable[..., None]) -> bool:
        if self._decider >= 0:
            return self._ask_node(self._decider, key, version, body, answered, PRODUCE_TIMEOUT_MS * 2)
        question = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[self.id])
        self._ask_node(self.home.node, FIND_COORDINATOR, VERSIONS[FIND_COORDINATOR], question, self._decider_found)
        return False

    def _decider_found(self, body: FindCoordinatorResponse) -> None:
        answer = body.coordinators[0]
        if self._went_well("FindCoordinator", answer.error_code):
            self._decider = answer.node_id

    def on_lost(self, line: Line) -> None:
        super().on_lost(line)
        if line.node == self._decider:
            self._decider = -1

    def _went_well(self, api: str, code: int) -> bool:
        """Whether a step of a transaction succeeded. Starts the recovery where it did not. Errors: Violation."""
        self.count(api, code)
        if code == ErrorCode.NONE:
            return True
        if code in NO_COORDINATOR:
            self._decider = -1
        if code in STALE:
            self.refresh_soon()
        if code in SESSION_OVER:
            self._lose_session(code)
        elif code in TRANSACTION_RETRIABLE:
            self._pause()
        else:
            raise self.groundless(api, code)
        return False

    # ---- the producer's session

    def _begin_session(self) -> None:
        self._report_to_decider(INIT_PRODUCER_ID, 4, self._session.begin(), self._session_begun)

    def _session_begun(self, body: InitProducerIdResponse) -> None:
        if self._went_well("InitProducerId", body.error_code):
            self.cluster.promises.claim_producer_id(body.producer_id, body.producer_epoch, self.name)
            self._session.become(body.producer_id, body.producer_epoch)

    def _forget_producer(self) -> None:
        """Forget the producer id. An open transaction is aborted when the next session begins, or by its timeout."""
        self._session.become(*NO_PRODUCER)
        self._must_abort = False

    def _lose_session(self, code: int) -> None:
        """Give up the session, as another client took our transactional id, or the coordinator aborted our transaction."""
        self.world.counts["copiers' sessions lost"] += 1
        if self.cluster.is_over and self._is_one_of_several():
            self._die_for_good()
            return
        self._give_up_copy(error_name(code))
        self._forget_producer()
        self._go_back()
        self._pause(self._some_time(self.member.session_timeout_ms))

    def _is_one_of_several(self) -> bool:
        """Whether another copier uses our transactional id. Two would fence each other for ever, and to be fenced is fatal to a
        producer (ProducerFencedException): in the end a fenced copier leaves the work to the others."""
        others = [each for each in self.cluster.clients if isinstance(each, SimulatedCopier) and each is not self]
        return any(other.id == self.id and not other.finished for other in others)

    # ---- writing

    def _add_partitions(self) -> None:
        assert self._copy is not None
        body = self._session.add_partitions(sorted({output for output, _ in self._copy.batches}))
        version = TRANSACTIONAL_VERSIONS[1][ADD_PARTITIONS_TO_TXN]
        self._report_to_decider(ADD_PARTITIONS_TO_TXN, version, body, self._partitions_added)

    def _partitions_added(self, body: AddPartitionsToTxnResponse) -> None:
        if self._went_well("AddPartitionsToTxn", error_of(body)):
            assert self._copy is not None
            self._copy.partitions_are_added = True

    def _produce(self) -> None:
        copy = self._copy
        assert copy is not None
        key, values = copy.batches[copy.written]
        data = self._session.batch(key, records_with(values, self.cluster.client_clock_ms(), filler=b"c"))
        body = self._session.produce({key: data}, PRODUCE_TIMEOUT_MS)
        version = TRANSACTIONAL_VERSIONS[self.copier.version][PRODUCE]
        is_sent = self._ask_node(
            self.leaders.get(key, -1), PRODUCE, version, body, self._produced, PRODUCE_TIMEOUT_MS * 2
        )
        if is_sent and copy.send_operation is None:
            mops = [send(name_of(key), value, acks="all") for value in values]
            copy.send_operation = self.recorder.invoke("send", mops, txn=copy.name)

    def _produced(self, body: ProduceResponse) -> None:
        copy, answer = self._copy, produced(body)
        assert copy is not None and copy.send_operation is not None
        is_repeated = answer.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        if not self._went_well("Produce", ErrorCode.NONE if is_repeated else answer.error_code):
            return
        (key, values), base = copy.batches[copy.written], answer.base_offset
        copy.written += 1
        self._session.appended(key, len(values))
        mops = [
            send(name_of(key), value, base + index if base >= 0 else None, "all") for index, value in enumerate(values)
        ]
        self.recorder.ok(copy.send_operation, mops)
        copy.send_operation = None

    # ---- offsets

    def _add_offsets(self) -> None:
        body = self._session.add_offsets(self.member.group)
        self._report_to_decider(ADD_OFFSETS_TO_TXN, ADD_OFFSETS_VERSION, body, self._offsets_added)

    def _offsets_added(self, body: AddOffsetsToTxnResponse) -> None:
        if self._went_well("AddOffsetsToTxn", body.error_code):
            assert self._copy is not None
            self._copy.offsets_are_added = True

    def _commit_offsets(self) -> None:
        copy = self._copy
        assert copy is not None
        body = self._session.commit_offsets(
            self.member.group,
            to_commit(copy.offsets),
            apart=True,
            generation_id_or_member_epoch=self._me.generation,
            member_id=self._me.id,
        )
        version = OFFSETS_VERSIONS[self.copier.version]
        is_sent = self._ask_node(self._coordinator, TXN_OFFSET_COMMIT, version, body, self._offsets_committed)
        if is_sent and copy.offsets_operation is None:
            mop = commit(self.member.group, named(copy.offsets), self._me.generation, self._me.id)
            copy.offsets_operation = self.recorder.invoke("commit", [mop], txn=copy.name)

    def _offsets_committed(self, body: TxnOffsetCommitResponse) -> None:
        code = min(errors_in(body), default=ErrorCode.NONE)
        if code in JOIN_AGAIN or code in NO_COORDINATOR:
            self._judge("TxnOffsetCommit", code)
        elif self._went_well("TxnOffsetCommit", code):
            copy = self._copy
            assert copy is not None and copy.offsets_operation is not None
            copy.offsets_are_committed = True
            self.recorder.ok(copy.offsets_operation)

    # ---- the end

    def _decide(self) -> None:
        """Commit the complete transaction, unless a fault or a drawn abort prevents that.

        A copier that was paused does not notice, and sends the commit although others may own its partitions by now.
        """
        assert self._copy is not None
        self._copy.is_decided = True
        if not self.cluster.is_over and self.chance.randrange(100) < self.member.faults_percent:
            self._suffer()
            return
        if not self.cluster.is_over and self.chance.randrange(100) < self.copier.aborts_percent:
            self._drop("changed its mind")
            self._go_back()
            self._go_on()
            return
        self._begin_to_end()

    def _begin_to_end(self) -> None:
        assert self._copy is not None
        self._copy.end_operation = self.recorder.invoke("end", txn=self._copy.name, commit=True)
        self._end()

    def _end(self) -> None:
        assert self._copy is not None
        if self._ask_to_end(committed=True, answered=self._ended):
            self._copy.ends_asked += 1

    def _ask_to_end(self, committed: bool, answered: Callable[..., None]) -> bool:
        version = TRANSACTIONAL_VERSIONS[self.copier.version][END_TXN]
        return self._report_to_decider(END_TXN, version, self._session.end(committed), answered)

    def _ended(self, body: EndTxnResponse) -> None:
        copy = self._copy
        assert copy is not None and copy.end_operation is not None
        copy.end_was_refused = copy.ends_asked == 1 and body.error_code in SESSION_OVER
        if not self._went_well("EndTxn", body.error_code):
            return
        self._copy = None
        self.recorder.ok(copy.end_operation)
        self.world.counts["copied records"] += sum(self._taken.values())
        self._taken = {}
        self._committed = dict(self._processed)
        self._renew(body, was_repeated=copy.ends_asked > 1)

    def _renew(self, body: EndTxnResponse, was_repeated: bool) -> None:
        """Adopt the next epoch, which each end returns since KIP-890. Before, a repeated EndTxn may arrive late and end a
        later transaction of the epoch, so a copier that repeated it begins a new session."""
        if self.copier.version > 1:
            self._session.become(body.producer_id, body.producer_epoch)
        elif was_repeated:
            self._forget_producer()

    def _abort(self) -> None:
        if self._ask_to_end(committed=False, answered=self._aborted):
            self._aborts_asked += 1

    def _aborted(self, body: EndTxnResponse) -> None:
        if self._went_well("EndTxn", body.error_code):
            self._must_abort = False
            self._renew(body, was_repeated=self._aborts_asked > 1)

    # ---- giving up

    def _give_up_copy(self, reason: str) -> None:
        """Record the outcome of the given-up transaction: failed, unless its commit may have arrived; then unknown."""
        copy, self._copy, self._taken = self._copy, None, {}
        if copy is None:
            return
        if copy.send_operation is not None:
            self.recorder.info(copy.send_operation, reason)
        if copy.offsets_operation is not None and not copy.offsets_are_committed:
            self.recorder.info(copy.offsets_operation, reason)
        if copy.end_operation is None:
            self.recorder.ok(self.recorder.invoke("end", txn=copy.name, commit=False))
        elif copy.end_was_refused:
            self.recorder.fail(copy.end_operation, reason)
        else:
            self.recorder.info(copy.end_operation, reason)

    def _drop(self, reason: str) -> None:
        """Give the transaction up, and have it aborted.

        Before KIP-890 an abort keeps the epoch: after a batch of unknown outcome the next sequence number is unknown, and a
        new session has to begin.
        """
        copy = self._copy
        self._give_up_copy(reason)
        if copy is None or not copy.is_known or not self._session.has_identity:
            return
        if self.copier.version == 1 and copy.send_operation is not None:
            self._forget_producer()
        else:
            self._must_abort, self._aborts_asked = True, 0

    def _go_back(self) -> None:
        """Return to the group's committed offsets."""
        self.is_settled = False
        if self.places:
            self.recorder.ok(self.recorder.invoke("seek", keys=[name_of(key) for key in self.places], to="committed"))

    def _give_up_partitions(self) -> None:
        self._drop("gave its partitions up")
        super()._give_up_partitions()

    def _die(self) -> None:
        self._give_up_copy("died")
        self._forget_producer()
        super()._die()
