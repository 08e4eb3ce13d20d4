"""TXN: transactions that are being completed: the decision is logged, but a leader of a partition does not respond.

A frozen node leads one of the transaction's partitions; the coordinator and all other nodes are alive.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from conformance.broker import Broker
from conformance.cluster import PATIENT, STATE_WITHIN_S, JudgedCluster, cluster
from conformance.read_committed import expect_ended
from conformance.requirement import requirement
from conformance.requirements.transaction_failures import cast
from conformance.transaction_client import (
    CLASSIC,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    IMPLICIT,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TRANSACTIONS,
    Protocol,
    TransactionalClient,
    expect_agreed,
    served_protocols,
)
from conformance.wire import NoAnswer
from linearizability.client.requests import GROUP, READ_COMMITTED, TRANSACTION, Topic
from reference.protocol.errors import ErrorCode

DEADLINE_S = 240.0
FREEZES = ("pause", "resume")
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS


@dataclass(frozen=True, slots=True)
class Held:
    """A transaction over two partitions, one of them on the node that will be frozen."""

    client: TransactionalClient
    began: tuple[int, int]
    """The producer id and epoch of the transaction; since KIP-890 the client has other ones after its end."""
    committed: bool
    """The requested outcome: commit or abort."""
    held: Topic
    """The topic on the node that will be frozen."""
    free: Topic
    """The topic on another node."""
    group: str
    """A group whose coordinator is not on the node that will be frozen."""

    @property
    def reported(self) -> str:
        """The name of the case in reports."""
        return f"{self.client.protocol.name}, {'commit' if self.committed else 'abort'}"


def name_elsewhere(broker: Broker, stem: str, key_type: int, avoided: tuple[str, int]) -> str:
    """An unused name whose coordinator is not at this address. Skips if no such name is found."""

    def found() -> str | None:
        name = broker.unused_name(stem)
        return name if broker.coordinator(name, key_type) != avoided else None

    with suppress(NoAnswer):
        return broker.eventually(found, f"a name whose coordinator is not at {avoided}", within_s=STATE_WITHIN_S)
    broker.skip(f"needs a {stem} whose coordinator is not at {avoided}, where the node is that freezes")


def begun(nodes: JudgedCluster, frozen: int, living: int, protocol: Protocol, *, committed: bool) -> Held:
    """A transaction with a record in each of its partitions, whose coordinator is not on the node that will be frozen."""
    broker, address = nodes.broker, nodes.address(frozen)
    client = TransactionalClient(broker, protocol, name_elsewhere(broker, "txn", TRANSACTION, address))
    held, free = nodes.topic(frozen), nodes.topic(living)
    client.write(held, b"held")
    client.write(free, b"free")
    return Held(client, client.identity, committed, held, free, name_elsewhere(broker, "group", GROUP, address))


def end_of(broker: Broker, case: Held) -> None:
    """End the transaction while the node is frozen; expect success, and a marker in the other partition."""
    expect_agreed("EndTxn", case.client.end(committed=case.committed).error_code)
    broker.eventually(
        lambda: broker.end_offset(case.free, isolation=READ_COMMITTED) > 1,
        f"{case.free.name} has a marker",
        within_s=STATE_WITHIN_S,
    )


def expect_completed(broker: Broker, case: Held) -> None:
    """After the node resumes, expect that the transaction is completed in both partitions, and that a next one can begin."""
    case.client.await_state(COMPLETE_COMMIT if case.committed else COMPLETE_ABORT, within_s=STATE_WITHIN_S)
    for topic in (case.held, case.free):
        expect_ended(broker, topic, topic_value(case, topic), committed=case.committed)
    case.client.write(case.held, b"next")


def topic_value(case: Held, topic: Topic) -> bytes:
    """The value that the transaction wrote to a topic."""
    return b"held" if topic is case.held else b"free"


def in_each_outcome(broker: Broker, judge: Callable[[Held], None]) -> None:
    """Judge a commit and an abort in each protocol, all of them held up by one frozen node."""
    with cluster(broker) as nodes:
        living, frozen, _ = cast(nodes)
        cases = [
            begun(nodes, frozen, living, protocol, committed=committed)
            for protocol in served_protocols(broker)
            for committed in (True, False)
        ]
        with nodes.paused(frozen):
            for case in cases:
                with broker.case(case.reported):
                    end_of(broker, case)
                    judge(case)
        for case in cases:
            with broker.case(f"{case.reported}, completed"):
                expect_completed(broker, case)


@requirement(
    "TXN-10",
    notices="stuck: each transaction that begins right after a commit meets this; clients ask again on this code, else fail it",
    source="TransactionCoordinator.handleAddPartitionsToTransaction (pendingTransitionInProgress, PrepareCommit, PrepareAbort)",
    sentence="While a transaction is being completed, AddPartitionsToTxn, AddOffsetsToTxn and InitProducerId of its "
    "transactional id are CONCURRENT_TRANSACTIONS; afterwards they succeed.",
    accepted="CONCURRENT_TRANSACTIONS(51) for partitions of the transaction and for new ones",
    nodes=3, hooks=FREEZES, configs=PATIENT, apis=TRANSACTIONS, deadline_s=DEADLINE_S,
)  # fmt: skip
def nothing_is_added(broker: Broker) -> None:
    def judge(case: Held) -> None:
        client = case.client
        for topic in (case.free, case.held):
            error = client.add(topic, patient=False)
            broker.expect_error(error, CONCURRENT, what="AddPartitionsToTxn")
        broker.expect_error(client.add_offsets(case.group, patient=False), CONCURRENT, what="AddOffsetsToTxn")
        broker.expect_error(client.init(patient=False).error_code, CONCURRENT, what="InitProducerId")

    in_each_outcome(broker, judge)


@requirement(
    "TXN-13",
    notices="stuck: Java and librdkafka ask again on this code; on a final one they end, and the outcome is not known",
    source="TransactionCoordinator.endTransaction (pendingTransitionInProgress)",
    sentence="EndTxn while the transaction is being completed is CONCURRENT_TRANSACTIONS, with the same result and with the "
    "other one, in the epoch that ended it and in the next.",
    accepted="CONCURRENT_TRANSACTIONS(51); the outcome is the one that was agreed to",
    tolerated="INVALID_TXN_STATE(48) for the other result",
    draft="the other result was thought to be INVALID_TXN_STATE: Kafka 4.3.1 looks for the pending transition first",
    nodes=3, hooks=FREEZES, configs=PATIENT, apis=TRANSACTIONS, deadline_s=DEADLINE_S,
)  # fmt: skip
def no_second_end(broker: Broker) -> None:
    def judge(case: Held) -> None:
        for identity in sorted({case.began, case.client.identity}):
            reported = f"epoch {identity[1]}"
            same = case.client.end(committed=case.committed, identity=identity, patient=False)
            broker.expect_error(same.error_code, CONCURRENT, what=f"{reported}, the same result")
            other = case.client.end(committed=not case.committed, identity=identity, patient=False)
            broker.expect_error(
                other.error_code, CONCURRENT, tolerated={ErrorCode.INVALID_TXN_STATE}, what=f"{reported}, the other"
            )

    in_each_outcome(broker, judge)


@requirement(
    "TXN-17",
    notices="client: producers of before KIP-890 abort the transaction on a code that they do not know",
    source="KIP-890; ReplicaManager.handleProduceAppend; AddPartitionsToTxnManager",
    sentence="A transactional write that needs the coordinator while it completes the transaction before is answered with an "
    "error after which the client tries again: in old versions one that they know.",
    accepted="NOT_ENOUGH_REPLICAS(19) for Produce below v12, CONCURRENT_TRANSACTIONS(51) for v12 and for TxnOffsetCommit; "
    "nothing appended",
    since="4.0",
    nodes=3, hooks=FREEZES, configs=PATIENT, apis=TRANSACTIONS, deadline_s=DEADLINE_S,
)  # fmt: skip
def writes_wait(broker: Broker) -> None:
    def judge(case: Held) -> None:
        client = case.client
        versions = {CLASSIC.produce - 2, CLASSIC.produce, client.protocol.produce}
        for version in sorted(versions):
            wanted = CONCURRENT if version >= IMPLICIT.produce else ErrorCode.NOT_ENOUGH_REPLICAS
            sequence = 1 if client.protocol.adds else 0
            result = client.produce(case.free, b"x", version=version, sequence=sequence, patient=False)
            broker.expect_error(result.error_code, wanted, what=f"Produce v{version}")
        for error in client.commit_offsets(case.group, {(case.free, 0): 1}, patient=False).values():
            broker.expect_error(error, CONCURRENT, what=f"TxnOffsetCommit v{client.protocol.commit_offsets}")
        expect_ended(broker, case.free, b"free", committed=case.committed)

    in_each_outcome(broker, judge)


@requirement(
    "TXN-46",
    notices="data: what was agreed to is changed, or forgotten, while some partitions show it already",
    source="TransactionState.validPreviousStates; TransactionMetadata.prepareAbortOrCommit; KIP-664",
    sentence="Between an agreed end and its completion the transaction is in PrepareCommit or PrepareAbort, whatever is asked of "
    "it, with the partitions that have no marker yet; the others are visible already.",
    accepted="the state and the partition that is held up, before and after requests of every kind; then CompleteCommit or "
    "CompleteAbort without partitions, and the next transaction",
    draft="PrepareEpochFence, which the draft's state graph has, is never seen: a fenced transaction is reported as PrepareAbort",
    nodes=3, hooks=FREEZES, configs=PATIENT, apis=TRANSACTIONS, deadline_s=DEADLINE_S,
)  # fmt: skip
def between_end_and_completion(broker: Broker) -> None:
    def judge(case: Held) -> None:
        client = case.client
        prepared = PREPARE_COMMIT if case.committed else PREPARE_ABORT

        def expect_prepared(what: str) -> None:
            found = client.described()
            reported = found.transaction_state, [(one.topic, list(one.partitions)) for one in found.topics]
            broker.expect_equal(f"{what}: what is reported", reported, (prepared, [(case.held.name, [0])]))

        broker.eventually(
            lambda: [one.topic for one in client.described().topics] == [case.held.name], "one partition is left"
        )
        expect_prepared("at first")
        client.add(case.free, patient=False)
        expect_prepared("after AddPartitionsToTxn")
        client.init(patient=False)
        expect_prepared("after InitProducerId")
        client.end(committed=not case.committed, patient=False)
        expect_prepared("after EndTxn")

    in_each_outcome(broker, judge)


@requirement(
    "TXN-47",
    notices="stuck: Java, librdkafka and franz-go look for the new coordinator on this code, and else end",
    source="KIP-98; KafkaApis; TransactionCoordinator (NOT_COORDINATOR)",
    sentence="A broker that is not the transactional id's coordinator answers NOT_COORDINATOR to all requests about it.",
    accepted="NOT_COORDINATOR(16) for InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn and DescribeTransactions; the "
    "next epoch from the coordinator afterwards",
    requires=("BAS-14",), nodes=3, configs=PATIENT, apis=TRANSACTIONS, deadline_s=DEADLINE_S,
)  # fmt: skip
def another_broker(broker: Broker) -> None:
    with cluster(broker) as nodes:
        topic = nodes.topic(nodes.cast()[0])
        client = TransactionalClient(broker, CLASSIC)
        coordinator = broker.coordinator(client.name, TRANSACTION)
        for address in nodes.addresses.values():
            if address == coordinator:
                continue
            lost = TransactionalClient(broker, CLASSIC, client.name, initialised=False)
            lost.become(*client.identity)
            lost.asked = address
            reported = f"at {address[0]}:{address[1]}"
            wrong = ErrorCode.NOT_COORDINATOR
            broker.expect_error(lost.init().error_code, wrong, what=f"InitProducerId {reported}")
            broker.expect_error(lost.add(topic), wrong, what=f"AddPartitionsToTxn {reported}")
            broker.expect_error(lost.add_offsets("group"), wrong, what=f"AddOffsetsToTxn {reported}")
            broker.expect_error(lost.end(committed=True).error_code, wrong, what=f"EndTxn {reported}")
            if lost.is_described:
                broker.expect_error(lost.described().error_code, wrong, what=f"DescribeTransactions {reported}")
        if client.is_described:
            broker.expect_equal(
                "producer epoch and state", (client.described().producer_epoch, client.state()), (0, "Empty")
            )
        before, after = client.identity, client.init()
        broker.expect_error(after.error_code, ErrorCode.NONE, what="InitProducerId of the coordinator")
        identity = after.producer_id, after.producer_epoch
        broker.expect_equal("producer id and epoch after InitProducerId", identity, (before[0], before[1] + 1))
