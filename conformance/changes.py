"""Changes between Apache Kafka releases that several requirements must know, with the release and the KIP or issue."""

from conformance.batches import CODECS
from conformance.broker import METADATA_WITH_EPOCHS, Broker
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.fetch import FetchRequest
from reference.protocol.messages.metadata import MetadataRequest
from reference.protocol.messages.produce import ProduceRequest

PRODUCE_WITH_ZSTD = 7
FETCH_WITH_EPOCHS = 9


def codecs(broker: Broker) -> dict[str, int]:
    """The codecs that the target knows: zstd came with Produce v7 (2.1, KIP-110)."""
    with_zstd = broker.version_for(ProduceRequest) >= PRODUCE_WITH_ZSTD
    return {name: codec for name, codec in CODECS.items() if name != "zstd" or with_zstd}


def has_leader_epochs(broker: Broker) -> bool:
    """Whether Metadata reports leader epochs and Fetch requests may carry them: Metadata v7, Fetch v9 (2.1, KIP-320)."""
    return (
        broker.version_for(MetadataRequest) >= METADATA_WITH_EPOCHS
        and broker.version_for(FetchRequest) >= FETCH_WITH_EPOCHS
    )


def refusals(broker: Broker, accepted: tuple[ErrorCode, ...]) -> tuple[tuple[ErrorCode, ...], set[ErrorCode]]:
    """The errors that are accepted as a refusal of records, and those that are tolerated. INVALID_RECORD(87) came with 2.4
    (KIP-467); before, Kafka returned CORRUPT_MESSAGE(2) instead."""
    if broker.is_kafka("2.4") or ErrorCode.INVALID_RECORD not in accepted:
        return accepted, set()
    others = tuple(code for code in accepted if code != ErrorCode.INVALID_RECORD)
    return (ErrorCode.CORRUPT_MESSAGE, *others), {ErrorCode.INVALID_RECORD}


def closes_on_unreadable_batches(broker: Broker) -> bool:
    """Whether a Produce whose batches cannot be walked through closes the connection: before 2.8 (KAFKA-9628) Kafka validated
    batches while it parsed the request; before 2.2 (KAFKA-7549) against every rule of v3."""
    return not broker.is_kafka("2.8")
