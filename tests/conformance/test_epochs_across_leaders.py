"""EPO-10 fails where two readers receive different answers of one offset."""

from __future__ import annotations

import pytest

from conformance.batches import batch
from conformance.requirements.epochs_across_leaders import EpochsByOffset
from conformance.wire import Failed


def test_the_same_from_everywhere_is_fine() -> None:
    reported = EpochsByOffset()
    reported.take(batch(b"a", b"b", partition_leader_epoch=3), "one")
    reported.take(batch(b"b", base_offset=1, partition_leader_epoch=3), "the other")
    assert reported.at == {0: (3, b"a"), 1: (3, b"b")}


@pytest.mark.parametrize(("value", "epoch"), [(b"x", 3), (b"b", 4), (b"x", 4)])
def test_another_record_or_another_epoch_is_not(value: bytes, epoch: int) -> None:
    reported = EpochsByOffset()
    reported.take(batch(b"a", b"b", partition_leader_epoch=3), "one")
    with pytest.raises(Failed, match="offset 1 is"):
        reported.take(batch(value, base_offset=1, partition_leader_epoch=epoch), "the other")
