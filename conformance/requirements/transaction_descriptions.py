"""TXN: descriptions of transactions, and the requests between brokers about them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from conformance.answers import AnswerParts, only
from conformance.broker import Broker
from conformance.markers import COMMIT, markers
from conformance.requirement import requirement, untestable
from conformance.transaction_client import (
    CLASSIC,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    LOADING,
    NO_ID,
    ONGOING,
    TIMEOUT_MS,
    TRANSACTIONS,
    Protocol,
    TransactionalClient,
    answered_for_good,
    expect_switched_on,
    in_each_protocol,
)
from linearizability.client.requests import READ_COMMITTED, TRANSACTION, Topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from reference.protocol.messages.describe_transactions import DescribeTransactionsRequest
from reference.protocol.messages.list_transactions import ListTransactionsRequest
from reference.protocol.messages.write_txn_markers import WriteTxnMarkersRequest

NO_TIME = -1
"""The start time of a transactional id that had no transaction yet."""
CLOCKS_DIFFER_MS = 60_000
"""The largest accepted difference between the target's clock and the suite's."""
LATER_S = 0.05
"""How long the suite waits before a second transaction, whose start time must differ."""
BATCHED = 4
"""The first version of AddPartitionsToTxn for brokers: several transactions, and verification only."""
MANY_WAYS = 60
"""The length of a text for which a backtracking matcher of (a+)+ does not end in practice."""
LIST_DURATION, LIST_PATTERN = 1, 2
"""The first versions of ListTransactions with a duration and with a pattern as filter."""


def list_transactions(broker: Broker, names: Sequence[str], version: int | None = None, **filters: Any) -> Any:
    """The responses of ListTransactions at each coordinator of these transactional ids, and id -> entry for the listed ones."""
    request = ListTransactionsRequest(**filters)
    version = broker.version_for(request, version)
    answers = [
        answered_for_good(
            broker,
            lambda address=address: broker.call(request, version, to=address),
            lambda answer: {answer.error_code},
            "ListTransactions",
            waited_out=LOADING,
        )
        for address in sorted({broker.coordinator(name, TRANSACTION) for name in names})
    ]
    found = AnswerParts({one.transactional_id: one for answer in answers for one in answer.transaction_states})
    return answers, {name: found[name] for name in names if name in found}


def in_several_states(broker: Broker) -> dict[str, TransactionalClient]:
    """One transactional id in each state that is not transient: state -> client."""
    topic = broker.topic(3)
    clients = {
        state: TransactionalClient(broker, CLASSIC) for state in (EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT)
    }
    for partition, state in enumerate((ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT)):
        clients[state].write(topic, b"x", partition=partition)
    for state in (COMPLETE_COMMIT, COMPLETE_ABORT):
        clients[state].finish(committed=state == COMPLETE_COMMIT)
    return clients


@requirement(
    "TXN-22",
    notices="tool: kafka-transactions describe, with which hanging transactions are found",
    source="KIP-664; TransactionCoordinator.handleDescribeTransactions",
    sentence="DescribeTransactions reports the state, producer id, epoch, timeout, start time (-1 before the first transaction) "
    "and partitions of a transactional id; one that is not known is TRANSACTIONAL_ID_NOT_FOUND.",
    accepted="start time -1 before the first transaction, then when it began, a later one for the second; the partitions while "
    "it is open, none when it is complete; TRANSACTIONAL_ID_NOT_FOUND(105)",
    since="3.0",
    apis=TRANSACTIONS,
)
def described(broker: Broker) -> None:
    def judge(protocol: Protocol) -> None:
        topic, other = broker.topic(2), broker.topic()
        client = TransactionalClient(broker, protocol, timeout_ms=TIMEOUT_MS)

        def expect_reported(state: str, partitions: dict[str, list[int]]) -> int:
            found = client.described()
            reported = found.transaction_state, found.producer_id, found.producer_epoch, found.transaction_timeout_ms
            broker.expect_equal("what is reported", reported, (state, *client.identity, TIMEOUT_MS))
            listed = {one.topic: sorted(one.partitions) for one in found.topics}
            broker.expect_equal(f"{state}: the partitions", listed, partitions)
            return found.transaction_start_time_ms

        broker.expect_equal("the start time before any", expect_reported(EMPTY, {}), NO_TIME)
        before_ms = time.time() * 1000 - CLOCKS_DIFFER_MS
        client.write(topic, b"x", partition=1)
        began_ms = expect_reported(ONGOING, {topic.name: [1]})
        after_ms = time.time() * 1000 + CLOCKS_DIFFER_MS
        broker.expect(before_ms <= began_ms <= after_ms, "the start time is when it began, within a minute")
        client.write(topic, b"x")
        client.write(other, b"x")
        broker.expect_equal("the start time", expect_reported(ONGOING, {topic.name: [0, 1], other.name: [0]}), began_ms)
        client.finish(committed=True)
        expect_reported(COMPLETE_COMMIT, {})
        time.sleep(LATER_S)
        client.write(topic, b"x")
        later_ms = expect_reported(ONGOING, {topic.name: [0]})
        broker.expect(later_ms > began_ms, f"the second transaction began {later_ms - began_ms} ms after the first")
        client.finish(committed=True)

    in_each_protocol(broker, judge)
    unknown = TransactionalClient(broker, CLASSIC, initialised=False).described()
    broker.expect_error(unknown.error_code, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, what="an unknown transactional id")
    broker.expect_equal("its partitions", list(unknown.topics), [])


@requirement(
    "TXN-39",
    notices="tool: Java's Admin.describeTransactions of several ids shows none of them, or another's",
    source="KIP-664; KafkaApis.handleDescribeTransactionsRequest",
    sentence="DescribeTransactions of several transactional ids reports each of them, or its own error.",
    accepted="one entry for each, in their order: NONE(0), TRANSACTIONAL_ID_NOT_FOUND(105), INVALID_REQUEST(42) for the empty "
    "one; no entry for none",
    since="3.0",
    apis=TRANSACTIONS,
)
def several_described(broker: Broker) -> None:
    client = TransactionalClient(broker, CLASSIC)
    coordinator = broker.coordinator(client.name, TRANSACTION)
    nobody = broker.unused_name("txn")
    while broker.coordinator(nobody, TRANSACTION) != coordinator:
        nobody = broker.unused_name("txn")
    names = [client.name, nobody, "", client.name]
    reported = broker.call(DescribeTransactionsRequest(transactional_ids=names), to=coordinator).transaction_states
    broker.expect_equal("the transactional ids", [one.transactional_id for one in reported], names)
    missing, invalid = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ErrorCode.INVALID_REQUEST
    wanted = [ErrorCode.NONE, missing, invalid, ErrorCode.NONE]
    broker.expect_equal("the errors", [one.error_code for one in reported], wanted)
    reported = broker.call(DescribeTransactionsRequest(transactional_ids=[]), to=coordinator).transaction_states
    broker.expect_equal("what is reported about none", list(reported), [])


@requirement(
    "TXN-40",
    notices="tool: kafka-transactions list, with which hanging transactions are found",
    source="KIP-664; TransactionStateManager.listTransactionStates",
    sentence="ListTransactions lists the transactional ids of a coordinator with producer id and state, all of them or those in "
    "some states or of some producers; names of states that there are not are reported back.",
    accepted="with both filters those that both let pass; unknown_state_filters with the names that are no states, each once: "
    "they let nothing pass",
    since="3.0",
    apis=TRANSACTIONS | {"ListTransactions": 0},
)
def listed(broker: Broker) -> None:
    clients = in_several_states(broker)
    names = [client.name for client in clients.values()]

    def expect_listed(what: str, states: Sequence[str], *, unknown: Sequence[str] = (), **filters: Any) -> None:
        answers, found = list_transactions(broker, names, **filters)
        for answer in answers:
            broker.expect_error(answer.error_code, ErrorCode.NONE, what=what)
            broker.expect_equal(f"{what}: unknown states", sorted(answer.unknown_state_filters), sorted(unknown))
        wanted = {clients[state].name: (clients[state].id, state) for state in states}
        reported = {name: (one.producer_id, one.transaction_state) for name, one in found.items()}
        broker.expect_equal(what, reported, wanted)

    ids = [clients[COMPLETE_COMMIT].id, clients[ONGOING].id]
    expect_listed("no filter", list(clients))
    expect_listed("a state", [ONGOING], state_filters=[ONGOING])
    expect_listed("two states", [EMPTY, COMPLETE_ABORT], state_filters=[EMPTY, COMPLETE_ABORT])
    expect_listed("names that are no states", [EMPTY], unknown=["ongoing", "x"], state_filters=[EMPTY, "x", "ongoing"])
    expect_listed("nothing but a name that is no state, twice", [], unknown=["x"], state_filters=["x", "x"])
    expect_listed("producer ids", [COMPLETE_COMMIT, ONGOING], producer_id_filters=ids)
    expect_listed("both", [ONGOING], producer_id_filters=ids, state_filters=[ONGOING, EMPTY])
    expect_listed("nobody's producer id", [], producer_id_filters=[2**62])


@requirement(
    "TXN-41",
    notices="tool: kafka-transactions list --duration-filter, with which hanging transactions are found",
    source="KIP-994; TransactionStateManager.listTransactionStates",
    sentence="ListTransactions with a duration lists the transactional ids whose transaction began longer ago than that; a "
    "negative one is no filter.",
    accepted="with 0 ms and with -1 all; with an hour those alone that never had a transaction, whose start time is -1",
    since="3.8",
    apis=TRANSACTIONS | {"ListTransactions": LIST_DURATION},
)
def listed_by_duration(broker: Broker) -> None:
    clients = in_several_states(broker)
    names = [client.name for client in clients.values()]
    for duration_ms, states in ((NO_TIME, set(clients)), (0, set(clients)), (3_600_000, {EMPTY})):
        _, found = list_transactions(broker, names, duration_filter=duration_ms)
        wanted = sorted(clients[state].name for state in states)
        broker.expect_equal(f"longer than {duration_ms} ms", sorted(found), wanted)


@requirement(
    "TXN-42",
    notices="tool: kafka-transactions list --transactional-id-pattern; a bad pattern must not hold the coordinator up",
    source="KIP-1152; TransactionStateManager.listTransactionStates",
    sentence="ListTransactions with a pattern lists the transactional ids that match it as a whole. Patterns are of RE2's "
    "syntax, and none takes for ever; what RE2 has not, as looking around, is INVALID_REGULAR_EXPRESSION.",
    accepted="the id for its own name and for its beginning and .*, not for its beginning; all for an empty pattern; flags "
    "within the pattern, classes of characters and quoted text as RE2 has them; an answer to tg-(a+)+$; "
    "INVALID_REGULAR_EXPRESSION(128)",
    since="4.1",
    apis=TRANSACTIONS | {"ListTransactions": LIST_PATTERN},
)
def listed_by_pattern(broker: Broker) -> None:
    clients = [TransactionalClient(broker, CLASSIC, broker.unused_name(f"txn-{stem}")) for stem in ("one", "two")]
    one, two = (client.name for client in clients)
    for pattern, wanted in (
        (one, [one]),
        (one[:-3], []),
        (one[:-3] + ".*", [one]),
        (".*txn-(one|two).*", [one, two]),
        ("", [one, two]),
        (None, [one, two]),
        (f"{one[:-3]}(?i).*", [one]),
        (f"(?i){one.upper()}", [one]),
        (rf"\Q{one}\E\z", [one]),
        (r"[[:alnum:]._-]+\pL[\w-]+", [one, two]),
    ):
        _, found = list_transactions(broker, [one, two], transactional_id_pattern=pattern)
        broker.expect_equal(f"pattern {pattern}", sorted(found), sorted(wanted))
    for pattern in ("(", "(?=a).*", r"(a)\1", "a++", "a{1001}", "(?>a)"):
        answers, _ = list_transactions(broker, [one], transactional_id_pattern=pattern)
        error = only(answers, "answer").error_code
        broker.expect_error(error, ErrorCode.INVALID_REGULAR_EXPRESSION, what=f"pattern {pattern}, which is none")
    TransactionalClient(broker, CLASSIC, broker.unused_name("a" * MANY_WAYS))
    _, found = list_transactions(broker, [one], transactional_id_pattern="tg-(a+)+$")
    broker.expect_equal("a pattern with many ways to fail", sorted(found), [])


@requirement(
    "TXN-43",
    notices="none seen: clients stay below v4, which brokers use among each other",
    source="KIP-890; AddPartitionsToTxnRequest v4; TransactionCoordinator.handleVerifyPartitionsInTransaction",
    sentence="AddPartitionsToTxn from v4 on, by which brokers ask each other, verifies or adds the partitions of several "
    "transactions.",
    accepted="NONE(0) for added partitions, TRANSACTION_ABORTABLE(120) for others, each transaction with its own; nothing is "
    "added by verifying; INVALID_PRODUCER_ID_MAPPING(49) for an unknown transactional id. Where clients may "
    "not ask (CLUSTER_AUTHORIZATION_FAILED(31)) it is not judged",
    since="3.8",
    apis=TRANSACTIONS | {"AddPartitionsToTxn": BATCHED},
)
def verified(broker: Broker) -> None:
    topic = broker.topic(2)
    one = TransactionalClient(broker, CLASSIC)
    coordinator = broker.coordinator(one.name, TRANSACTION)
    two, stranger = (client_at(broker, coordinator, initialised=known) for known in (True, False))
    stranger.become(*one.identity)
    one.add(topic)
    two.add(topic, 1)
    yes, no = ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE
    unmapped = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    for version in range(BATCHED, broker.version_for(AddPartitionsToTxnRequest) + 1):
        seen = add_for_others(broker, coordinator, [one, two, stranger], topic, version, verify_only=True)
        wanted = {one.name: {0: yes, 1: no}, two.name: {0: no, 1: yes}, stranger.name: {0: unmapped, 1: unmapped}}
        broker.expect_equal(f"v{version}, verified", seen, wanted)
        reported = [list(one.partitions) for one in one.described().topics]
        broker.expect_equal("the partitions of the transaction", reported, [[0]])
    expect_switched_on(broker)
    seen = add_for_others(broker, coordinator, [one], topic, BATCHED, verify_only=False)
    broker.expect_equal("added", seen, {one.name: {0: yes, 1: yes}})
    reported = [sorted(one.partitions) for one in one.described().topics]
    broker.expect_equal("the partitions of the transaction", reported, [[0, 1]])


def client_at(broker: Broker, coordinator: tuple[str, int], *, initialised: bool) -> TransactionalClient:
    """A transactional id with this coordinator."""

    def found() -> TransactionalClient | None:
        name = broker.unused_name("txn")
        at_home = broker.coordinator(name, TRANSACTION) == coordinator
        return TransactionalClient(broker, CLASSIC, name, initialised=initialised) if at_home else None

    return broker.eventually(found, f"a transactional id with coordinator {coordinator}")


def add_for_others(
    broker: Broker,
    coordinator: tuple[str, int],
    clients: Sequence[TransactionalClient],
    topic: Topic,
    version: int,
    *,
    verify_only: bool,
) -> dict[str, dict[int, int]]:
    """The error codes of AddPartitionsToTxn v4+ for two partitions of a topic, by transactional id and partition."""
    table = AddPartitionsToTxnRequest
    asked = [
        table.AddPartitionsToTxnTransaction(
            transactional_id=client.name,
            producer_id=client.id,
            producer_epoch=client.epoch,
            verify_only=verify_only,
            topics=[table.AddPartitionsToTxnTopic(name=topic.name, partitions=[0, 1])],
        )
        for client in clients
    ]
    answer = broker.call(table(transactions=asked), version, to=coordinator)
    if answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        broker.skip("only brokers may ask this")
    broker.expect_error(answer.error_code, ErrorCode.NONE, what=f"AddPartitionsToTxn v{version}")
    return {
        one.transactional_id: {
            result.partition_index: result.partition_error_code
            for found in one.topic_results
            for result in found.results_by_partition
        }
        for one in answer.results_by_transaction
    }


@requirement(
    "TXN-44",
    notices="tool: kafka-transactions abort ends hanging transactions with it, by Java's Admin.abortTransaction",
    source="KIP-98; KafkaApis.handleWriteTxnMarkersRequest; ProducerAppendInfo.appendEndTxnMarker",
    sentence="WriteTxnMarkers, by which coordinators end a transaction in its partitions, writes one control batch for each "
    "marker, and refuses one of an older epoch or of no producer.",
    accepted="NONE(0) and one control batch of that producer id and epoch, after which the records are stable; the same marker "
    "again is another control batch; INVALID_PRODUCER_EPOCH(47) for an older epoch; UNKNOWN_SERVER_ERROR(-1) for producer "
    "id or epoch -1, and nothing is written; UNKNOWN_TOPIC_OR_PARTITION(3). Where clients may "
    "not ask (CLUSTER_AUTHORIZATION_FAILED(31)) it is not judged",
    apis=TRANSACTIONS | {"WriteTxnMarkers": 1},
)
def markers_from_outside(broker: Broker) -> None:
    for version in range(1, broker.version_for(WriteTxnMarkersRequest) + 1):
        with broker.case(f"v{version}"):
            topic = broker.topic()
            client = TransactionalClient(broker, CLASSIC)
            client.init()
            client.write(topic, b"x")
            id, epoch = client.identity
            agreed = {0: ErrorCode.NONE, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            for what, nobody in (("no producer id", (NO_ID, epoch)), ("no epoch", (id, NO_ID))):
                seen = write_markers(broker, topic, nobody, version)
                broker.expect_error(seen[0], ErrorCode.UNKNOWN_SERVER_ERROR, what=what)
            for what, reported, error in (
                ("an older epoch", epoch - 1, ErrorCode.INVALID_PRODUCER_EPOCH),
                ("the epoch", epoch, ErrorCode.NONE),
                ("the same again", epoch, ErrorCode.NONE),
                ("a later epoch", epoch + 1, ErrorCode.NONE),
                ("the epoch before it", epoch, ErrorCode.INVALID_PRODUCER_EPOCH),
            ):
                seen = write_markers(broker, topic, (id, reported), version)
                broker.expect_equal(what, seen, agreed | {0: error})
            log = [(one.producer_id, one.producer_epoch, one.kind) for one in markers(broker.log(topic))]
            reported = [(id, epoch, COMMIT), (id, epoch, COMMIT), (id, epoch + 1, COMMIT)]
            broker.expect_equal("the control batches", log, reported)
            broker.expect_equal("the last stable offset", broker.end_offset(topic, isolation=READ_COMMITTED), 4)


def write_markers(broker: Broker, topic: Topic, identity: tuple[int, int], version: int) -> dict[int, int]:
    """The error codes by partition of WriteTxnMarkers, for a commit in partition 0 and in one that does not exist."""
    table = WriteTxnMarkersRequest
    marker = table.WritableTxnMarker(
        producer_id=identity[0],
        producer_epoch=identity[1],
        transaction_result=True,
        coordinator_epoch=0,
        topics=[table.WritableTxnMarkerTopic(name=topic.name, partition_indexes=[0, 7])],
    )
    answer = broker.call(table(markers=[marker]), version, to=broker.leader(topic))
    found = only(only(answer.markers, "marker in the answer").topics, "topic in the answer").partitions
    errors = AnswerParts({one.partition_index: one.error_code for one in found})
    if set(errors.values()) == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}:
        broker.skip("only brokers may ask this")
    return errors


untestable(
    "TXN-45",
    notices="none seen: no client of a released Kafka keeps prepared transactions yet",
    source="KIP-939 (two-phase commit); InitProducerId v6",
    sentence="InitProducerId with keep_prepared_txn gives the open transaction back to who must still end it.",
    reason="Kafka 4.3.1 does not advertise InitProducerId v6, and where unstable versions are enabled answers "
    "UNSUPPORTED_VERSION to keep_prepared_txn: there is no judge yet",
)
