"""TXV: visibility of transactions. A read_committed consumer sees nothing of one before its end, then all or nothing."""

from conformance.answers import only
from conformance.batches import batch, values
from conformance.broker import Broker
from conformance.markers import ABORT, COMMIT, markers
from conformance.read_committed import expect_committed
from conformance.requirement import requirement
from conformance.steps import about
from conformance.transaction_client import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    TRANSACTIONS,
    Protocol,
    TransactionalClient,
    expect_agreed,
    expect_verified,
    in_each_protocol,
)
from linearizability.client.requests import READ_COMMITTED, READ_UNCOMMITTED, delete_topics_request
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.delete_topics import DeleteTopicsRequest

PARTITIONS = 5


@requirement(
    "TXV-01",
    notices="data: read_committed consumers pass over records of the open transaction, or read aborted ones",
    source="KIP-98; UnifiedLog.lastStableOffset",
    sentence="While a transaction is open, read_committed sees nothing from its first record in the partition on: neither "
    "plain records nor those of transactions that were committed since.",
    accepted="the records before it; the others when it has ended; another partition is not held up",
    apis=TRANSACTIONS,
)
def behind_an_open_transaction(broker: Broker) -> None:
    def judge(protocol: Protocol) -> None:
        topic = broker.topic(2)
        slow, quick = TransactionalClient(broker, protocol), TransactionalClient(broker, protocol)
        broker.append(topic, batch(b"before"))
        slow.write(topic, b"open")
        quick.write(topic, b"quick")
        quick.write(topic, b"elsewhere", partition=1)
        quick.finish(committed=True)
        broker.append(topic, batch(b"plain"))
        expect_committed(broker, "while it is open", topic, b"before")
        expect_committed(broker, "in the other partition", topic, b"elsewhere", partition=1)
        slow.finish(committed=True)
        expect_committed(broker, "when it has ended", topic, b"before", b"open", b"quick", b"plain")

    in_each_protocol(broker, judge)


@requirement(
    "TXV-02",
    notices="data: read_committed consumers read part of a transaction, or one that was aborted",
    source="KIP-98; FetchResponse.AbortedTransactions",
    sentence="After a commit all records of the transaction count, in every partition; after an abort none ever does.",
    accepted="a read_committed consumer, who leaves out what the answers list as aborted, gets all of them, or none, in each of "
    "three partitions, and the plain records between them",
    apis=TRANSACTIONS,
)
def all_or_nothing(broker: Broker) -> None:
    def judge(protocol: Protocol) -> None:
        topic = broker.topic(3)
        client = TransactionalClient(broker, protocol)
        wanted: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
        for number, ends_well in enumerate((True, False, False, True)):
            for partition, counting in wanted.items():
                own = [b"%d-%d-%d" % (number, partition, each) for each in range(3)]
                client.write(topic, *own[:2], partition=partition)
                plain = b"plain-%d" % number
                broker.append(topic, batch(plain), partition=partition)
                client.write(topic, own[2], partition=partition)
                counting += [*own[:2], plain, own[2]] if ends_well else [plain]
            client.finish(committed=ends_well)
        for partition, counting in wanted.items():
            expect_committed(broker, f"partition {partition}", topic, *counting, partition=partition)

    in_each_protocol(broker, judge)


@requirement(
    "TXV-03",
    notices="data: read_uncommitted consumers lose the records that are open or aborted",
    source="KIP-98; FetchIsolation.HIGH_WATERMARK",
    sentence="read_uncommitted sees the records of open and of aborted transactions, and learns of no aborted ones.",
    accepted="all records in the order of the log, before and after the abort; no aborted transactions are listed",
    apis=TRANSACTIONS,
)
def uncommitted_reads(broker: Broker) -> None:
    def judge(protocol: Protocol) -> None:
        topic = broker.topic()
        client = TransactionalClient(broker, protocol)
        client.write(topic, b"1")
        broker.append(topic, batch(b"plain"))
        client.write(topic, b"2")
        for reported in ("open", "aborted"):
            found = broker.fetch(topic, 0, isolation=READ_UNCOMMITTED)
            seen = values(broker.log(topic, isolation=READ_UNCOMMITTED))
            broker.expect_equal(f"{reported}: the records", seen, [b"1", b"plain", b"2"])
            broker.expect(not found.aborted_transactions, f"{reported}: no aborted transactions are listed")
            if reported == "open":
                client.finish(committed=False)

    in_each_protocol(broker, judge)


@requirement(
    "TXV-06",
    notices="data: read_committed consumers read up to here: too far shows open records, back shows them twice",
    source="UnifiedLog.lastStableOffset; FetchResponse.LastStableOffset",
    sentence="The last stable offset is the first offset of the earliest open transaction, and the high watermark where none is "
    "open; it never goes back.",
    accepted="the same from ListOffsets and from Fetch, at or below the high watermark, after each step of three transactions "
    "that overlap",
    apis=TRANSACTIONS,
)
def the_last_stable_offset(broker: Broker) -> None:
    def judge(protocol: Protocol) -> None:
        topic = broker.topic()
        one, two, three = (TransactionalClient(broker, protocol) for _ in range(3))

        def expect_stable(what: str, offset: int | None) -> None:
            found = broker.fetch(topic, 0, isolation=READ_COMMITTED)
            end = broker.end_offset(topic)
            stable = end if offset is None else offset
            broker.expect_equal(what, (found.last_stable_offset, found.high_watermark), (stable, end))
            with about("LOF-13"):
                broker.expect_equal(
                    f"{what}: by ListOffsets", broker.end_offset(topic, isolation=READ_COMMITTED), stable
                )

        expect_stable("an empty log", None)
        broker.append(topic, batch(b"plain"))
        expect_stable("a plain record", None)
        one.write(topic, b"1")
        expect_stable("the first is open", 1)
        two.write(topic, b"2")
        three.write(topic, b"3")
        one.write(topic, b"1")
        two.finish(committed=True)
        expect_stable("the second has ended", 1)
        one.finish(committed=False)
        expect_stable("the first has ended", 3)
        one.write(topic, b"1")
        expect_stable("the first begins again", 3)
        three.finish(committed=True)
        expect_stable("the third has ended", 7)
        one.finish(committed=True)
        expect_stable("all have ended", None)

    in_each_protocol(broker, judge)


@requirement(
    "TXV-07",
    notices="data: readers of one partition see a commit, those of another an abort, or wait",
    source="KIP-98; TransactionMarkerChannelManager",
    sentence="When the end of a transaction is seen in one of its partitions, the others follow soon, with the same outcome.",
    accepted="each of five topics gets one marker of the same kind; CompleteCommit and CompleteAbort are reported only when all "
    "have it",
    apis=TRANSACTIONS,
)
def one_outcome(broker: Broker) -> None:
    def judge(protocol: Protocol) -> None:
        topics = [broker.topic() for _ in range(PARTITIONS)]
        client = TransactionalClient(broker, protocol)
        for number, ends_well in enumerate((True, False, True)):
            for topic in topics:
                client.write(topic, b"%d" % number)
            expect_agreed("EndTxn", client.end(committed=ends_well).error_code)
            broker.eventually(
                lambda number=number: any(len(markers(broker.log(topic))) > number for topic in topics),
                "a marker in one of the partitions",
            )
            client.await_state(COMPLETE_COMMIT if ends_well else COMPLETE_ABORT)
            for topic in topics:
                kinds = [marker.kind for marker in markers(broker.log(topic, offset=2 * number))]
                broker.expect_equal(f"the markers in {topic.name}", kinds, [COMMIT if ends_well else ABORT])
        for topic in topics:
            expect_committed(broker, "the committed records", topic, b"0", b"2")

    in_each_protocol(broker, judge)


@requirement(
    "TXV-12",
    since="3.6",
    notices="data: records of a producer that was replaced count beside those that its successor sent again",
    source="KIP-98 (zombie fencing); ProducerAppendInfo.checkProducerEpoch; KAFKA-14402 (before the new one's first write)",
    sentence="A batch of a producer that another one with its transactional id has replaced is refused and never seen, whether "
    "or not the new one has written to the partition.",
    accepted="INVALID_PRODUCER_EPOCH(47) before the new one's first write, while its transaction is open, and after it; the "
    "new one's records alone count",
    tolerated="PRODUCER_FENCED(90) and INVALID_TXN_STATE(48): refused all the same",
    apis=TRANSACTIONS,
)
def zombies(broker: Broker) -> None:
    expect_verified(broker)

    def judge(protocol: Protocol) -> None:
        topic = broker.topic(2)
        old = TransactionalClient(broker, protocol)
        old.write(topic, b"old")
        old.finish(committed=True)
        zombie = old.identity
        new = TransactionalClient(broker, protocol, old.name)

        def refused(what: str) -> None:
            for partition, sequences in ((0, (0, 1)), (1, (0,))):
                for sequence in sequences:
                    result = old.produce(topic, b"late", partition=partition, sequence=sequence, identity=zombie)
                    reported = f"{what}, partition {partition}, sequence {sequence}"
                    broker.expect_error(
                        result.error_code,
                        ErrorCode.INVALID_PRODUCER_EPOCH,
                        tolerated={ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE},
                        what=reported,
                    )

        refused("before the first write")
        new.write(topic, b"new")
        refused("while the new one's is open")
        new.finish(committed=True)
        refused("after it")
        expect_committed(broker, "the committed records", topic, b"old", b"new")
        broker.expect_equal("the log end offset of the other partition", broker.end_offset(topic, 1), 0)

    in_each_protocol(broker, judge)


@requirement(
    "TXV-21",
    notices="stuck: the producer can begin no transaction any more, and readers of the other topics wait",
    source="TransactionMarkerChannelManager.addTxnMarkersToBrokerQueue (partitions that do not exist)",
    sentence="A transaction of which a topic was deleted ends all the same, in its other partitions.",
    accepted="NONE(0) for EndTxn, CompleteCommit or CompleteAbort soon, all records or none in the topic that is left, and the "
    "transactional id's next transaction",
    apis=TRANSACTIONS,
    exclusive=True,
)
def without_a_deleted_topic(broker: Broker) -> None:
    broker.needs_deletion()

    def judge(protocol: Protocol) -> None:
        kept = broker.topic()
        client = TransactionalClient(broker, protocol)
        for ends_well in (False, True):
            gone = broker.topic()
            client.write(kept, b"%d" % ends_well)
            client.write(gone, b"gone")
            version = broker.version_for(DeleteTopicsRequest)
            deleted = broker.call(delete_topics_request([gone.name], version), version)
            expect_agreed("DeleteTopics", only(deleted.responses, "topic in the answer").error_code)
            client.finish(committed=ends_well)
        expect_committed(broker, "the committed records of the other topic", kept, b"1")
        broker.expect_equal("its last stable offset", broker.end_offset(kept, isolation=READ_COMMITTED), 4)

    in_each_protocol(broker, judge)
