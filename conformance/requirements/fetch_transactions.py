"""FET: transactional records in fetch responses."""

# A loop over the versions that are served always runs.
# pyright: reportPossiblyUnboundVariable=false

from conformance.batches import batch, values
from conformance.broker import Broker
from conformance.requirement import requirement
from conformance.transactions import TransactionalProducer
from linearizability.client.requests import READ_COMMITTED, READ_UNCOMMITTED
from reference.protocol.errors import ErrorCode


@requirement(
    "FET-14",
    notices="data: consumers drop by this list alone; what is missing shows aborted records, what is too much hides others",
    source="UnifiedLog.read (addAbortedTransactions); KIP-98",
    sentence="A read_committed answer lists the aborted transactions that reach into the returned range, by producer id and "
    "first offset, and no others; a read_uncommitted answer lists none.",
    accepted="the aborted transaction from its first offset up to its marker, not before, not after, not a committed one",
    tolerated="null where nothing is to be listed",
    apis={"AddPartitionsToTxn": 0, "EndTxn": 0},
)
def aborted_transactions(broker: Broker) -> None:
    topic = broker.topic()
    aborting, committing = TransactionalProducer(broker), TransactionalProducer(broker)
    broker.append(topic, batch(b"plain"))
    first = aborting.append(topic, b"a1", b"a2")
    committing.append(topic, b"c")
    aborting.append(topic, b"a3")
    aborting.abort()
    committing.commit()
    marker, end = 5, 7
    broker.expect_equal("the log end offset", broker.end_offset(topic), end)

    def listed(offset: int, isolation: int = READ_COMMITTED) -> list[tuple[int, int]]:
        found = broker.fetch(topic, offset, isolation=isolation).aborted_transactions
        if found is None and isolation == READ_COMMITTED and not broker.tolerances:
            broker.tolerate("null instead of an empty list")  # Java, librdkafka and franz-go read both alike
        return [(one.producer_id, one.first_offset) for one in found or ()]

    broker.expect(not listed(0, READ_UNCOMMITTED), "read_uncommitted: nothing is listed")
    for offset in range(end):
        wanted = [(aborting.id, first)] if offset <= marker else []
        broker.expect_equal(f"read_committed from offset {offset}: the list", listed(offset), wanted)
    everything = broker.fetch(topic, 0, isolation=READ_COMMITTED)
    broker.expect_equal(
        "the records, aborted ones too", values(everything.records), [b"plain", b"a1", b"a2", b"c", b"a3"]
    )


@requirement(
    "FET-19",
    notices="data: read_committed consumers get records that are aborted later, or pass over some",
    source="UnifiedLog.lastStableOffset; FetchIsolation.TXN_COMMITTED",
    sentence="While a transaction is open, read_committed gives nothing from its first record on, and names that offset as the "
    "last stable one; read_uncommitted gives everything up to the high watermark.",
    accepted="the records before the transaction, and all; a fetch at the last stable offset is empty without an error; "
    "before 2.1 (KAFKA-7395) read_uncommitted is answered with -1 for the last stable offset",
    tolerated="another last stable offset for read_uncommitted: clients look at the high watermark there",
    apis={"AddPartitionsToTxn": 0, "EndTxn": 0},
)
def below_the_last_stable_offset(broker: Broker) -> None:
    topic = broker.topic()
    producer = TransactionalProducer(broker)
    broker.append(topic, batch(b"before"))
    stable = producer.append(topic, b"open")
    broker.append(topic, batch(b"after"))
    committed = broker.fetch(topic, 0, isolation=READ_COMMITTED)
    uncommitted = broker.fetch(topic, 0, isolation=READ_UNCOMMITTED)
    broker.expect_equal("read_committed: the records", values(broker.log(topic, isolation=READ_COMMITTED)), [b"before"])
    broker.expect_equal("read_uncommitted: the records", values(broker.log(topic)), [b"before", b"open", b"after"])
    for name, found in (("read_committed", committed), ("read_uncommitted", uncommitted)):
        named = stable if committed is found or broker.is_kafka("2.1") else -1
        if found is uncommitted and found.last_stable_offset != named:
            broker.tolerate(f"{name}: the last stable offset is {found.last_stable_offset}, not {named}")
        else:
            broker.expect_equal(f"{name}: the last stable offset", found.last_stable_offset, named)
        broker.expect_equal(f"{name}: the high watermark", found.high_watermark, 3)
    for offset in (stable, 2, 3):
        found = broker.fetch(topic, offset, isolation=READ_COMMITTED)
        broker.expect_error(found.error_code, ErrorCode.NONE, what=f"read_committed at offset {offset}")
        broker.expect_equal("the bytes of records", len(found.records or b""), 0)
    producer.commit()
    found = broker.fetch(topic, 0, isolation=READ_COMMITTED)
    records = values(broker.log(topic, isolation=READ_COMMITTED))
    broker.expect_equal("after the commit: the records", records, [b"before", b"open", b"after"])
    broker.expect_equal("the last stable offset", found.last_stable_offset, 4)
