"""TXN: transactional ids. Who a transactional producer is, and how the one after it takes over."""

from typing import Any

from conformance.batches import values
from conformance.broker import READ_COMMITTED, Broker
from conformance.requirement import MUST, SHOULD, requirement
from conformance.transaction_client import (
    CLASSIC,
    COMPLETE_ABORT,
    EMPTY,
    IMPLICIT,
    NOBODY,
    TRANSACTIONS,
    Protocol,
    TransactionalClient,
    expect_agreed,
    in_each_protocol,
    raise_epoch,
)  # fmt: skip
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from reference.protocol.messages.init_producer_id import InitProducerIdRequest

LAST_EPOCH = 32_766
"""The last epoch that a client is given; the one above is kept for the coordinator's own fencing."""
MAX_TIMEOUT_MS = 900_000
"""transaction.max.timeout.ms by default."""
WITH_IDENTITY, OWN_ERROR = 3, 4
"""The versions of InitProducerId from which on a producer says who it is, and is told PRODUCER_FENCED."""
KNOWN_AGAIN_SINCE = "4.0"
"""From this Kafka on a producer whose epoch the coordinator raised is known by the one that it has (KIP-890)."""
EXPIRATION_MS = 1500
EXPIRY = {
    "transactional.id.expiration.ms": str(EXPIRATION_MS),
    "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
}
ABORTS_SOON = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
"""Transactions that are open for too long are looked for five times a second."""
SHORT_MS = 500
"""The transaction timeout of who is to be too slow."""


def expect_identity(broker: Broker, what: str, answer: Any, identity: tuple[int, int]) -> None:
    """The answer agrees, and gives this producer id and epoch."""
    broker.expect_error(answer.error_code, ErrorCode.NONE, what=what)
    broker.expect_equal(f"{what}: producer id and epoch", (answer.producer_id, answer.producer_epoch), identity)


def expect_refused(broker: Broker, what: str, answer: Any, *accepted: ErrorCode) -> None:
    """The answer refuses, and gives no producer id."""
    broker.expect_error(answer.error_code, *accepted, what=what)
    broker.expect_equal(f"{what}: the producer id", answer.producer_id, NOBODY)


@requirement(
    "TXN-01",
    level=MUST,
    source="KIP-98; TransactionCoordinator.handleInitProducerId",
    sentence="InitProducerId with a transactional id that nobody used gives a fresh producer id with epoch 0, and opens no "
    "transaction.",
    accepted="in every version NONE(0), a producer id that was not given before, epoch 0, state Empty",
    apis=TRANSACTIONS,
)
def a_new_transactional_id(broker: Broker) -> None:
    given: list[int] = []
    lowest, highest = broker.versions_of(InitProducerIdRequest)
    for version in range(lowest, highest + 1):
        client = TransactionalClient(broker, CLASSIC, initialised=False)
        answer = client.init(version=version)
        broker.expect(answer.producer_id >= 0 and answer.producer_id not in given, f"id {answer.producer_id}")
        expect_identity(broker, f"v{version}", answer, (answer.producer_id, 0))
        found = client.described()
        broker.expect_error(found.error_code, ErrorCode.NONE, what="DescribeTransactions")
        seen = found.transaction_state, found.producer_id, found.producer_epoch, list(found.topics)
        broker.expect_equal("what is described", seen, (EMPTY, answer.producer_id, 0, []))
        given.append(answer.producer_id)


@requirement(
    "TXN-02",
    level=MUST,
    source="KIP-98; TransactionMetadata.prepareIncrementProducerEpoch",
    sentence="InitProducerId with a transactional id that is in use gives its producer id with the next epoch; whoever has the "
    "epoch before can do nothing more.",
    accepted="the same producer id, epoch + 1; PRODUCER_FENCED(90) for the old one's AddPartitionsToTxn, AddOffsetsToTxn and "
    "EndTxn (INVALID_PRODUCER_EPOCH(47) below v2), INVALID_PRODUCER_EPOCH(47) for its Produce",
    apis=TRANSACTIONS,
)
def the_next_epoch(broker: Broker) -> None:
    topic, group = broker.topic(), broker.unused_name("group")

    def judge(protocol: Protocol) -> None:
        old = TransactionalClient(broker, protocol)
        new = TransactionalClient(broker, protocol, old.name)
        broker.expect_equal("who comes after", new.identity, (old.id, old.epoch + 1))
        for version in (0, 1, 2, 3):
            fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
            broker.expect_error(old.add(topic, version=version), fenced, what=f"AddPartitionsToTxn v{version}")
            broker.expect_error(old.add_offsets(group, version=version), fenced, what=f"AddOffsetsToTxn v{version}")
            for committed in (True, False):
                ended = old.end(committed=committed, version=version)
                broker.expect_error(ended.error_code, fenced, what=f"EndTxn v{version}, committed={committed}")
        ended = old.end(committed=True)
        broker.expect_error(ended.error_code, ErrorCode.PRODUCER_FENCED, what=f"EndTxn v{protocol.end}")
        result = old.produce(topic, b"late")
        broker.expect_error(result.error_code, ErrorCode.INVALID_PRODUCER_EPOCH, what="Produce")
        broker.expect_equal("the log end offset", broker.end_offset(topic), 0)
        broker.expect_equal("the state", new.state(), EMPTY)

    in_each_protocol(broker, judge)


@requirement(
    "TXN-03",
    level=MUST,
    source="TransactionCoordinator.handleInitProducerId",
    sentence="InitProducerId with an empty transactional id is refused with INVALID_REQUEST.",
    accepted="INVALID_REQUEST(42) without a producer id, in every version; a null one is a producer without transactions",
    apis=TRANSACTIONS,
)
def an_empty_transactional_id(broker: Broker) -> None:
    lowest, highest = broker.versions_of(InitProducerIdRequest)
    for version in range(lowest, highest + 1):
        answer = TransactionalClient(broker, CLASSIC, "", initialised=False).init(version=version)
        expect_refused(broker, f"v{version}", answer, ErrorCode.INVALID_REQUEST)
    broker.expect(broker.producer_id()[0] >= 0, "a null transactional id gives a producer id")


@requirement(
    "TXN-04",
    level=MUST,
    source="TransactionStateManager.validateTransactionTimeoutMs; transaction.max.timeout.ms",
    sentence="A transaction timeout of 0 or less, or above transaction.max.timeout.ms, is refused with "
    "INVALID_TRANSACTION_TIMEOUT, and the transactional id stays unknown.",
    accepted="INVALID_TRANSACTION_TIMEOUT(50) without a producer id for 0, -1, the least and the greatest number and 900001; "
    "NONE(0) for 1 and 900000",
    configs={"transaction.max.timeout.ms": str(MAX_TIMEOUT_MS)},
    apis=TRANSACTIONS,
)
def the_timeouts_bounds(broker: Broker) -> None:
    for timeout_ms in (0, -1, -(2**31), MAX_TIMEOUT_MS + 1, 2**31 - 1):
        with broker.case(f"{timeout_ms} ms"):
            client = TransactionalClient(broker, CLASSIC, initialised=False)
            answer = client.init(timeout_ms=timeout_ms)
            expect_refused(broker, "InitProducerId", answer, ErrorCode.INVALID_TRANSACTION_TIMEOUT)
            found = client.described()
            broker.expect_error(found.error_code, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, what="DescribeTransactions")
    for timeout_ms in (1, MAX_TIMEOUT_MS):
        with broker.case(f"{timeout_ms} ms"):
            client = TransactionalClient(broker, CLASSIC, timeout_ms=timeout_ms)
            broker.expect_equal("the timeout", client.described().transaction_timeout_ms, timeout_ms)


@requirement(
    "TXN-05",
    level=MUST,
    source="TransactionCoordinator.handleInitProducerId (fenceAndInitialize); KIP-360",
    sentence="InitProducerId while a transaction of the transactional id is open is CONCURRENT_TRANSACTIONS and aborts that "
    "transaction; asked again it gives a higher epoch.",
    accepted="CONCURRENT_TRANSACTIONS(51), then CompleteAbort, then NONE(0) with the same producer id and a higher epoch; the "
    "records never count; since Kafka 4.0 the same for a producer that says who it is, which was fenced for good before",
    tolerated="NONE(0) at once, with a higher epoch",
    apis=TRANSACTIONS | {"InitProducerId": WITH_IDENTITY},
)
def taking_over(broker: Broker) -> None:
    def judge(protocol: Protocol, *, known: bool) -> None:
        topic = broker.topic()
        old = TransactionalClient(broker, protocol)
        old.write(topic, b"open")
        new = TransactionalClient(broker, protocol, old.name, initialised=False)
        who = old.identity if known else (NOBODY, NOBODY)
        first = new.init(*who, patient=False)
        broker.expect_error(
            first.error_code, ErrorCode.CONCURRENT_TRANSACTIONS, tolerated={ErrorCode.NONE}, what="the first answer"
        )
        if first.error_code:
            new.await_state(COMPLETE_ABORT)
            broker.saw("the transaction is aborted")
            expect_agreed("InitProducerId", new.init(*who).error_code)
        broker.expect_equal("the producer id", new.id, old.id)
        broker.expect(new.epoch > old.epoch, f"epoch {new.epoch} comes after {old.epoch}")
        result = old.produce(topic, b"late")
        broker.expect_error(result.error_code, ErrorCode.INVALID_PRODUCER_EPOCH, what="the old one's Produce")
        broker.eventually(
            lambda: broker.end_offset(topic, isolation=READ_COMMITTED) == broker.end_offset(topic) == 2,
            "the record and its marker are stable",
        )
        aborted = broker.fetch(topic, 0, isolation=READ_COMMITTED).aborted_transactions or []
        listed = [(one.producer_id, one.first_offset) for one in aborted]
        broker.expect_equal("the aborted transactions", listed, [(old.id, 0)])
        new.write(topic, b"next")
        new.finish(committed=True)
        broker.expect_equal("the records in the log", values(broker.log(topic)), [b"open", b"next"])

    in_each_protocol(broker, lambda protocol: judge(protocol, known=False), "without an identity")
    if broker.is_kafka(KNOWN_AGAIN_SINCE):
        in_each_protocol(broker, lambda protocol: judge(protocol, known=True), "with an identity")


@requirement(
    "TXN-06",
    level=MUST,
    source="KIP-360; TransactionMetadata.prepareIncrementProducerEpoch",
    sentence="InitProducerId of a producer that says who it is: the current epoch gives the next one, the epoch before gives "
    "the same answer again, anybody else is fenced.",
    accepted="NONE(0) with epoch + 1; NONE(0) with the same epoch; PRODUCER_FENCED(90) for two epochs back, a future epoch and "
    "another producer id (INVALID_PRODUCER_EPOCH(47) in v3)",
    since="2.5",
    apis=TRANSACTIONS | {"InitProducerId": WITH_IDENTITY},
)
def saying_who_one_is(broker: Broker) -> None:
    for version in range(WITH_IDENTITY, broker.version_for(InitProducerIdRequest) + 1):
        with broker.case(f"v{version}"):
            client = TransactionalClient(broker, CLASSIC)
            for _ in range(2):
                id, epoch = client.identity
                expect_identity(broker, "the current epoch", client.init(id, epoch, version=version), (id, epoch + 1))
            for _ in range(2):
                expect_identity(broker, "the epoch before", client.init(id, epoch, version=version), (id, epoch + 1))
            fenced = ErrorCode.PRODUCER_FENCED if version >= OWN_ERROR else ErrorCode.INVALID_PRODUCER_EPOCH
            for what, stranger in (
                ("two epochs back", (id, epoch - 1)),
                ("a future epoch", (id, epoch + 2)),
                ("another producer id", (id + 5000, epoch + 1)),
            ):
                expect_refused(broker, what, client.init(*stranger, version=version), fenced)
            found = client.described()
            broker.expect_equal("who it is", (found.producer_id, found.producer_epoch), (id, epoch + 1))


@requirement(
    "TXN-15",
    level=MUST,
    source="TransactionMetadata.isEpochExhausted; KIP-360",
    sentence="After epoch 32766 InitProducerId gives a new producer id with epoch 0; whoever had the old id can do nothing "
    "more.",
    accepted="32766, then another producer id with epoch 0; asked again with the old identity the same; the old id is refused",
    apis=TRANSACTIONS | {"InitProducerId": WITH_IDENTITY},
    deadline_s=300.0,
)
def exhausted_epochs(broker: Broker) -> None:
    topic = broker.topic()
    client = TransactionalClient(broker, CLASSIC)
    raise_epoch(client, LAST_EPOCH)
    old = client.identity
    answer = client.init(*old)
    broker.expect(answer.producer_id not in (old[0], NOBODY), f"{answer.producer_id} comes after {old}")
    expect_identity(broker, "after the last epoch", answer, (answer.producer_id, 0))
    expect_identity(broker, "asked again with the old identity", client.init(*old), (answer.producer_id, 0))
    error = client.add(topic, identity=old)
    broker.expect_error(error, ErrorCode.INVALID_PRODUCER_ID_MAPPING, what="AddPartitionsToTxn of the old id")
    client.write(topic, b"new")
    client.finish(committed=True)
    broker.expect_equal("the records", values(broker.log(topic, isolation=READ_COMMITTED)), [b"new"])


@requirement(
    "TXN-20",
    level=MUST,
    source="TransactionCoordinator.abortTimedOutTransactions",
    sentence="A transaction that is open for longer than its timeout is aborted, and its producer fenced by a higher epoch.",
    accepted="CompleteAbort with a higher epoch; INVALID_PRODUCER_EPOCH(47) for its Produce and TxnOffsetCommit, "
    "PRODUCER_FENCED(90) for AddPartitionsToTxn, AddOffsetsToTxn and EndTxn v4; EndTxn v5, which may be the retry of an abort, "
    "is INVALID_TXN_STATE(48) for a commit and gives the new epoch for an abort",
    draft="47 or 90 for the next write; an abort in v5 is answered like one that was done",
    configs=ABORTS_SOON,
    apis=TRANSACTIONS,
    deadline_s=60.0,
)
def open_for_too_long(broker: Broker) -> None:
    def judge(protocol: Protocol) -> None:
        topic, group = broker.topic(2), broker.unused_name("group")
        client = TransactionalClient(broker, protocol, timeout_ms=SHORT_MS)
        old = client.identity
        client.write(topic, b"slow")
        client.await_state(COMPLETE_ABORT)
        found = client.described()
        broker.expect_equal("the producer id", found.producer_id, old[0])
        broker.expect(found.producer_epoch > old[1], f"epoch {found.producer_epoch} comes after {old[1]}")
        for partition, sequence in ((0, 1), (1, 0)):
            result = client.produce(topic, b"late", partition=partition, sequence=sequence)
            broker.expect_error(result.error_code, ErrorCode.INVALID_PRODUCER_EPOCH, what=f"Produce to {partition}")
        for error in client.commit_offsets(group, {(topic, 0): 1}).values():
            broker.expect_error(error, ErrorCode.INVALID_PRODUCER_EPOCH, what="TxnOffsetCommit")
        fenced = ErrorCode.PRODUCER_FENCED
        broker.expect_error(client.add(topic), fenced, what="AddPartitionsToTxn")
        broker.expect_error(client.add_offsets(group), fenced, what="AddOffsetsToTxn")
        for committed in (True, False):
            ended = client.end(committed=committed, version=CLASSIC.end)
            broker.expect_error(ended.error_code, fenced, what=f"EndTxn v4, committed={committed}")
        if protocol is IMPLICIT:
            ended = client.end(committed=True)
            broker.expect_error(ended.error_code, ErrorCode.INVALID_TXN_STATE, what="EndTxn v5 to commit")
            answer = client.end(committed=False)
            expect_identity(broker, "EndTxn v5 to abort", answer, (old[0], found.producer_epoch))
        broker.expect_equal("the stable end", broker.end_offset(topic, isolation=READ_COMMITTED), 2)
        broker.expect_equal("the end of the other partition", broker.end_offset(topic, 1), 0)

    in_each_protocol(broker, judge)


@requirement(
    "TXN-23",
    level=MUST,
    source="KIP-588, KIP-890; TransactionMetadata.prepareIncrementProducerEpoch",
    sentence="A producer whose transaction timed out goes on with a new epoch when it says who it is, unless another one has "
    "taken over.",
    accepted="NONE(0) with the same producer id and a higher epoch, and a commit that counts; PRODUCER_FENCED(90) after another "
    "one's InitProducerId",
    since=KNOWN_AGAIN_SINCE,
    configs=ABORTS_SOON,
    apis=TRANSACTIONS | {"InitProducerId": OWN_ERROR},
    deadline_s=60.0,
)
def going_on_after_a_timeout(broker: Broker) -> None:
    def judge(protocol: Protocol) -> None:
        topic = broker.topic()
        client = TransactionalClient(broker, protocol, timeout_ms=SHORT_MS)
        old = client.identity
        client.write(topic, b"slow")
        client.await_state(COMPLETE_ABORT)
        answer = client.init(*old, timeout_ms=60_000)
        expect_agreed("InitProducerId", answer.error_code)
        broker.expect(client.id == old[0] and client.epoch > old[1], f"{client.identity} comes after {old}")
        client.write(topic, b"again")
        client.finish(committed=True)
        found = broker.fetch(topic, 0, isolation=READ_COMMITTED)
        listed = [(one.producer_id, one.first_offset) for one in found.aborted_transactions or []]
        broker.expect_equal("the aborted transactions", listed, [(old[0], 0)])
        broker.expect_equal("the records in the log", values(found.records or b""), [b"slow", b"again"])
        TransactionalClient(broker, protocol, client.name)
        expect_refused(broker, "after another one", client.init(*client.identity), ErrorCode.PRODUCER_FENCED)

    in_each_protocol(broker, judge)


@requirement(
    "TXN-24",
    level=MUST,
    source="TransactionCoordinator.handleInitProducerId; TransactionLogKey schema",
    sentence="Any text but the empty one is a transactional id.",
    accepted="NONE(0) and the same text from DescribeTransactions: blanks, control characters, slashes, beyond ASCII, 32767 "
    "characters",
    apis=TRANSACTIONS,
)
def texts(broker: Broker) -> None:
    unique = broker.unused_name("txn")
    for what, name in (
        ("blanks", f"  {unique} "),
        ("slashes and dots", f"../{unique}\\x:*"),
        ("control characters", f"{unique}\n\t\x00\x7f"),
        ("beyond ASCII", f"tø-組-\U0001d11e-{unique}"),
        ("a topic's longest name and more", unique.ljust(250, "x")),
        ("a string's greatest length", unique.ljust(32_767, "x")),
    ):
        with broker.case(what):
            topic = broker.topic()
            client = TransactionalClient(broker, CLASSIC, name)
            broker.expect(client.described().transactional_id == name, "it is described by its name")
            again = TransactionalClient(broker, CLASSIC, name)
            broker.expect_equal("who comes after", again.identity, (client.id, client.epoch + 1))
            again.write(topic, b"x")
            again.finish(committed=True)
            broker.expect_equal("the stable end", broker.end_offset(topic, isolation=READ_COMMITTED), 2)


@requirement(
    "TXN-25",
    level=MUST,
    source="TransactionCoordinator.validateTransactionalId; KafkaApis",
    sentence="An empty transactional id is refused with INVALID_REQUEST by AddPartitionsToTxn, AddOffsetsToTxn, EndTxn and "
    "DescribeTransactions too.",
    accepted="INVALID_REQUEST(42)",
    apis=TRANSACTIONS | {"AddOffsetsToTxn": 0},
)
def empty_everywhere(broker: Broker) -> None:
    topic, group = broker.topic(), broker.unused_name("group")
    client = TransactionalClient(broker, CLASSIC, "", initialised=False)
    client.become(*broker.producer_id())
    invalid = ErrorCode.INVALID_REQUEST
    broker.expect_error(client.add(topic), invalid, what="AddPartitionsToTxn")
    for version in range(broker.version_for(AddOffsetsToTxnRequest) + 1):
        broker.expect_error(client.add_offsets(group, version=version), invalid, what=f"AddOffsetsToTxn v{version}")
    broker.expect_error(client.end(committed=True, version=CLASSIC.end).error_code, invalid, what="EndTxn")
    broker.expect_error(client.described().error_code, invalid, what="DescribeTransactions")


@requirement(
    "TXN-26",
    level=SHOULD,
    source="TransactionMetadata.prepareIncrementProducerEpoch; KafkaApis.handleInitProducerIdRequest",
    sentence="Each InitProducerId sets the transaction timeout anew; without a transactional id the timeout is not looked at.",
    accepted="DescribeTransactions tells the last timeout that was taken, not one that was refused; NONE(0) for timeouts of 0, "
    "-1 and 2147483647 without a transactional id",
    apis=TRANSACTIONS,
)
def the_last_timeout_counts(broker: Broker) -> None:
    client = TransactionalClient(broker, CLASSIC)
    for timeout_ms, told_ms in ((30_000, 30_000), (0, 30_000), (5_000, 5_000), (45_000, 45_000)):
        client.init(timeout_ms=timeout_ms)
        broker.expect_equal(f"after {timeout_ms} ms", client.described().transaction_timeout_ms, told_ms)
    for timeout_ms in (0, -1, 2**31 - 1):
        answer = broker.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=timeout_ms))
        broker.expect_error(answer.error_code, ErrorCode.NONE, what=f"no transactional id, {timeout_ms} ms")


@requirement(
    "TXN-27",
    level=MUST,
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
    topic = broker.topic()
    busy = TransactionalClient(broker, CLASSIC)
    busy.write(topic, b"open")
    unused, done = TransactionalClient(broker, CLASSIC), TransactionalClient(broker, CLASSIC)
    done.write(topic, b"done")
    expect_agreed("EndTxn", done.end(committed=True).error_code)
    for client in (unused, done):
        broker.eventually(
            lambda client=client: client.described().error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
            f"{client.name} is forgotten",
        )
        broker.expect_error(client.add(topic), ErrorCode.INVALID_PRODUCER_ID_MAPPING, what="AddPartitionsToTxn")
        old = client.id
        expect_agreed("InitProducerId", client.init().error_code)
        broker.expect(client.id != old and client.epoch == 0, f"{client.identity} comes after producer id {old}")
    busy.finish(committed=True)
    broker.expect_equal("the stable end", broker.end_offset(topic, isolation=READ_COMMITTED), 4)
