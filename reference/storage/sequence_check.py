"""Whether a producer's batch follows from its earlier ones (KIP-98; requirements IDM-03, -04 and -08 to -10)."""

from reference.protocol.errors import ErrorCode
from reference.protocol.primitives import ProducerEpoch, Sequence
from reference.protocol.records.batch import MAX_SEQUENCE

NONE = -1


def check_sequence(
    known_epoch: ProducerEpoch, last_sequence: Sequence, epoch: ProducerEpoch, first_sequence: Sequence
) -> ErrorCode:
    """NONE, INVALID_PRODUCER_EPOCH or OUT_OF_ORDER_SEQUENCE_NUMBER.

    `known_epoch` is -1 for a producer that the partition does not know: any sequence may be its first. `last_sequence` is
    -1 when nothing of the known epoch is remembered: then it starts at 0, as every newer epoch does.

    pre: -1 <= known_epoch <= 32767 and -1 <= last_sequence <= 2147483647
    pre: 0 <= epoch <= 32767 and 0 <= first_sequence <= 2147483647
    post: epoch >= known_epoch or _ == ErrorCode.INVALID_PRODUCER_EPOCH
    post: known_epoch >= 0 or _ == ErrorCode.NONE
    post: not epoch > known_epoch >= 0 or (_ == ErrorCode.NONE) == (first_sequence == 0)
    post: epoch != known_epoch or (_ == ErrorCode.NONE) == (first_sequence == (last_sequence + 1) % 2147483648)
    """
    if epoch < known_epoch:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if known_epoch == NONE:
        return ErrorCode.NONE
    if epoch > known_epoch:
        expected = 0
    else:
        expected = 0 if last_sequence == MAX_SEQUENCE else last_sequence + 1
    return ErrorCode.NONE if first_sequence == expected else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
