"""TXV: transactions in the log: markers and aborted transactions across segments, deletions and restarts."""

import time

from conformance.answers import only
from conformance.batches import CONTROL, NONE, TRANSACTIONAL, Record, batch, batches
from conformance.broker import Broker
from conformance.changes import codecs
from conformance.markers import ABORT, COMMIT, marker_of, markers
from conformance.read_committed import aborted_of, committed, expect_committed
from conformance.requirement import requirement
from conformance.requirements.described_producers import active_producers
from conformance.requirements.idempotence import EXPIRATION_MS, Producer
from conformance.transaction_client import (
    IMPLICIT,
    ONGOING,
    TRANSACTIONS,
    Protocol,
    TransactionalClient,
    expect_agreed,
    in_each_protocol,
    served_protocols,
)
from linearizability.client.requests import READ_COMMITTED

NO_SEQUENCE = -1
MINUTE_MS = 60_000
ROLLS = {"segment.ms": str(MINUTE_MS)}
"""A record more than a minute younger than the segment's first begins a new segment."""
FORGETS = {"producer.id.expiration.ms": str(EXPIRATION_MS), "producer.id.expiration.check.interval.ms": "100"}
PIECE_BYTES = 200
"""A limit of a fetch's bytes so small that each response has one batch."""


@requirement(
    "TXV-04",
    notices="misread: Java, librdkafka and franz-go recognize markers by these attributes, and read offsets from them",
    source="KIP-98; ProducerAppendInfo.appendEndTxnMarker; MemoryRecords.writeEndTransactionalMarker",
    sentence="The end of a transaction is one control batch of one record in each of its partitions, also in those without a "
    "record of it, and takes one offset.",
    accepted="attributes transactional and control, one uncompressed record, the producer's id, base sequence -1, a good "
    "CRC; the next record gets the offset after it",
    tolerated="another base sequence, at which no client looks; no marker where there is no record that it could end",
    apis=TRANSACTIONS,
)
def control_batches(broker: Broker) -> None:
    def judge(protocol: Protocol) -> None:
        topic = broker.topic(2)
        client = TransactionalClient(broker, protocol)
        for number, ends_well in enumerate((True, False)):
            base = 3 * number
            client.write(topic, b"1", b"2")
            if protocol.adds:
                expect_agreed("AddPartitionsToTxn", client.add(topic, 1))
            client.finish(committed=ends_well)
            found = batches(broker.log(topic, offset=base))
            broker.expect_equal("where batches begin", [one.base_offset for one in found], [base, base + 2])
            marker = found[1]
            broker.expect_equal("its attributes", marker.attributes, TRANSACTIONAL | CONTROL | NONE)
            broker.expect_equal("its records", (marker.count, marker.last_offset_delta), (1, 0))
            broker.expect_equal("its producer", marker.producer_id, client.id)
            if marker.base_sequence != NO_SEQUENCE:
                broker.tolerate(f"its base sequence is {marker.base_sequence}")
            broker.expect(marker.crc_holds, "its CRC is good")
            end, ends = broker.end_offset(topic, 1), (number + 1 if protocol.adds else 0)
            if end == 0 != ends:
                broker.tolerate("a partition without a record of it has no marker")
            else:
                broker.expect_equal("the end of the other partition", end, ends)
        broker.expect_equal("the next record's offset", broker.append(topic, batch(b"next")), 6)

    in_each_protocol(broker, judge)


@requirement(
    "TXV-05",
    notices="misread: Java and librdkafka read from this key whether a transaction was aborted",
    source="KIP-98; ControlRecordType; EndTxnMarker schema; KIP-890",
    sentence="A control record's key is version 0 and type 0 for an abort, 1 for a commit; its value is version 0 and the "
    "coordinator's epoch; its batch bears the producer's epoch, since KIP-890 the next one.",
    accepted="those bytes, a coordinator epoch of 0 or more that does not go back",
    apis=TRANSACTIONS,
)
def control_records(broker: Broker) -> None:
    def judge(protocol: Protocol) -> None:
        topic = broker.topic()
        client = TransactionalClient(broker, protocol)
        epochs: list[int] = []
        for kind in (COMMIT, ABORT, ABORT, COMMIT):
            epoch = client.epoch
            offset = client.write(topic, b"x") + 1
            client.finish(committed=kind == COMMIT)
            marker = only(markers(broker.log(topic, offset=offset)), f"marker from offset {offset} on")
            reported = marker.offset, marker.kind, marker.key_version, marker.value_version
            broker.expect_equal("its offset, type and versions", reported, (offset, kind, 0, 0))
            raised = epoch + (protocol is IMPLICIT)
            broker.expect_equal("its producer", (marker.producer_id, marker.producer_epoch), (client.id, raised))
            epochs.append(marker.coordinator_epoch)
        broker.expect(
            epochs[0] >= 0 and epochs == sorted(epochs),
            f"the coordinator's epochs are 0 or more and do not go back: {epochs}",
        )

    in_each_protocol(broker, judge)


@requirement(
    "TXV-13",
    notices="data: a consumer that begins in the middle, or with small fetches, reads aborted records",
    source="TransactionIndex.collectAbortedTxns; UnifiedLog.collectAbortedTransactions",
    sentence="Aborted transactions are listed for each piece of the log that a consumer fetches, however small the pieces and "
    "however many segments the transactions reach over.",
    accepted="the same records count for fetches of the whole log, of one batch at a time, and from every offset on, in a log of "
    "many segments and three transactions at a time",
    apis=TRANSACTIONS,
)
def over_segments_and_pieces(broker: Broker) -> None:
    topic = broker.topic(configs=ROLLS)
    protocols = served_protocols(broker)
    clients = [TransactionalClient(broker, protocols[number % len(protocols)]) for number in range(3)]
    now = int(time.time() * 1000)
    written: list[bytes] = []
    outcome: dict[bytes, bool] = {}
    pending: dict[int, list[bytes]] = {0: [], 1: [], 2: []}

    def finish(number: int) -> None:
        clients[number].finish(committed=number == 1)
        outcome.update(dict.fromkeys(pending[number], number == 1))
        pending[number].clear()

    for minute in range(24):
        number = minute % 3
        value = b"%d of %d" % (minute, number)
        clients[number].write(topic, Record(value, timestamp=now + 2 * minute * MINUTE_MS))
        pending[number].append(value)
        written.append(value)
        if minute % 5 == 4:
            finish(minute // 5 % 3)
    for number in [number for number, values in pending.items() if values]:
        finish(number)
    counting = committed(broker, topic)
    broker.expect_equal(
        "the committed records", [one.value for one in counting], [one for one in written if outcome[one]]
    )
    pieces = committed(broker, topic, partition_max_bytes=PIECE_BYTES)
    broker.expect(pieces == counting, f"{len(pieces)} records are visible in fetches of one batch each")
    for offset in range(broker.end_offset(topic)):
        seen = committed(broker, topic, offset=offset, partition_max_bytes=PIECE_BYTES)
        wanted = [one for one in counting if one.offset >= offset]
        broker.expect(seen == wanted, f"from offset {offset} on {len(seen)} of {len(wanted)} records are visible")


@requirement(
    "TXV-14",
    notices="data: the rest of the transaction counts as something else than its end says",
    source="UnifiedLog.maybeIncrementLogStartOffset; TransactionIndex",
    sentence="DeleteRecords within an open transaction takes the records away, and leaves the transaction: its later records are "
    "still judged by its end.",
    accepted="a last stable offset no lower than the log start; after an abort the rest is listed as aborted, with the "
    "transaction's own first offset",
    apis=TRANSACTIONS | {"DeleteRecords": 0},
)
def deleted_in_between(broker: Broker) -> None:
    def judge(protocol: Protocol) -> None:
        topic = broker.topic()
        client = TransactionalClient(broker, protocol)
        identity = client.id
        broker.append(topic, batch(b"plain"))
        client.write(topic, b"1")
        client.write(topic, b"2")
        broker.append(topic, batch(b"plain"))
        broker.expect_equal("the new start", broker.delete_records(topic, 2), 2)
        broker.expect_equal("the last stable offset", broker.end_offset(topic, isolation=READ_COMMITTED), 2)
        client.write(topic, b"3")
        client.finish(committed=False)
        found = broker.fetch(topic, 2, isolation=READ_COMMITTED)
        broker.expect_equal("the list", aborted_of(found), [(identity, 1)])
        seen = [record.value for record in committed(broker, topic, offset=2)]
        broker.expect_equal("the committed records", seen, [b"plain"])
        broker.expect_equal(
            "the last stable offset", broker.end_offset(topic, isolation=READ_COMMITTED), broker.end_offset(topic)
        )

    in_each_protocol(broker, judge)


@requirement(
    "TXV-15",
    notices="data: after a restart aborted records count, or open transactions never end",
    source="ProducerStateManager (snapshots); TransactionStateManager.loadTransactionMetadata",
    sentence="A restart loses nothing of transactions: open ones stay open, with their partitions, and go on; aborted ones stay "
    "aborted.",
    accepted="the same last stable offset, list of aborted transactions and description before and after; then the open "
    "transaction's next record and its commit count",
    hooks=("restart",),
    apis=TRANSACTIONS,
    deadline_s=120.0,
)
def over_a_restart(broker: Broker) -> None:
    topic = broker.topic()
    clients = [TransactionalClient(broker, protocol) for protocol in served_protocols(broker)]
    for client in clients:
        client.write(topic, b"aborted by %s" % client.protocol.name.encode())
        client.finish(committed=False)
    for client in clients:
        client.write(topic, b"1 of %s" % client.protocol.name.encode())

    def seen() -> tuple[object, ...]:
        found = broker.fetch(topic, 0, isolation=READ_COMMITTED)
        reported = [client.described() for client in clients]
        states = [
            (one.transaction_state, one.producer_id, one.producer_epoch, one.transaction_timeout_ms) for one in reported
        ]
        partitions = [[(listed.topic, list(listed.partitions)) for listed in one.topics] for one in reported]
        return found.last_stable_offset, sorted(aborted_of(found)), states, partitions

    before = seen()
    broker.restart_leader(topic)
    broker.expect_equal("what is reported after the restart", seen(), before)
    for client in clients:
        broker.expect_equal(f"{client.protocol.name}: the state", client.state(), ONGOING)
        client.write(topic, b"2 of %s" % client.protocol.name.encode())
        client.finish(committed=True)
    names = [client.protocol.name.encode() for client in clients]
    wanted = [b"%d of %s" % (number, name) for number in (1, 2) for name in names]
    expect_committed(broker, "the committed records", topic, *wanted)


@requirement(
    "TXV-16",
    notices="data: producers with compression.type lose transactions, or commit what they aborted",
    source="KIP-98; DefaultRecordBatch attributes",
    sentence="Transactional batches may be compressed with any codec; their markers are not.",
    accepted="all records of committed transactions count, in every codec; the control batches bear no codec, and the batches "
    "the one that they were sent with",
    apis=TRANSACTIONS,
)
def compressed(broker: Broker) -> None:
    def judge(protocol: Protocol) -> None:
        topic, known = broker.topic(), codecs(broker)
        client = TransactionalClient(broker, protocol)
        for ends_well in (False, True):
            for name, codec in known.items():
                client.write(topic, b"%s " % name.encode() * 50, b"%d" % ends_well, codec=codec)
            client.finish(committed=ends_well)
        log = batches(broker.log(topic))
        sent = [one.codec for one in log if not one.attributes & CONTROL]
        broker.expect_equal("the codecs of the batches", sent, [*known.values()] * 2)
        ends = [(marker_of(one).kind, one.codec) for one in log if one.attributes & CONTROL]
        broker.expect_equal("the control batches", ends, [(ABORT, NONE), (COMMIT, NONE)])
        wanted = [value for name in known for value in (b"%s " % name.encode() * 50, b"1")]
        expect_committed(broker, "the committed records", topic, *wanted)

    in_each_protocol(broker, judge)


@requirement(
    "TXV-22",
    notices="stuck: the marker is refused or not listed, and read_committed consumers wait or read aborted records",
    source="ProducerStateManager.removeExpiredProducers (isProducerExpired); KIP-854 (producer.id.expiration.ms)",
    sentence="A producer whose transaction is open is not forgotten by the partition, however long it writes nothing.",
    accepted="long after producer.id.expiration.ms the same last stable offset, the next record, and an abort that is listed "
    "with the transaction's first offset; an idempotent producer of the same age is forgotten",
    since="3.4",
    configs=FORGETS,
    apis=TRANSACTIONS | {"DescribeProducers": 0},
    deadline_s=60.0,
)
def older_than_the_expiration(broker: Broker) -> None:
    topic = broker.topic()
    client = TransactionalClient(broker, served_protocols(broker)[-1])
    id = client.id
    first = client.write(topic, b"1")
    idempotent = Producer(broker, topic)
    idempotent.stored(0)
    broker.eventually(
        lambda: idempotent.id not in active_producers(broker, topic), "the idempotent producer is forgotten"
    )
    found = active_producers(broker, topic)
    broker.expect(id in found, f"producer {id} is among {sorted(found)}")
    broker.expect_equal("the first offset of its transaction", found[id].current_txn_start_offset, first)
    broker.expect_equal("the last stable offset", broker.end_offset(topic, isolation=READ_COMMITTED), first)
    client.write(topic, b"2")
    client.finish(committed=False)
    listed = aborted_of(broker.fetch(topic, 0, isolation=READ_COMMITTED))
    broker.expect_equal("the list", listed, [(id, first)])
