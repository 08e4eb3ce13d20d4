"""TXN: time in transactions: their timeouts, the effect on late producers, and the expiration of transactional ids."""

import time
from collections.abc import Callable
from typing import TypeVar

from conformance.broker import Broker
from conformance.read_committed import expect_committed
from conformance.requirement import requirement
from conformance.requirements.transactional_ids import (
    FENCED,
    KNOWN_AGAIN_SINCE,
    OWN_ERROR,
    expect_fenced,
    expect_identity,
    expect_refused,
    fenced_in,
)
from conformance.steps import about, built_on
from conformance.transaction_client import (
    ADD_PARTITIONS_VERSION,
    CLASSIC,
    COMPLETE_ABORT,
    IMPLICIT,
    TRANSACTIONS,
    Protocol,
    TransactionalClient,
    at_most,
    expect_agreed,
    expect_switched_on,
    in_each_protocol,
)
from conformance.wire import Failed
from linearizability.client.requests import READ_COMMITTED, TRANSACTION, Topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from reference.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from reference.protocol.messages.end_txn import EndTxnRequest
from reference.protocol.messages.init_producer_id import InitProducerIdRequest

MAX_TIMEOUT_MS = 900_000
"""The default of transaction.max.timeout.ms."""
EXPIRATION_MS = 1500
EXPIRY = {
    "transactional.id.expiration.ms": str(EXPIRATION_MS),
    "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
}
ABORTS_SOON = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
"""A setting with which the coordinator looks for transactions that time out five times a second."""
SHORT_MS = (500, 2_000, 8_000)
"""Timeouts of a transaction that must time out; the longer ones are for machines on which the first write is slower."""
ATTEMPTS = 4
T = TypeVar("T")


def in_time(broker: Broker, begin: Callable[[int], T], *bounds_ms: int) -> T:
    """The result of `begin` with a time limit. A failure after more than the limit is tried again with the next one.

    Skips after the last limit.
    """
    for bound_ms in bounds_ms:
        began = time.monotonic()
        try:
            return begin(bound_ms)
        except Failed:
            if (time.monotonic() - began) * 1000 < bound_ms:
                raise
    broker.skip(f"this machine was too slow to write within {bounds_ms[-1]} ms")


@requirement(
    "TXN-04",
    notices="operator: a producer that dies with a timeout of a year holds read_committed consumers up for a year",
    source="TransactionStateManager.validateTransactionTimeoutMs; transaction.max.timeout.ms",
    sentence="A transaction timeout of 0 or less, or above transaction.max.timeout.ms, is refused with "
    "INVALID_TRANSACTION_TIMEOUT, and the transactional id stays unknown.",
    accepted="INVALID_TRANSACTION_TIMEOUT(50) without a producer id for 0, -1, the least and the greatest number and 900001; "
    "NONE(0) for 900000; NONE(0) or COORDINATOR_NOT_AVAILABLE(15) for 1: so long the followers have to replicate it",
    draft="NONE(0) for 1 and 900000",
    configs={"transaction.max.timeout.ms": str(MAX_TIMEOUT_MS)},
    apis=TRANSACTIONS,
)
def the_timeouts_bounds(broker: Broker) -> None:
    for timeout_ms in (0, -1, -(2**31), MAX_TIMEOUT_MS + 1, 2**31 - 1):
        with broker.case(f"{timeout_ms} ms"):
            client = TransactionalClient(broker, CLASSIC, initialised=False)
            answer = client.init(timeout_ms=timeout_ms)
            expect_refused(broker, "InitProducerId", answer, ErrorCode.INVALID_TRANSACTION_TIMEOUT)
            if client.is_described:
                found = client.described()
                broker.expect_error(found.error_code, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, what="DescribeTransactions")
            else:
                client.become(*broker.producer_id())
                ended = client.end(committed=True, version=at_most(broker, EndTxnRequest, CLASSIC.end))
                broker.expect_error(ended.error_code, ErrorCode.INVALID_PRODUCER_ID_MAPPING, what="EndTxn")
    with broker.case(f"{MAX_TIMEOUT_MS} ms"):
        client = TransactionalClient(broker, CLASSIC, timeout_ms=MAX_TIMEOUT_MS)
        if client.is_described:
            expect_described_timeout(client, MAX_TIMEOUT_MS)
    with broker.case("1 ms"):
        client.asked = broker.coordinator(client.name, TRANSACTION)
        answer = client.init(timeout_ms=1)
        broker.expect_error(
            answer.error_code, ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE, what="InitProducerId"
        )
        if answer.error_code == ErrorCode.NONE and client.is_described:
            expect_described_timeout(client, 1)


@built_on("TXN-26")
def expect_described_timeout(client: TransactionalClient, timeout_ms: int) -> None:
    """Expect that DescribeTransactions reports this timeout."""
    client.broker.expect_equal("the timeout", client.described().transaction_timeout_ms, timeout_ms)


@requirement(
    "TXN-20",
    notices="stuck: read_committed consumers wait for ever behind a producer that died",
    source="TransactionCoordinator.abortTimedOutTransactions; KAFKA-6119 (the higher epoch)",
    sentence="A transaction that is open for longer than its timeout is aborted, and its producer fenced by a higher epoch.",
    accepted="CompleteAbort with a higher epoch; INVALID_PRODUCER_EPOCH(47) for its Produce and TxnOffsetCommit, "
    "PRODUCER_FENCED(90) for AddPartitionsToTxn, AddOffsetsToTxn and EndTxn v4; EndTxn v5, which may be the retry of an abort, "
    "is INVALID_TXN_STATE(48) for a commit and gives the new epoch for an abort",
    tolerated="the other of the two codes, and INVALID_TXN_STATE(48), as in TXN-02: refused all the same",
    draft="47 or 90 for the next write; an abort in v5 is answered like one that was done",
    since="1.0",
    configs=ABORTS_SOON,
    apis=TRANSACTIONS,
    deadline_s=60.0,
    requires=("TXN-28",),
)
def open_for_too_long(broker: Broker) -> None:
    def judge(protocol: Protocol) -> None:
        client, topic = left_open(broker, protocol)
        old, group = client.identity, broker.unused_name("group")
        client.await_state(COMPLETE_ABORT)
        new_epoch = old[1] + 1
        if client.is_described:
            found = client.described()
            new_epoch = found.producer_epoch
            broker.expect_equal("the producer id", found.producer_id, old[0])
            broker.expect(new_epoch > old[1], f"epoch {new_epoch} comes after {old[1]}")
        for partition, sequence in ((0, 1), (1, 0)):
            result = client.produce(topic, b"late", partition=partition, sequence=sequence)
            expect_fenced(broker, result.error_code, ErrorCode.INVALID_PRODUCER_EPOCH, f"Produce to {partition}")
        for error in client.commit_offsets(group, {(topic, 0): 1}).values():
            expect_fenced(broker, error, ErrorCode.INVALID_PRODUCER_EPOCH, "TxnOffsetCommit")
        version = at_most(broker, AddPartitionsToTxnRequest, ADD_PARTITIONS_VERSION)
        expect_fenced(broker, client.add(topic, version=version), fenced_in(version), "AddPartitionsToTxn")
        version = at_most(broker, AddOffsetsToTxnRequest, protocol.add_offsets)
        expect_fenced(broker, client.add_offsets(group, version=version), fenced_in(version), "AddOffsetsToTxn")
        version = at_most(broker, EndTxnRequest, CLASSIC.end)
        for committed in (True, False):
            ended = client.end(committed=committed, version=version)
            expect_fenced(broker, ended.error_code, fenced_in(version), f"EndTxn, committed={committed}")
        if protocol is IMPLICIT:
            ended = client.end(committed=True)
            expect_fenced(broker, ended.error_code, ErrorCode.INVALID_TXN_STATE, "EndTxn v5 to commit")
            answer = client.end(committed=False)
            expect_identity(broker, "EndTxn v5 to abort", answer, (old[0], new_epoch))
        broker.expect_equal("the last stable offset", broker.end_offset(topic, isolation=READ_COMMITTED), 2)
        broker.expect_equal("the end of the other partition", broker.end_offset(topic, 1), 0)

    in_each_protocol(broker, judge)


def left_open(broker: Broker, protocol: Protocol) -> tuple[TransactionalClient, Topic]:
    """A transaction with a short timeout and one record, in the first of a topic's two partitions."""

    def begin(timeout_ms: int) -> tuple[TransactionalClient, Topic]:
        topic = broker.topic(2)
        client = TransactionalClient(broker, protocol, timeout_ms=timeout_ms)
        client.write(topic, b"slow")
        return client, topic

    return in_time(broker, begin, *SHORT_MS)


@requirement(
    "TXN-23",
    notices="client: Java's producer must be made again after each timeout, as before Kafka 2.7",
    source="KIP-588, KIP-890; TransactionMetadata.prepareIncrementProducerEpoch",
    sentence="A producer whose transaction timed out goes on with a new epoch when it says who it is, unless another one has "
    "taken over.",
    accepted="NONE(0) with the same producer id and a higher epoch, and a commit that counts alone; PRODUCER_FENCED(90) after "
    "another one's InitProducerId",
    tolerated="INVALID_PRODUCER_EPOCH(47): clients take both for being fenced; another producer id, which clients take, too",
    since=KNOWN_AGAIN_SINCE,
    configs=ABORTS_SOON,
    apis=TRANSACTIONS | {"InitProducerId": OWN_ERROR},
    deadline_s=60.0,
)
def going_on_after_a_timeout(broker: Broker) -> None:
    expect_switched_on(broker)

    def judge(protocol: Protocol) -> None:
        client, topic = left_open(broker, protocol)
        old = client.identity
        client.await_state(COMPLETE_ABORT)
        answer = client.init(*old, timeout_ms=60_000)
        expect_agreed("InitProducerId", answer.error_code)
        if client.id == old[0]:
            broker.expect(client.epoch > old[1], f"{client.identity} comes after {old}")
        else:
            broker.tolerate(f"{client.identity} comes after {old}: another producer id")
        client.write(topic, b"again")
        client.finish(committed=True)
        expect_committed(broker, "the committed records", topic, b"again")
        TransactionalClient(broker, protocol, client.name)
        answer = client.init(*client.identity)
        expect_refused(broker, "after another one", answer, ErrorCode.PRODUCER_FENCED, tolerated=FENCED)

    in_each_protocol(broker, judge)


@requirement(
    "TXN-26",
    notices="stuck: Java sends 2147483647 without a transactional id, and no idempotent producer could start",
    source="TransactionMetadata.prepareIncrementProducerEpoch; KafkaApis.handleInitProducerIdRequest",
    sentence="Each InitProducerId sets the transaction timeout again; without a transactional id the timeout is not looked at.",
    accepted="DescribeTransactions reports the last timeout that was taken, not one that was refused; NONE(0) for timeouts of 0, "
    "-1 and 2147483647 without a transactional id",
    apis=TRANSACTIONS,
)
def the_last_timeout_counts(broker: Broker) -> None:
    client = TransactionalClient(broker, CLASSIC)
    for timeout_ms, reported_ms in ((30_000, 30_000), (0, 30_000), (5_000, 5_000), (45_000, 45_000)):
        answer = client.init(timeout_ms=timeout_ms)
        if timeout_ms != reported_ms and answer.error_code == ErrorCode.NONE:
            continue  # TXN-04 judges that it is refused
        with about("TXN-22"):
            broker.expect_equal(f"after {timeout_ms} ms", client.described().transaction_timeout_ms, reported_ms)
    for timeout_ms in (0, -1, 2**31 - 1):
        answer = broker.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=timeout_ms))
        broker.expect_error(answer.error_code, ErrorCode.NONE, what=f"no transactional id, {timeout_ms} ms")


def is_forgotten(client: TransactionalClient) -> bool:
    """Whether the coordinator has forgotten a transactional id that has no open transaction; the check changes nothing."""
    if client.is_described:
        return client.described().error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    ended = client.end(committed=True, version=at_most(client.broker, EndTxnRequest, CLASSIC.end))
    return ended.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


@requirement(
    "TXN-27",
    notices="operator: the transactional ids of each run of a job stay in memory and in the log for ever",
    source="TransactionStateManager.removeExpiredTransactionalIds; transactional.id.expiration.ms",
    sentence="A transactional id without an open transaction is forgotten after transactional.id.expiration.ms; one with an "
    "open transaction is not.",
    accepted="TRANSACTIONAL_ID_NOT_FOUND(105) and INVALID_PRODUCER_ID_MAPPING(49) afterwards, and a new producer id with epoch 0 "
    "from InitProducerId; the open transaction goes on and is committed",
    configs=EXPIRY,
    alone=True,
    apis=TRANSACTIONS,
    deadline_s=60.0,
)
def forgotten(broker: Broker) -> None:
    topic = broker.topic(2)

    def begin(partition: int) -> TransactionalClient:
        """A client that has written before its transactional id was forgotten."""
        client = TransactionalClient(broker, CLASSIC)
        client.write(topic, b"x", partition=partition)
        return client

    busy, done = (
        in_time(broker, lambda _, partition=partition: begin(partition), *[EXPIRATION_MS] * ATTEMPTS)
        for partition in range(2)
    )
    unused = TransactionalClient(broker, CLASSIC)
    expect_agreed("EndTxn", done.end(committed=True).error_code)
    for client in (unused, done):
        broker.eventually(lambda client=client: is_forgotten(client), f"{client.name} is forgotten")
        broker.expect_error(client.add(topic), ErrorCode.INVALID_PRODUCER_ID_MAPPING, what="AddPartitionsToTxn")
        old = client.id
        expect_agreed("InitProducerId", client.init().error_code)
        broker.expect(client.id != old and client.epoch == 0, f"{client.identity} comes after producer id {old}")
    expect_agreed("EndTxn", busy.end(committed=True).error_code)
    broker.eventually(lambda: broker.end_offset(topic, isolation=READ_COMMITTED) == 2, "the open one is committed")
