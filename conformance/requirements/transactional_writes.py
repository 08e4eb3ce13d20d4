"""TXN: writes in a transaction: the batches that a partition accepts, the offsets that a group accepts, their preconditions."""

from collections.abc import Iterator
from typing import Any

from conformance.answers import AnswerParts, error_name, only
from conformance.batches import TRANSACTIONAL, batch, idempotent, patched, values
from conformance.broker import Broker
from conformance.requirement import requirement
from conformance.requirements.coordinators import OFFSETS, java_hash, offsets_partitions
from conformance.steps import OF_ANOTHER_EPOCH, refused_by_epoch
from conformance.transaction_client import (
    CLASSIC,
    EMPTY,
    IMPLICIT,
    NO_ID,
    ONGOING,
    TRANSACTIONS,
    Protocol,
    TransactionalClient,
    expect_agreed,
    expect_verified,
    in_each_protocol,
)
from linearizability.client.requests import READ_COMMITTED, Topic, produce_request
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from reference.protocol.messages.produce import ProduceRequest

TRANSACTIONAL_SINCE = 3
"""The first version of Produce with a transactional id."""
ABORTABLE_PRODUCE, ABORTABLE_OFFSETS = 11, 4
"""The first versions of Produce and TxnOffsetCommit with the error TRANSACTION_ABORTABLE."""
PLAIN = 0
"""The attributes of a batch that is not transactional."""


def classic_produce_versions(broker: Broker) -> range:
    """The versions of Produce in which a partition must be added to the transaction first."""
    lowest, highest = broker.versions_of(ProduceRequest)
    return range(max(lowest, TRANSACTIONAL_SINCE), min(highest, CLASSIC.produce) + 1)


def results_of(answer: Any) -> dict[int, int]:
    """The error code of each partition in a Produce response."""
    return AnswerParts({one.index: one.error_code for topic in answer.responses for one in topic.partition_responses})


def expect_end(broker: Broker, topic: Topic, end: int, partition: int = 0) -> None:
    """Expect this log end offset: no other record was appended."""
    broker.expect_equal(f"the log end offset of partition {partition}", broker.end_offset(topic, partition), end)


@requirement(
    "TXN-16",
    notices="stuck: a late write opens a transaction that no producer ends, and read_committed consumers wait for ever (KIP-890)",
    source="KIP-890; ReplicaManager.handleProduceAppend; TransactionCoordinator.handleVerifyPartitionsInTransaction",
    sentence="Produce below v12 in a transaction to a partition that was not added is refused, and nothing appended, whether "
    "the transaction is open or not.",
    accepted="INVALID_TXN_STATE(48) below v11, TRANSACTION_ABORTABLE(120) in v11; once the partition is added it takes the batch",
    tolerated="INVALID_TXN_STATE(48) in v11, too",
    since="3.8",
    apis=TRANSACTIONS,
    exclusive=True,  # Kafka verifies several partitions in one request, and answers all by the version of the first
)
def partitions_that_were_not_added(broker: Broker) -> None:
    expect_verified(broker)
    for version in classic_produce_versions(broker):
        abortable = version >= ABORTABLE_PRODUCE
        wanted = ErrorCode.TRANSACTION_ABORTABLE if abortable else ErrorCode.INVALID_TXN_STATE
        with broker.case(f"v{version}"):
            topic = broker.topic(2)
            client = TransactionalClient(broker, CLASSIC)
            result = client.produce(topic, b"x", version=version)
            refused = {ErrorCode.INVALID_TXN_STATE}
            broker.expect_error(result.error_code, wanted, tolerated=refused, what="no transaction is open")
            expect_agreed("AddPartitionsToTxn", client.add(topic, 1))
            result = client.produce(topic, b"x", version=version)
            broker.expect_error(result.error_code, wanted, tolerated=refused, what="another partition was added")
            expect_end(broker, topic, 0)
            expect_agreed("AddPartitionsToTxn", client.add(topic, 0))
            result = client.produce(topic, b"x", version=version)
            broker.expect_error(result.error_code, ErrorCode.NONE, what="it was added")
            expect_end(broker, topic, 1)


@requirement(
    "TXN-18",
    notices="stuck: Java 4 sends no AddPartitionsToTxn where the broker finalized transaction.version 2",
    source="KIP-890 (part 2); ProduceRequest v12, TxnOffsetCommitRequest v5",
    sentence="Produce v12 and TxnOffsetCommit v5 add their partitions to the transaction, and open it, by themselves.",
    accepted="NONE(0) without AddPartitionsToTxn and AddOffsetsToTxn; Ongoing, with the topic's partitions and the one of "
    "__consumer_offsets; all count after the commit",
    since="4.0",
    apis=TRANSACTIONS | {"Produce": 12, "TxnOffsetCommit": 5, "EndTxn": 5},
)
def partitions_add_themselves(broker: Broker) -> None:
    for version in range(IMPLICIT.produce, broker.version_for(ProduceRequest) + 1):
        with broker.case(f"Produce v{version}"):
            topic, group = broker.topic(3), broker.unused_name("group")
            client = TransactionalClient(broker, IMPLICIT)
            batches = {(topic, partition): in_transaction(client, 0, b"x") for partition in (0, 1)}
            request = produce_request(batches, transactional_id=client.name)
            errors = results_of(broker.call(request, version, to=broker.leader(topic)))
            broker.expect_equal("two partitions in one request", errors, {0: ErrorCode.NONE, 1: ErrorCode.NONE})
            result = client.produce(topic, b"x", partition=2, version=version)
            broker.expect_error(result.error_code, ErrorCode.NONE, what="a third partition")
            client.write_offsets(group, {(topic, 0): 7})
            reported = {one.topic: sorted(one.partitions) for one in client.described().topics}
            broker.expect_equal("the topic's partitions in the transaction", reported.get(topic.name), [0, 1, 2])
            if offsets_partitions(broker):  # else the target keeps groups in another place
                broker.expect_equal("the other partitions", len(reported.get(OFFSETS, [])), 1)
            client.finish(committed=True)
            ends = [broker.end_offset(topic, partition, isolation=READ_COMMITTED) for partition in range(3)]
            broker.expect_equal("the last stable offsets", ends, [2, 2, 2])


def in_transaction(client: TransactionalClient, sequence: int, *records: bytes) -> bytes:
    """A transactional batch with the client's producer id and epoch."""
    return patched(idempotent(records, client.id, client.epoch, sequence), attributes=TRANSACTIONAL)


@requirement(
    "TXN-19",
    notices="none seen: producers with a transactional id write transactional batches only",
    source="ProducerAppendInfo.appendDataBatch; UnifiedLog.analyzeAndValidateProducerState",
    sentence="A batch that is not transactional, of a producer whose transaction is open in the partition, is "
    "INVALID_TXN_STATE.",
    accepted="INVALID_TXN_STATE(48), with and without the transactional id in the request; nothing appended; the transaction "
    "goes on",
    apis=TRANSACTIONS,
)
def not_transactional(broker: Broker) -> None:
    def judge(protocol: Protocol) -> None:
        topic = broker.topic()
        client = TransactionalClient(broker, protocol)
        client.write(topic, b"x")
        for what, name in (("with the transactional id", client.name), ("without", None)):
            result = client.produce(topic, b"plain", attributes=PLAIN, sequence=1, transactional_id=name)
            broker.expect_error(result.error_code, ErrorCode.INVALID_TXN_STATE, what=what)
        expect_end(broker, topic, 1)
        client.write(topic, b"y")
        client.finish(committed=True)
        broker.expect_equal("the records", values(broker.log(topic, isolation=READ_COMMITTED)), [b"x", b"y"])

    in_each_protocol(broker, judge)


@requirement(
    "TXN-21",
    since="2.1",
    notices="stuck: it opens a transaction that no coordinator knows, and read_committed consumers wait for ever",
    source="KafkaApis.handleProduceRequest (authorization of the transactional id)",
    sentence="A produce request that has a transactional batch but no transactional id is refused as a whole with "
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED.",
    accepted="TRANSACTIONAL_ID_AUTHORIZATION_FAILED(53) for each partition, also for a plain batch beside it; nothing appended",
    tolerated="another error, and a plain batch that is taken: no client sends either, and what is not appended opens nothing",
    apis=TRANSACTIONS,
)
def without_a_transactional_id(broker: Broker) -> None:
    topic = broker.topic(2)
    client = TransactionalClient(broker, CLASSIC)
    client.add_all({topic.name: [0, 1]})
    refused, taken = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, 0
    others = {*ErrorCode} - {ErrorCode.NONE, *OF_ANOTHER_EPOCH}  # the epoch is the client's own, unless TXN-01 fails
    for version in range(TRANSACTIONAL_SINCE, broker.version_for(ProduceRequest) + 1):
        result = client.produce(topic, b"x", version=version, transactional_id=None)
        request = produce_request({(topic, 0): in_transaction(client, 0, b"x"), (topic, 1): batch(b"plain")})
        errors = results_of(broker.call(request, version, to=broker.leader(topic)))
        with refused_by_epoch("TXN-01"):
            for what, code in (("", result.error_code), (", beside a plain batch", errors[0])):
                broker.expect_error(code, refused, tolerated=others, what=f"v{version}{what}")
        taken += errors[1] == ErrorCode.NONE
        broker.expect_error(errors[1], refused, tolerated={*ErrorCode}, what=f"v{version}, the plain batch")
    for partition, end in ((0, 0), (1, taken)):
        expect_end(broker, topic, end, partition)


@requirement(
    "TXN-33",
    notices="stuck: Java and librdkafka count like this; by another rule each batch is out of order",
    source="KIP-890; ProducerStateManager; TransactionCoordinator.endTransaction",
    sentence="Sequences go on over the transactions of an epoch, whether they were committed or aborted, and begin at 0 again "
    "with each epoch.",
    accepted="before KIP-890 the next sequence, and OUT_OF_ORDER_SEQUENCE_NUMBER(45) for a gap; since then 0 in each "
    "transaction, and 45 for any other",
    apis=TRANSACTIONS,
)
def sequences_over_transactions(broker: Broker) -> None:
    def judge(protocol: Protocol) -> None:
        topic = broker.topic()
        client = TransactionalClient(broker, protocol)
        following, end = 0, 0
        for committed in (True, False, True):
            if protocol.adds:
                expect_agreed("AddPartitionsToTxn", client.add(topic))
            due = following if protocol.adds else 0
            if end:
                gap = client.produce(topic, b"x", sequence=due + 2)
                broker.expect_error(gap.error_code, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, what=f"{due + 2} for {due}")
            for sequence in (due, due + 1):
                result = client.produce(topic, b"x", sequence=sequence)
                broker.expect_error(result.error_code, ErrorCode.NONE, what=f"sequence {sequence}")
            client.finish(committed=committed)
            following, end = due + 2, end + 3
            expect_end(broker, topic, end)

    in_each_protocol(broker, judge)


def writes_of_others(broker: Broker, protocol: Protocol, topic: Topic) -> Iterator[tuple[str, int, ErrorCode]]:
    """Produce and TxnOffsetCommit with wrong producer ids, epochs or transactional ids: (description, error, Kafka's error)."""
    expect_verified(broker)
    group = broker.unused_name("group")
    client = TransactionalClient(broker, protocol)
    client.init()
    id, epoch = client.identity
    stranger = TransactionalClient(broker, protocol, initialised=False)
    unmapped, fenced = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_EPOCH
    for who, identity, error, what in (
        (stranger, (id, epoch), unmapped, "an unknown transactional id"),
        (client, (id + 5000, epoch), unmapped, "another producer id"),
        (client, (id, epoch - 1), fenced, "an old epoch"),
        (client, (id, epoch + 1), fenced, "a future epoch"),
    ):
        yield f"Produce, {what}", who.produce(topic, b"x", identity=identity, sequence=0).error_code, error
        for code in who.commit_offsets(group, {(topic, 0): 1}, identity=identity).values():
            yield f"TxnOffsetCommit, {what}", code, error
    broker.expect_equal("the state", client.state(), EMPTY)


@requirement(
    "TXN-34",
    notices="data: a producer that was replaced, or whose id expired, writes and commits on",
    source="KIP-890; ReplicaManager.handleProduceAppend; GroupCoordinatorService.commitTransactionalOffsets",
    sentence="Produce and TxnOffsetCommit of a transactional id or producer id that the coordinator does not know, or of another "
    "epoch, are refused. A batch of no producer is in no transaction, whatever its attributes say.",
    accepted="an error, whatever it is, and nothing appended; NONE(0) for producer id, epoch and sequence -1, stable at once",
    tolerated="a batch of no producer that is refused: no client sends one with the attributes of a transaction",
    since="3.8",
    apis=TRANSACTIONS,
)
def writes_of_somebody_else(broker: Broker) -> None:
    def judge(protocol: Protocol) -> None:
        topic = broker.topic()
        for what, code, _ in writes_of_others(broker, protocol, topic):
            broker.expect(code != ErrorCode.NONE, f"{what} is refused: {error_name(code)}")
        expect_end(broker, topic, 0)
        client = TransactionalClient(broker, protocol)
        result = client.produce(topic, b"x", identity=(NO_ID, NO_ID), sequence=-1)
        if result.error_code != ErrorCode.NONE:
            broker.tolerate(f"Produce, no producer: {error_name(result.error_code)}")
            return
        broker.expect_equal("the last stable offset", broker.end_offset(topic, isolation=READ_COMMITTED), 1)

    in_each_protocol(broker, judge)


@requirement(
    "TXN-50",
    notices="client: Java's producer begins again after 49 alone, and may send a batch again for two minutes on 59",
    source="TransactionManager.beginCompletingTransaction, canRetry (Java); ReplicaManager.handleProduceAppend",
    sentence="Produce and TxnOffsetCommit of a transactional id or producer id that the coordinator does not know are "
    "INVALID_PRODUCER_ID_MAPPING; of another epoch INVALID_PRODUCER_EPOCH.",
    accepted="INVALID_PRODUCER_ID_MAPPING(49) and INVALID_PRODUCER_EPOCH(47)",
    tolerated="PRODUCER_FENCED(90) for another epoch, which Java takes for the same",
    since="3.8",
    apis=TRANSACTIONS,
    requires=("TXN-34",),
)
def codes_for_writes_of_others(broker: Broker) -> None:
    def judge(protocol: Protocol) -> None:
        for what, code, error in writes_of_others(broker, protocol, broker.topic()):
            same = {ErrorCode.PRODUCER_FENCED} if error == ErrorCode.INVALID_PRODUCER_EPOCH else ()
            broker.expect_error(code, error, tolerated=same, what=what)

    in_each_protocol(broker, judge)


@requirement(
    "TXN-35",
    notices="data: offsets in a partition that the transaction does not have get no marker, and are lost",
    source="KIP-98; KafkaApis.handleAddOffsetsToTxnRequest (partitionFor the group)",
    sentence="AddOffsetsToTxn opens a transaction with the partition of __consumer_offsets in which the group's offsets are.",
    accepted="NONE(0) in every version; Ongoing, with the partition that Java's hash of the group's name gives",
    tolerated="no such partition where the coordinator keeps the offsets itself: TXV-08 looks at these",
    apis=TRANSACTIONS | {"AddOffsetsToTxn": 0},
)
def the_groups_partition(broker: Broker) -> None:
    for version in range(broker.versions_of(AddOffsetsToTxnRequest)[0], broker.version_for(AddOffsetsToTxnRequest) + 1):
        group = broker.unused_name(f"group-{version}")
        broker.coordinator(group)
        client = TransactionalClient(broker, CLASSIC)
        broker.expect_error(client.add_offsets(group, version=version), ErrorCode.NONE, what=f"v{version}")
        found = client.described()
        partitions = offsets_partitions(broker)
        if not partitions:
            broker.skip(f"the target has no topic {OFFSETS}: it keeps groups in another place")
        wanted = abs(java_hash(group)) % len(partitions)
        if found.transaction_state == ONGOING and not any(one.topic == OFFSETS for one in found.topics):
            broker.tolerate(f"v{version}: no partition of {OFFSETS} is described")
            continue
        reported = found.transaction_state, [(one.topic, list(one.partitions)) for one in found.topics]
        broker.expect_equal(f"v{version}: what is open", reported, (ONGOING, [(OFFSETS, [wanted])]))
        client.finish(committed=True)


@requirement(
    "TXN-36",
    notices="stuck: offsets of a late commit stay pending, and consumers with require_stable wait for ever (KIP-890)",
    source="KIP-890; GroupCoordinatorService.commitTransactionalOffsets",
    sentence="TxnOffsetCommit below v5 of a group that was not added to the transaction is refused.",
    accepted="INVALID_TXN_STATE(48) below v4, TRANSACTION_ABORTABLE(120) in v4, whether a transaction is open or not; NONE(0) "
    "after AddOffsetsToTxn",
    tolerated="another error: a client that adds groups as the protocol has it receives none, and no offset is left pending",
    since="3.8",
    apis=TRANSACTIONS | {"TxnOffsetCommit": 0},
    exclusive=True,  # as TXN-16
)
def groups_that_were_not_added(broker: Broker) -> None:
    expect_verified(broker)
    topic = broker.topic()
    for version in range(CLASSIC.commit_offsets + 1):
        abortable = version >= ABORTABLE_OFFSETS
        wanted = ErrorCode.TRANSACTION_ABORTABLE if abortable else ErrorCode.INVALID_TXN_STATE
        with broker.case(f"v{version}"):
            client, group = TransactionalClient(broker, CLASSIC), broker.unused_name("group")
            others = {*ErrorCode} - {ErrorCode.NONE}
            for what, error in (("no transaction is open", wanted), ("a partition was added", wanted)):
                codes = AnswerParts(client.commit_offsets(group, {(topic, 0): 1}, version=version))
                broker.expect_error(codes[topic.name, 0], error, tolerated=others, what=what)
                expect_agreed("AddPartitionsToTxn", client.add(topic))
            expect_agreed("AddOffsetsToTxn", client.add_offsets(group))
            codes = client.commit_offsets(group, {(topic, 0): 1}, version=version)
            broker.expect_equal("the group was added", codes, {(topic.name, 0): ErrorCode.NONE})


@requirement(
    "TXN-37",
    notices="data: a member that lost its partitions commits over the one that has them now: records are processed twice",
    source="KIP-447; ClassicGroup.validateOffsetCommit",
    sentence="TxnOffsetCommit that names a member or generation which the group does not have is refused; one that names none "
    "is taken.",
    accepted="ILLEGAL_GENERATION(22) or UNKNOWN_MEMBER_ID(25) of a group that does not exist, and of one without members (before "
    "3.0 generation 0 is taken); NONE(0) without a generation",
    since="2.5",
    apis=TRANSACTIONS | {"TxnOffsetCommit": 3},
)
def members_of_the_group(broker: Broker) -> None:
    def judge(protocol: Protocol) -> None:
        topic, group = broker.topic(), broker.unused_name("group")
        client = joined_transaction(broker, protocol, group)
        refusals = (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)
        for what in ("no group", "no members"):
            for generation, member in ((1, "nobody"), (1, ""), (0, "")):
                if generation or broker.is_kafka("3.0"):  # before, 0 is the generation of every group without members
                    code = commit_as(client, group, topic, generation, member)
                    broker.expect_error(code, *refusals, what=f"{what}, generation {generation}, member {member!r}")
            broker.expect_error(commit_as(client, group, topic, -1, ""), ErrorCode.NONE, what=f"{what}, no generation")
        client.finish(committed=True)

    in_each_protocol(broker, judge)


def joined_transaction(broker: Broker, protocol: Protocol, group: str) -> TransactionalClient:
    """A producer whose transaction includes the group's offsets."""
    client = TransactionalClient(broker, protocol)
    if protocol.adds:
        expect_agreed("AddOffsetsToTxn", client.add_offsets(group))
    return client


def commit_as(client: TransactionalClient, group: str, topic: Topic, generation: int, member: str) -> int:
    """The error code of TxnOffsetCommit for one partition."""
    codes = client.commit_offsets(group, {(topic, 0): 2}, generation=generation, member=member)
    return only(list(codes.values()), "partition in the answer")


@requirement(
    "TXN-49",
    notices="none seen: Java and librdkafka abort the transaction on either code",
    source="KIP-447; ClassicGroup.validateOffsetCommit",
    sentence="TxnOffsetCommit in a generation of a group without members is UNKNOWN_MEMBER_ID.",
    accepted="UNKNOWN_MEMBER_ID(25) for generations 0 and 1, with a member and without",
    since="3.0",
    apis=TRANSACTIONS | {"TxnOffsetCommit": 3},
    requires=("TXN-37",),
)
def unknown_members_of_the_group(broker: Broker) -> None:
    def judge(protocol: Protocol) -> None:
        topic, group = broker.topic(), broker.unused_name("group")
        client = joined_transaction(broker, protocol, group)
        broker.expect_error(commit_as(client, group, topic, -1, ""), ErrorCode.NONE, what="the group comes to be")
        for generation, member in ((1, "nobody"), (1, ""), (0, "")):
            code = commit_as(client, group, topic, generation, member)
            broker.expect_error(code, ErrorCode.UNKNOWN_MEMBER_ID, what=f"generation {generation}, member {member!r}")
        client.finish(committed=True)

    in_each_protocol(broker, judge)


@requirement(
    "TXN-38",
    since="2.1",
    notices="client: Java and librdkafka ask again with what was refused, and else end the transaction for one deleted topic",
    source="KafkaApis.handleTxnOffsetCommitRequest",
    sentence="TxnOffsetCommit for a topic or partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION; the others of the "
    "request are taken.",
    accepted="UNKNOWN_TOPIC_OR_PARTITION(3) and NONE(0)",
    apis=TRANSACTIONS | {"TxnOffsetCommit": 0},
)
def offsets_of_what_does_not_exist(broker: Broker) -> None:
    def judge(protocol: Protocol) -> None:
        topic, group = broker.topic(), broker.unused_name("group")
        nowhere = Topic(broker.unused_name(), topic.id, 1)
        client = TransactionalClient(broker, protocol)
        if protocol.adds:
            expect_agreed("AddOffsetsToTxn", client.add_offsets(group))
        codes = client.commit_offsets(group, {(topic, 0): 1, (topic, 9): 2, (nowhere, 0): 3})
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        wanted = {(topic.name, 0): ErrorCode.NONE, (topic.name, 9): unknown, (nowhere.name, 0): unknown}
        broker.expect_equal("the answer", codes, wanted)
        client.finish(committed=True)

    in_each_protocol(broker, judge)
