"""TXN: the steps of a transaction: adding partitions, ending, the states between, and the epoch that an end raises (KIP-890)."""

from collections.abc import Callable
from dataclasses import replace

from conformance.answers import error_name
from conformance.batches import CONTROL, TRANSACTIONAL, batches, values
from conformance.broker import Broker
from conformance.requirement import requirement
from conformance.requirements.transactional_ids import (
    LAST_EPOCH,
    expect_fenced,
    expect_identity,
    fenced_in,
    offsets_added,
)
from conformance.spent_epochs import raise_epoch
from conformance.transaction_client import (
    ADD_PARTITIONS_VERSION,
    CLASSIC,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    IMPLICIT,
    ONGOING,
    TRANSACTIONS,
    TRANSACTIONS_TOPIC,
    Protocol,
    TransactionalClient,
    at_most,
    expect_agreed,
    in_each_protocol,
)
from linearizability.client.requests import READ_COMMITTED, Topic
from reference.protocol.errors import RETRIABLE, ErrorCode
from reference.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from reference.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from reference.protocol.messages.end_txn import EndTxnRequest

AGREED, INVALID = ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE
ENDS: dict[str, dict[tuple[str, bool], tuple[ErrorCode, str]]] = {
    EMPTY: {
        ("TV1", True): (INVALID, EMPTY),
        ("TV1", False): (INVALID, EMPTY),
        ("TV2", True): (INVALID, EMPTY),
        ("TV2", False): (AGREED, COMPLETE_ABORT),
    },
    ONGOING: {
        ("TV1", True): (AGREED, COMPLETE_COMMIT),
        ("TV1", False): (AGREED, COMPLETE_ABORT),
        ("TV2", True): (AGREED, COMPLETE_COMMIT),
        ("TV2", False): (AGREED, COMPLETE_ABORT),
    },
    COMPLETE_COMMIT: {
        ("TV1", True): (AGREED, COMPLETE_COMMIT),
        ("TV1", False): (INVALID, COMPLETE_COMMIT),
        ("TV2", True): (INVALID, COMPLETE_COMMIT),
        ("TV2", False): (AGREED, COMPLETE_ABORT),
    },
    COMPLETE_ABORT: {
        ("TV1", True): (INVALID, COMPLETE_ABORT),
        ("TV1", False): (AGREED, COMPLETE_ABORT),
        ("TV2", True): (INVALID, COMPLETE_ABORT),
        ("TV2", False): (AGREED, COMPLETE_ABORT),
    },
}
"""State -> (protocol, whether to commit) -> the error of EndTxn with the current epoch, and the final state."""


def in_state(broker: Broker, protocol: Protocol, state: str, topic: Topic) -> TransactionalClient:
    """A new transactional id in a state that is not transient."""
    client = TransactionalClient(broker, protocol)
    if state != EMPTY:
        client.write(topic, b"x")
    if state in (COMPLETE_COMMIT, COMPLETE_ABORT):
        client.finish(committed=state == COMPLETE_COMMIT)
    client.await_state(state)
    return client


def for_each_step(broker: Broker, judge: Callable[[str, Callable[[TransactionalClient], int], int], None]) -> None:
    """Call `judge` with name, sending function and version of each request to the coordinator, in each version."""
    group = broker.unused_name("group")
    topic = broker.topic()
    for version in range(at_most(broker, AddPartitionsToTxnRequest, ADD_PARTITIONS_VERSION) + 1):
        judge(f"AddPartitionsToTxn v{version}", lambda client, v=version: client.add(topic, version=v), version)
    for version in range(broker.versions_of(AddOffsetsToTxnRequest)[0], broker.version_for(AddOffsetsToTxnRequest) + 1):
        judge(
            f"AddOffsetsToTxn v{version}",
            lambda client, v=version: offsets_added(broker, client, group, topic, v),
            version,
        )
    for version in range(broker.versions_of(EndTxnRequest)[0], broker.version_for(EndTxnRequest) + 1):
        for committed in (True, False):
            judge(
                f"EndTxn v{version}, committed={committed}",
                lambda client, v=version, c=committed: client.end(committed=c, version=v).error_code,
                version,
            )


@requirement(
    "TXN-07",
    notices="data: a producer whose id expired writes on unfenced; on a retriable error Java and librdkafka try for ever",
    source="TransactionCoordinator.validateTransactionalId, handleAddPartitionsToTransaction, endTransaction",
    sentence="AddPartitionsToTxn, AddOffsetsToTxn and EndTxn of a transactional id that was never initialised are refused for "
    "good, and it stays unknown.",
    accepted="INVALID_PRODUCER_ID_MAPPING(49) in every version; the transactional id stays unknown",
    tolerated="another error that is not retriable: a correct client can meet this only once its id was forgotten (TXN-27); an "
    "AddOffsetsToTxn that is agreed to where TxnOffsetCommit is refused (TXN-51)",
    apis=TRANSACTIONS | {"AddOffsetsToTxn": 0},
)
def never_initialised(broker: Broker) -> None:
    stranger = TransactionalClient(broker, CLASSIC, initialised=False)
    stranger.become(*TransactionalClient(broker, CLASSIC).identity)
    unmapped, for_good = ErrorCode.INVALID_PRODUCER_ID_MAPPING, {*ErrorCode} - {*RETRIABLE, ErrorCode.NONE}
    for_each_step(
        broker, lambda what, step, _: broker.expect_error(step(stranger), unmapped, tolerated=for_good, what=what)
    )
    if stranger.is_described:
        known = stranger.described().error_code  # TXN-22 judges the code
        broker.expect(known != ErrorCode.NONE, f"it stays unknown: DescribeTransactions gives {error_name(known)}")


@requirement(
    "TXN-08",
    notices="data: a producer that was replaced takes part in its successor's transaction",
    source="TransactionCoordinator.validateTransactionalId; KafkaApis (INVALID_PRODUCER_EPOCH for old versions)",
    sentence="A producer id that is not the transactional id's is INVALID_PRODUCER_ID_MAPPING; an epoch below or above the "
    "current one is PRODUCER_FENCED.",
    accepted="INVALID_PRODUCER_ID_MAPPING(49); PRODUCER_FENCED(90), below v2 INVALID_PRODUCER_EPOCH(47); while a transaction is "
    "open, which stays as it is",
    tolerated="the other of the two codes for an epoch; UNKNOWN_PRODUCER_ID(59), which Java and librdkafka take for 49 here; an "
    "AddOffsetsToTxn that is agreed to where TxnOffsetCommit is refused (TXN-51)",
    apis=TRANSACTIONS | {"AddOffsetsToTxn": 0},
)
def somebody_else(broker: Broker) -> None:
    client = TransactionalClient(broker, CLASSIC)
    client.init()
    client.init()
    client.write(broker.topic(), b"x")
    id, epoch = client.identity
    other = TransactionalClient(broker, CLASSIC, client.name, initialised=False)

    def judge(what: str, step: Callable[[TransactionalClient], int], version: int) -> None:
        fenced = fenced_in(version)
        other.become(id + 5000, epoch)
        unmapped, unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.UNKNOWN_PRODUCER_ID
        broker.expect_error(step(other), unmapped, tolerated={unknown}, what=f"{what}, another id")
        for reported, wrong in (("an old epoch", 0), ("a future epoch", epoch + 1)):
            other.become(id, wrong)
            tolerated = {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}
            broker.expect_error(step(other), fenced, tolerated=tolerated, what=f"{what}, {reported}")

    for_each_step(broker, judge)
    broker.expect_equal("the state", client.state(), ONGOING)


@requirement(
    "TXN-51",
    notices="client: Java, librdkafka and franz-go go on to TxnOffsetCommit, and learn only there that they were replaced",
    source="TransactionCoordinator.handleAddPartitionsToTransaction",
    sentence="AddOffsetsToTxn of a transactional id that was never initialised, of another producer id and of another epoch is "
    "refused.",
    accepted="an error that is not retriable, whatever it is",
    apis=TRANSACTIONS | {"AddOffsetsToTxn": 0},
)
def offsets_of_others(broker: Broker) -> None:
    group = broker.unused_name("group")
    client = TransactionalClient(broker, CLASSIC)
    client.init()
    id, epoch = client.identity
    unknown = TransactionalClient(broker, CLASSIC, initialised=False)
    other = TransactionalClient(broker, CLASSIC, client.name, initialised=False)
    for version in range(broker.versions_of(AddOffsetsToTxnRequest)[0], broker.version_for(AddOffsetsToTxnRequest) + 1):
        for what, sender, identity in (
            ("an unknown transactional id", unknown, (id, epoch)),
            ("another producer id", other, (id + 5000, epoch)),
            ("an old epoch", other, (id, epoch - 1)),
            ("a future epoch", other, (id, epoch + 1)),
        ):
            sender.become(*identity)
            code = sender.add_offsets(group, version=version)
            broker.expect(
                code not in {ErrorCode.NONE, *RETRIABLE}, f"AddOffsetsToTxn v{version}, {what}: {error_name(code)}"
            )


@requirement(
    "TXN-09",
    since="2.4",
    notices="client: Java and librdkafka ask again with all on the first code; on a success they write where no marker comes",
    source="KafkaApis.handleAddPartitionsToTxnRequest",
    sentence="AddPartitionsToTxn that names a topic or partition which does not exist adds none: that one is "
    "UNKNOWN_TOPIC_OR_PARTITION, the others are OPERATION_NOT_ATTEMPTED. So it is with an internal topic, where only brokers "
    "write: TOPIC_AUTHORIZATION_FAILED.",
    accepted="UNKNOWN_TOPIC_OR_PARTITION(3) or TOPIC_AUTHORIZATION_FAILED(29), and OPERATION_NOT_ATTEMPTED(55) in v0 to v3; no "
    "transaction is open afterwards",
    apis=TRANSACTIONS,
    requires=("BAS-10",),
)
def all_or_none(broker: Broker) -> None:
    topic, nowhere = broker.topic(2), broker.unused_name()
    client = TransactionalClient(broker, CLASSIC)
    unknown, untried = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
    for version in range(at_most(broker, AddPartitionsToTxnRequest, ADD_PARTITIONS_VERSION) + 1):
        seen = client.add_all({topic.name: [0, 7, 1]}, version=version)
        wanted = {(topic.name, 0): untried, (topic.name, 7): unknown, (topic.name, 1): untried}
        broker.expect_equal(f"v{version}, an unknown partition", seen, wanted)
        seen = client.add_all({nowhere: [0], topic.name: [0, 1]}, version=version)
        wanted = {(nowhere, 0): unknown, (topic.name, 0): untried, (topic.name, 1): untried}
        broker.expect_equal(f"v{version}, an unknown topic", seen, wanted)
        if broker.describe_topic(TRANSACTIONS_TOPIC).error_code != ErrorCode.NONE:
            continue  # the target keeps transactions in another place
        seen = client.add_all({TRANSACTIONS_TOPIC: [0], topic.name: [0]}, version=version)
        wanted = {(TRANSACTIONS_TOPIC, 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED, (topic.name, 0): untried}
        broker.expect_equal(f"v{version}, an internal topic", seen, wanted)
    client.expect_empty()
    agreed = {(topic.name, 0): ErrorCode.NONE, (topic.name, 1): ErrorCode.NONE}
    for _ in range(2):
        broker.expect_equal("known ones", client.add_all({topic.name: [0, 1]}), agreed)
    if client.is_described:
        added = {(one.topic, index) for one in client.described().topics for index in one.partitions}
        broker.expect_equal("the transaction's partitions", added, set(agreed))


@requirement(
    "TXN-11",
    notices="stuck: Java aborts like this where it cannot know whether a write arrived, and ends on INVALID_TXN_STATE",
    source="TransactionCoordinator.endTransaction (Empty)",
    sentence="EndTxn before any transaction is INVALID_TXN_STATE, except an abort in v5 and later, which clients send when "
    "they cannot know whether a write arrived.",
    accepted="INVALID_TXN_STATE(48), and state Empty; for an abort in v5 NONE(0) with the next epoch",
    tolerated="NONE(0) below v5: no client ends what it has not begun",
    draft="all were thought to be refused: Kafka 4 agrees to the abort of nothing in v5 (KIP-890)",
    apis=TRANSACTIONS,
)
def ending_nothing(broker: Broker) -> None:
    client = TransactionalClient(broker, CLASSIC)
    for version in range(broker.versions_of(EndTxnRequest)[0], broker.version_for(EndTxnRequest) + 1):
        for committed in (True, False) if version < IMPLICIT.end else (True,):
            ended = client.end(committed=committed, version=version)
            mild = {ErrorCode.NONE} if version < IMPLICIT.end else ()
            broker.expect_error(ended.error_code, INVALID, tolerated=mild, what=f"v{version}, committed={committed}")
    if not broker.tolerances:
        client.expect_empty()
    if broker.version_for(EndTxnRequest) >= IMPLICIT.end:
        id, epoch = client.identity
        answer = client.end(committed=False, version=IMPLICIT.end)
        expect_identity(broker, "an abort in v5", answer, (id, epoch + 1))
        client.await_state(COMPLETE_ABORT)


@requirement(
    "TXN-12",
    notices="data: a producer whose answer was lost reports a committed transaction as failed, and sends it again",
    source="TransactionCoordinator.endTransaction (CompleteCommit, CompleteAbort)",
    sentence="Before KIP-890: EndTxn sent again after the transaction is complete succeeds with the same result, and is "
    "INVALID_TXN_STATE with the other; nothing is written again.",
    accepted="NONE(0) and INVALID_TXN_STATE(48) in v0 to v4; one marker in the log",
    apis=TRANSACTIONS,
)
def ending_again(broker: Broker) -> None:
    for version in range(at_most(broker, EndTxnRequest, CLASSIC.end) + 1):
        for committed in (True, False):
            with broker.case(f"v{version}, committed={committed}"):
                topic = broker.topic()
                client = TransactionalClient(broker, replace(CLASSIC, end=version))
                client.write(topic, b"x")
                client.finish(committed=committed)
                for _ in range(2):
                    again, other = client.end(committed=committed), client.end(committed=not committed)
                    broker.expect_error(again.error_code, AGREED, what="the same result")
                    broker.expect_error(other.error_code, INVALID, what="the other result")
                client.await_state(COMPLETE_COMMIT if committed else COMPLETE_ABORT)
                log = [one.attributes for one in batches(broker.log(topic))]
                broker.expect_equal("the log", log, [TRANSACTIONAL, TRANSACTIONAL | CONTROL])


@requirement(
    "TXN-14",
    notices="stuck: Java's producer goes on with this id and epoch, and ends when it is refused",
    source="KIP-890; TransactionCoordinator.endTransaction (retryOnEpochBump)",
    sentence="EndTxn v5 gives the producer id with the next epoch, which the next transaction must bear; sent again with the "
    "epoch before, it gives the same answer until a transaction is open.",
    accepted="NONE(0) with epoch + 1, twice; INVALID_TXN_STATE(48) with the other result; PRODUCER_FENCED(90) for two epochs "
    "back, and for the epoch before once the next transaction is open; INVALID_PRODUCER_EPOCH(47) for a Produce in the epoch "
    "before",
    tolerated="the other of the two codes, and INVALID_TXN_STATE(48), as in TXN-02: refused all the same",
    since="4.0",
    apis=TRANSACTIONS | {"EndTxn": 5},
)
def the_epoch_of_the_next_one(broker: Broker) -> None:
    for committed in (True, False):
        with broker.case("commit" if committed else "abort"):
            topic = broker.topic()
            client = TransactionalClient(broker, IMPLICIT)
            id, first = client.identity
            for epoch in (first, first + 1):
                client.write(topic, b"x")
                answer = client.end(committed=committed)
                expect_identity(broker, f"the end of epoch {epoch}", answer, (id, epoch + 1))
                for _ in range(2):
                    again = client.end(committed=committed, identity=(id, epoch))
                    expect_identity(broker, "asked again", again, (id, epoch + 1))
                other = client.end(committed=not committed, identity=(id, epoch))
                broker.expect_error(other.error_code, INVALID, what="asked again, the other result")
                result = client.produce(topic, b"late", identity=(id, epoch), sequence=1)
                expect_fenced(broker, result.error_code, ErrorCode.INVALID_PRODUCER_EPOCH, "Produce, epoch before")
            old = client.end(committed=committed, identity=(id, first))
            expect_fenced(broker, old.error_code, ErrorCode.PRODUCER_FENCED, "two epochs back")
            client.write(topic, b"open")
            old = client.end(committed=committed, identity=(id, first + 1))
            expect_fenced(broker, old.error_code, ErrorCode.PRODUCER_FENCED, "the epoch before, too late")
            broker.expect_equal("the state", client.state(), ONGOING)
            broker.expect_equal("the records", values(broker.log(topic)), [b"x", b"x", b"open"])


@requirement(
    "TXN-28",
    notices="data: a producer that asks again gets another outcome than the one that readers saw",
    source="TransactionState.validPreviousStates; TransactionCoordinator.endTransaction",
    sentence="What EndTxn does is a matter of the state: it ends what is open, agrees again to what was done, and refuses the "
    "rest.",
    accepted="for Empty, Ongoing, CompleteCommit and CompleteAbort, commit and abort, before and since KIP-890, the answers and "
    "states of the table in the test's module",
    tolerated="NONE(0) in Empty before KIP-890: no client ends what it has not begun",
    apis=TRANSACTIONS,
)
def ends_by_state(broker: Broker) -> None:
    topic = broker.topic()

    def judge(protocol: Protocol, state: str) -> None:
        for committed in (True, False):
            reported = f"{'commit' if committed else 'abort'} in {state}"
            error, after = ENDS[state][protocol.name, committed]
            client = in_state(broker, protocol, state, topic)
            epoch = client.epoch
            mild = {ErrorCode.NONE} if state == EMPTY and protocol is CLASSIC else ()
            code = client.end(committed=committed).error_code
            broker.expect_error(code, error, tolerated=mild, what=reported)
            if code != error:
                continue
            client.await_state(after)
            raised = protocol is IMPLICIT and error is AGREED
            if client.is_described:
                broker.expect_equal(f"{reported}: the epoch", client.described().producer_epoch, epoch + raised)

    for state in ENDS:
        in_each_protocol(broker, lambda protocol, state=state: judge(protocol, state), state)


@requirement(
    "TXN-29",
    notices="stuck: every producer's second transaction begins like this",
    source="TransactionState.validPreviousStates; TransactionMetadata.prepareAddPartitions, prepareIncrementProducerEpoch",
    sentence="From each state without an open transaction the first partition opens one; InitProducerId makes each of them "
    "Empty.",
    accepted="Ongoing from Empty, CompleteCommit and CompleteAbort, with that partition alone; Empty and the next epoch from "
    "all three",
    apis=TRANSACTIONS,
)
def beginnings_by_state(broker: Broker) -> None:
    before = broker.topic()

    def judge(protocol: Protocol, state: str) -> None:
        topic = broker.topic()
        client = in_state(broker, protocol, state, before)
        client.write(topic, b"x")
        if client.is_described:
            client.expect_open(topic)
        else:
            broker.expect_equal("the last stable offset", broker.end_offset(topic, isolation=READ_COMMITTED), 0)
        client.finish(committed=True)
        client = in_state(broker, protocol, state, before)
        id, epoch = client.identity
        expect_identity(broker, "InitProducerId", client.init(), (id, epoch + 1))
        client.expect_empty()

    for state in (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT):
        in_each_protocol(broker, lambda protocol, state=state: judge(protocol, state), state)


@requirement(
    "TXN-30",
    notices="stuck: a producer whose sends all failed aborts like this, and Java ends where it is refused",
    source="TransactionCoordinator.handleAddPartitionsToTransaction",
    sentence="A transaction without records can be committed and aborted: one to which partitions were added, which get their "
    "markers, and one to which a request added none.",
    accepted="NONE(0), CompleteCommit or CompleteAbort; one control batch in each added partition, and nothing in others",
    tolerated="no marker where there is no record that it could end",
    apis=TRANSACTIONS,
)
def without_records(broker: Broker) -> None:
    for committed in (True, False):
        with broker.case("commit" if committed else "abort"):
            topic = broker.topic(2)
            client = TransactionalClient(broker, CLASSIC)
            expect_agreed("AddPartitionsToTxn", client.add(topic))
            client.finish(committed=committed)
            for partition, end in ((0, 1), (1, 0)):
                stable = broker.end_offset(topic, partition, isolation=READ_COMMITTED)
                if stable == 0 != end:
                    broker.tolerate("a partition without a record of it has no marker")
                else:
                    broker.expect_equal(f"the last stable offset of partition {partition}", stable, end)
            client.add_all({})
            if client.is_described:
                broker.expect_equal("the state after adding nothing", client.state(), ONGOING)
            client.finish(committed=committed)


@requirement(
    "TXN-31",
    notices="client: a transactional id whose application is upgraded, or set back, has to be abandoned",
    source="KIP-890; TransactionVersion.transactionVersionForEndTxn",
    sentence="The two protocols may change within the life cycle of a transactional id: what counts is each request's version.",
    accepted="EndTxn v4 keeps the epoch of a transaction that Produce v12 opened; the next one ends with v5 and raises it; "
    "AddPartitionsToTxn v3 and Produce v12 write into one transaction",
    since="4.0",
    apis=TRANSACTIONS | {"EndTxn": 5, "Produce": 12},
    requires=("BAS-10",),
)
def both_protocols(broker: Broker) -> None:
    topic = broker.topic(2)
    client = TransactionalClient(broker, IMPLICIT)
    id, epoch = client.identity
    client.write(topic, b"1")
    expect_agreed("EndTxn v4", client.end(committed=True, version=CLASSIC.end).error_code)
    client.await_state(COMPLETE_COMMIT)
    broker.expect_equal("the epoch after EndTxn v4", client.described().producer_epoch, epoch)
    expect_agreed("AddPartitionsToTxn", client.add(topic, 1))
    broker.expect_error(client.produce(topic, b"2", partition=1, version=CLASSIC.produce).error_code, AGREED)
    client.write(topic, b"3")
    expect_identity(broker, "EndTxn v5", client.end(committed=True), (id, epoch + 1))
    client.await_state(COMPLETE_COMMIT)
    seen = [values(broker.log(topic, partition=partition, isolation=READ_COMMITTED)) for partition in (0, 1)]
    broker.expect_equal("the records", seen, [[b"1", b"3"], [b"2"]])


@requirement(
    "TXN-32",
    notices="stuck: since KIP-890 each transaction takes an epoch; a producer that is refused here ends",
    source="KIP-890; TransactionMetadata.prepareAbortOrCommit (isEpochExhausted)",
    sentence="EndTxn v5 in the last epoch gives a new producer id with epoch 0; the markers bear the old id.",
    accepted="another producer id, epoch 0, the same when asked again; the markers have the old id and epoch 32767; the new id "
    "writes",
    since="4.0",
    apis=TRANSACTIONS | {"EndTxn": 5, "Produce": 12},
    deadline_s=300.0,
)
def ending_the_last_epoch(broker: Broker) -> None:
    topic = broker.topic()
    client = TransactionalClient(broker, IMPLICIT)
    raise_epoch(client, LAST_EPOCH)
    old = client.identity
    client.write(topic, b"last")
    answer = client.end(committed=True)
    broker.expect(answer.producer_id != old[0], f"{answer.producer_id} comes after {old}")
    expect_identity(broker, "EndTxn", answer, (answer.producer_id, 0))
    expect_identity(broker, "asked again", client.end(committed=True, identity=old), (answer.producer_id, 0))
    client.await_state(COMPLETE_COMMIT)
    client.write(topic, b"new")
    client.finish(committed=True)
    log = [(one.producer_id, one.producer_epoch) for one in batches(broker.log(topic, isolation=READ_COMMITTED))]
    new = answer.producer_id
    broker.expect_equal("the log", log, [old, (old[0], LAST_EPOCH + 1), (new, 0), (new, 1)])
