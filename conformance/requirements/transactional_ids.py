"""TXN: transactional ids: the identity of a transactional producer, and how its successor fences it."""

# Variables that a loop sets are read after it: these loops always run.
# pyright: reportPossiblyUnboundVariable=false

from collections.abc import Collection
from typing import Any

from conformance.answers import error_name, only
from conformance.batches import values
from conformance.broker import Broker
from conformance.requirement import requirement
from conformance.spent_epochs import raise_epoch
from conformance.steps import about, built_on
from conformance.transaction_client import (
    ADD_PARTITIONS_VERSION,
    CLASSIC,
    COMPLETE_ABORT,
    EMPTY,
    NO_ID,
    TRANSACTIONS,
    Protocol,
    TransactionalClient,
    at_most,
    expect_agreed,
    expect_verified,
    in_each_protocol,
    is_switched_off,
)
from linearizability.client.requests import READ_COMMITTED, TRANSACTION, Topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from reference.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from reference.protocol.messages.end_txn import EndTxnRequest
from reference.protocol.messages.fetch import FetchResponse
from reference.protocol.messages.init_producer_id import InitProducerIdRequest

LAST_EPOCH = 32_766
"""The last epoch that a client gets; the next one is reserved for fencing by the coordinator."""
WITH_IDENTITY, OWN_ERROR = 3, 4
"""The first versions of InitProducerId with the producer's id and epoch, and with the error PRODUCER_FENCED."""
RIVALS, ROUNDS = 10, 3
KNOWN_AGAIN_SINCE = "4.0"
"""The first release in which a producer whose epoch the coordinator raised may continue with its former epoch (KIP-890)."""

FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
"""Errors that clients take for being fenced."""
FENCED_SINCE = 2
"""The first version of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn in which a fenced producer receives PRODUCER_FENCED."""


def fenced_in(version: int) -> ErrorCode:
    """The error for a fenced producer in this version of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn."""
    return ErrorCode.PRODUCER_FENCED if version >= FENCED_SINCE else ErrorCode.INVALID_PRODUCER_EPOCH


def expect_identity(broker: Broker, what: str, answer: Any, identity: tuple[int, int]) -> None:
    """Expect success with this producer id and epoch."""
    broker.expect_error(answer.error_code, ErrorCode.NONE, what=what)
    broker.expect_equal(f"{what}: producer id and epoch", (answer.producer_id, answer.producer_epoch), identity)


def expect_refused(
    broker: Broker, what: str, answer: Any, accepted: ErrorCode, tolerated: Collection[ErrorCode] = ()
) -> None:
    """Expect this error, without a producer id."""
    broker.expect_error(answer.error_code, accepted, tolerated=tolerated, what=what)
    broker.expect_equal(f"{what}: the producer id", answer.producer_id, NO_ID)


@built_on("TXN-22")
def expect_described(client: TransactionalClient, identity: tuple[int, int]) -> None:
    """Expect that DescribeTransactions reports this producer id and epoch, if the target serves it."""
    if client.is_described:
        found = client.described()
        client.broker.expect_equal(
            "the producer id and epoch described", (found.producer_id, found.producer_epoch), identity
        )


@requirement(
    "TXN-01",
    notices="data: two producers with one id and epoch end each other's transactions",
    source="KIP-98; TransactionCoordinator.handleInitProducerId",
    sentence="InitProducerId with a transactional id that was not used gives a fresh producer id with epoch 0, and opens no "
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
        expect_agreed(f"InitProducerId v{version}", answer.error_code)
        broker.expect(
            answer.producer_id >= 0 and answer.producer_id not in given,
            f"the producer id is 0 or more, and new: {answer.producer_id}",
        )
        expect_identity(broker, f"v{version}", answer, (answer.producer_id, 0))
        if client.is_described:
            with about("TXN-22"):
                found = client.described()
                broker.expect_error(found.error_code, ErrorCode.NONE, what="DescribeTransactions")
                broker.expect_equal("state and topics", (found.transaction_state, list(found.topics)), (EMPTY, []))
        else:
            client.expect_empty()
        given.append(answer.producer_id)


REFUSED = FENCED | {ErrorCode.INVALID_TXN_STATE}
"""Errors that are fatal for the Java producer after any request."""


def offsets_added(broker: Broker, client: TransactionalClient, group: str, topic: Topic, version: int) -> int:
    """The error code of AddOffsetsToTxn; where that is NONE, of the TxnOffsetCommit after it.

    A producer that was replaced does no harm as long as its offsets are refused. TXN-51 judges the earlier answer.
    """
    code = client.add_offsets(group, version=version)
    if code == ErrorCode.NONE:
        code = only([*client.commit_offsets(group, {(topic, 0): 1}).values()], "partition")
        if code != ErrorCode.NONE:
            broker.tolerate(f"AddOffsetsToTxn v{version}: NONE(0), and {error_name(code)} for TxnOffsetCommit")
    return code


def expect_fenced(broker: Broker, seen: int, wanted: ErrorCode, what: str) -> None:
    """Expect the error of a fenced producer; other errors that are fatal for producers are tolerated."""
    broker.expect_error(seen, wanted, tolerated=REFUSED, what=what)


@requirement(
    "TXN-02",
    notices="data: a producer that was replaced writes on beside its successor, and its records count twice",
    source="KIP-98; TransactionMetadata.prepareIncrementProducerEpoch",
    sentence="InitProducerId with a transactional id that is in use gives its producer id with the next epoch; a producer "
    "that has the epoch before can do nothing more.",
    accepted="the same producer id, epoch + 1; PRODUCER_FENCED(90) for the old one's AddPartitionsToTxn, AddOffsetsToTxn and "
    "EndTxn (INVALID_PRODUCER_EPOCH(47) below v2), INVALID_PRODUCER_EPOCH(47) for its Produce",
    apis=TRANSACTIONS,
    tolerated="the other of the two codes, and INVALID_TXN_STATE(48), as in TXV-12: refused all the same; an AddOffsetsToTxn "
    "that is agreed to where the old one's TxnOffsetCommit is refused: TXN-51 speaks of it",
)
def the_next_epoch(broker: Broker) -> None:
    topic, group = broker.topic(), broker.unused_name("group")

    def judge(protocol: Protocol) -> None:
        old = TransactionalClient(broker, protocol)
        new = TransactionalClient(broker, protocol, old.name)
        broker.expect_equal("producer id and epoch of the next producer", new.identity, (old.id, old.epoch + 1))
        for version in range(at_most(broker, AddPartitionsToTxnRequest, ADD_PARTITIONS_VERSION) + 1):
            expect_fenced(broker, old.add(topic, version=version), fenced_in(version), f"AddPartitionsToTxn v{version}")
            added = offsets_added(broker, old, group, topic, version)
            expect_fenced(broker, added, fenced_in(version), f"AddOffsetsToTxn v{version}")
            for committed in (True, False):
                ended = old.end(committed=committed, version=version)
                what = f"EndTxn v{version}, committed={committed}"
                expect_fenced(broker, ended.error_code, fenced_in(version), what)
        version = at_most(broker, EndTxnRequest, protocol.end)
        expect_fenced(broker, old.end(committed=True).error_code, fenced_in(version), f"EndTxn v{version}")
        expect_verified(broker)
        result = old.produce(topic, b"late")
        expect_fenced(broker, result.error_code, ErrorCode.INVALID_PRODUCER_EPOCH, "Produce")
        broker.expect_equal("the log end offset", broker.end_offset(topic), 0)
        new.expect_empty()

    in_each_protocol(broker, judge)


@requirement(
    "TXN-03",
    notices="none seen: Java refuses an empty transactional id in its configuration",
    source="TransactionCoordinator.handleInitProducerId",
    sentence="InitProducerId with an empty transactional id is refused with INVALID_REQUEST.",
    accepted="INVALID_REQUEST(42) without a producer id, in every version; a null one is a producer without transactions",
    apis=TRANSACTIONS,
)
def an_empty_transactional_id(broker: Broker) -> None:
    lowest, highest = broker.versions_of(InitProducerIdRequest)
    for version in range(lowest, highest + 1):
        client = TransactionalClient(broker, CLASSIC, "", initialised=False)
        client.asked = broker.coordinator(broker.unused_name("txn"), TRANSACTION)  # another id's, as in TXN-25
        expect_refused(broker, f"v{version}", client.init(version=version), ErrorCode.INVALID_REQUEST)
    broker.expect(broker.producer_id()[0] >= 0, "a null transactional id gives a producer id")


@requirement(
    "TXN-05",
    notices="data: records of the process that died are committed by the one that takes over, which sends them again",
    source="TransactionCoordinator.handleInitProducerId (fenceAndInitialize); KIP-360",
    sentence="InitProducerId while a transaction of the transactional id is open is CONCURRENT_TRANSACTIONS and aborts that "
    "transaction; asked again it gives a higher epoch.",
    accepted="CONCURRENT_TRANSACTIONS(51), then CompleteAbort, then NONE(0) with the same producer id and a higher epoch; the "
    "records never count; since Kafka 4.0 the same for a producer that says who it is, which was fenced for good before",
    tolerated="NONE(0) at once, with a higher epoch; PRODUCER_FENCED(90) and INVALID_TXN_STATE(48) for the old one's Produce",
    apis=TRANSACTIONS,
)
def taking_over(broker: Broker) -> None:
    def judge(protocol: Protocol, *, known: bool) -> None:
        topic = broker.topic()
        old = TransactionalClient(broker, protocol)
        old.write(topic, b"open")
        new = TransactionalClient(broker, protocol, old.name, initialised=False)
        who = old.identity if known else (NO_ID, NO_ID)
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
        expect_fenced(broker, result.error_code, ErrorCode.INVALID_PRODUCER_EPOCH, "the old one's Produce")
        broker.eventually(
            lambda: broker.end_offset(topic, isolation=READ_COMMITTED) == broker.end_offset(topic) == 2,
            "the record and its marker are stable",
        )
        aborted: list[FetchResponse.AbortedTransaction]
        aborted = broker.fetch(topic, 0, isolation=READ_COMMITTED).aborted_transactions or []
        listed = [(one.producer_id, one.first_offset) for one in aborted]
        with about("TXV-02"):
            broker.expect_equal("the aborted transactions", listed, [(old.id, 0)])
        new.write(topic, b"next")
        new.finish(committed=True)
        broker.expect_equal("the records in the log", values(broker.log(topic)), [b"open", b"next"])

    in_each_protocol(broker, lambda protocol: judge(protocol, known=False), "without an identity")
    known = broker.is_kafka(KNOWN_AGAIN_SINCE) and not is_switched_off(broker)
    if known and broker.versions_of(InitProducerIdRequest)[1] >= WITH_IDENTITY:
        in_each_protocol(broker, lambda protocol: judge(protocol, known=True), "with an identity")


@requirement(
    "TXN-06",
    notices="data: Java and librdkafka raise their epoch like this after an error; who was replaced would do it too",
    source="KIP-360; TransactionMetadata.prepareIncrementProducerEpoch",
    sentence="InitProducerId of a producer that says who it is: the current epoch gives the next one, the epoch before gives "
    "the same answer again unless another producer came since then, and every other producer is fenced.",
    accepted="NONE(0) with epoch + 1; NONE(0) with the same epoch; PRODUCER_FENCED(90) for two epochs back, a future epoch and "
    "another producer id, and for the last epoch and the one before once another producer has come (INVALID_PRODUCER_EPOCH(47) "
    "in v3); a refusal leaves the epoch as it is",
    tolerated="the other of the two codes: clients take both for being fenced",
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
                expect_refused(broker, what, client.init(*stranger, version=version), fenced, tolerated=FENCED)
            expect_described(client, (id, epoch + 1))
            answer = client.init(id, epoch + 1, version=version)
            expect_identity(broker, "the current epoch after the refusals", answer, (id, epoch + 2))
            TransactionalClient(broker, CLASSIC, client.name)
            for what, late in (("the epoch of who was replaced", epoch + 2), ("the epoch before that", epoch + 1)):
                expect_refused(broker, what, client.init(id, late, version=version), fenced, tolerated=FENCED)


@requirement(
    "TXN-15",
    notices="stuck: since KIP-890 each transaction takes an epoch, so a busy producer comes here within a day",
    source="TransactionMetadata.isEpochExhausted; KIP-360",
    sentence="After epoch 32766 InitProducerId gives a new producer id with epoch 0; a producer that had the old id can do "
    "nothing more.",
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
    broker.expect(answer.producer_id not in (old[0], NO_ID), f"{answer.producer_id} comes after {old}")
    expect_identity(broker, "after the last epoch", answer, (answer.producer_id, 0))
    expect_identity(broker, "asked again with the old identity", client.init(*old), (answer.producer_id, 0))
    error = client.add(topic, identity=old)
    broker.expect_error(error, ErrorCode.INVALID_PRODUCER_ID_MAPPING, what="AddPartitionsToTxn of the old id")
    client.write(topic, b"new")
    client.finish(committed=True)
    broker.expect_equal("the records", values(broker.log(topic, isolation=READ_COMMITTED)), [b"new"])


@requirement(
    "TXN-24",
    notices="client: an application whose id has blanks or letters beyond ASCII, or is long, cannot begin",
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
            if client.is_described:
                broker.expect(client.described().transactional_id == name, "it is described by its name")
            again = TransactionalClient(broker, CLASSIC, name)
            broker.expect_equal(
                "producer id and epoch of the next producer", again.identity, (client.id, client.epoch + 1)
            )
            again.write(topic, b"x")
            again.finish(committed=True)
            broker.expect_equal("the last stable offset", broker.end_offset(topic, isolation=READ_COMMITTED), 2)


@requirement(
    "TXN-25",
    notices="none seen: no client comes so far, since InitProducerId refuses it (TXN-03)",
    source="TransactionCoordinator.validateTransactionalId; KafkaApis",
    sentence="An empty transactional id is refused with INVALID_REQUEST by AddPartitionsToTxn, AddOffsetsToTxn, EndTxn and "
    "DescribeTransactions too.",
    accepted="INVALID_REQUEST(42)",
    apis=TRANSACTIONS | {"AddOffsetsToTxn": 0},
)
def empty_everywhere(broker: Broker) -> None:
    topic, group = broker.topic(), broker.unused_name("group")
    client = TransactionalClient(broker, CLASSIC, "", initialised=False)
    client.asked = broker.coordinator(group, TRANSACTION)  # another id's: any broker refuses the empty id first
    client.become(*broker.producer_id())
    invalid = ErrorCode.INVALID_REQUEST
    broker.expect_error(client.add(topic), invalid, what="AddPartitionsToTxn")
    for version in range(broker.versions_of(AddOffsetsToTxnRequest)[0], broker.version_for(AddOffsetsToTxnRequest) + 1):
        broker.expect_error(client.add_offsets(group, version=version), invalid, what=f"AddOffsetsToTxn v{version}")
    ended = client.end(committed=True, version=at_most(broker, EndTxnRequest, CLASSIC.end))
    broker.expect_error(ended.error_code, invalid, what="EndTxn")
    if client.is_described:
        broker.expect_error(client.described().error_code, invalid, what="DescribeTransactions")


@requirement(
    "TXN-48",
    notices="data: two producers with one epoch, of which neither is fenced",
    source="KIP-98; TransactionCoordinator.handleInitProducerId (pendingTransitionInProgress)",
    sentence="Of several InitProducerIds for one transactional id at the same time each that succeeds gives an epoch of its own.",
    accepted="NONE(0) with one producer id and epochs that go up by one, or CONCURRENT_TRANSACTIONS(51); the greatest epoch "
    "alone can begin a transaction",
    apis=TRANSACTIONS,
)
def at_the_same_time(broker: Broker) -> None:
    topic = broker.topic()
    client = TransactionalClient(broker, CLASSIC)
    request = InitProducerIdRequest(transactional_id=client.name, transaction_timeout_ms=client.timeout_ms)
    version = broker.version_for(request)
    connections = [broker.connect(broker.coordinator(client.name, TRANSACTION)) for _ in range(RIVALS)]
    given: list[tuple[int, int]] = []
    for _ in range(ROUNDS):
        for connection in connections:
            connection.send(request, version)
        for connection in connections:
            answer = connection.receive()
            if answer.error_code == ErrorCode.NONE:
                given.append((answer.producer_id, answer.producer_epoch))
            else:
                broker.expect_error(answer.error_code, ErrorCode.CONCURRENT_TRANSACTIONS)
    id, first = client.identity
    wanted = [(id, first + number + 1) for number in range(len(given))]
    broker.expect(
        len(given) >= ROUNDS, f"{len(given)} of {RIVALS * ROUNDS} requests succeeded, at least one in each round"
    )
    broker.expect_equal("the producer ids and epochs", sorted(given), wanted)
    for identity in wanted[:-1]:
        error = client.add(topic, identity=identity)
        if error not in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH):  # the latter before KIP-588
            broker.fail(f"{identity} is answered with {error_name(error)}, although {wanted[-1]} came later")
    broker.expect_error(client.add(topic, identity=wanted[-1]), ErrorCode.NONE, what="the last one")
