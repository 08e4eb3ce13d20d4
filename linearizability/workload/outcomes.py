"""Which errors prove that a send or a commit did not happen, and never will.

librdkafka retries by itself, and reports only the last error of a record. So an error counts as proof only when
every attempt must have ended in it: it depends on the record, not on the moment. NOT_ENOUGH_REPLICAS is no proof: an
earlier attempt may have been appended and its answer lost. Any other error is unknown (`info`).
"""

from confluent_kafka import KafkaError

from reference.protocol.errors import ErrorCode

NEVER_APPENDED = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_REQUIRED_ACKS,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaError._INVALID_ARG,
        KafkaError._BAD_COMPRESSION,
    }
)
"""The record itself is invalid; no broker ever appends it.

_UNKNOWN_PARTITION is no proof: librdkafka ends what it has queued for a partition so when Metadata do not list its topic any
more, and with it what it was about to send again (seen on Kafka 3.2.3, frozen and then started again: 27 of 239 such records
were in its log)."""

NEVER_COMMITTED = frozenset(
    {
        KafkaError.OFFSET_METADATA_TOO_LARGE,
        KafkaError.INVALID_COMMIT_OFFSET_SIZE,
        KafkaError._NO_OFFSET,
    }
)
"""The commit itself is invalid. A member that is not known, or of another generation, proves nothing: a first attempt
whose answer was lost, or which the coordinator gave up waiting for, may have been written, and librdkafka's second one is
then refused so (seen with a coordinator that was cut off for nine seconds: the offset appeared when it was reachable again)."""

NEVER_APPENDED_CODES = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
    }
)
"""Answers to one single attempt that prove that this attempt was not appended.

NOT_LEADER_OR_FOLLOWER and UNKNOWN_TOPIC_OR_PARTITION are none of them: a leader that has appended and then loses its
leadership while it waits for the others answers just so.
"""

SESSION_LOST_CODES = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.PRODUCER_FENCED,
    }
)
"""With one batch in flight these mean that the broker has forgotten, or lost, acknowledged records."""


def proves_nothing_appended(error: KafkaError) -> bool:
    """Whether a send that ended so is certain not to be in the log."""
    return error.code() in NEVER_APPENDED


def proves_nothing_committed(error: KafkaError) -> bool:
    """Whether a commit that ended so is certain not to have happened."""
    return error.code() in NEVER_COMMITTED
