"""Leader epochs of a log, in memory and on disk (KIP-101)."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from reference.protocol.primitives import LeaderEpoch, Offset
from reference.storage.epoch_cache import EpochCache
from reference.storage.errors import CorruptFile
from reference.storage.simulated_disk import SimulatedDisk

FOLDER = Path("/t-0")


def cache(*entries: tuple[int, int]) -> EpochCache:
    disk = SimulatedDisk()
    disk.make_folder(FOLDER)
    made = EpochCache(disk, FOLDER)
    for epoch, start in entries:
        made.assign(LeaderEpoch(epoch), Offset(start))
    made.store(Offset(1_000))
    return made


def again(made: EpochCache) -> Sequence[tuple[int, int]]:
    return EpochCache(made._disk, FOLDER).entries


def test_ends_of_epochs() -> None:
    epochs = cache((1, 0), (2, 10), (5, 30))
    answers = {asked: epochs.end_offset_for(LeaderEpoch(asked), Offset(42)) for asked in range(-1, 7)}
    assert answers == {
        -1: (-1, -1),
        0: (0, 0),
        1: (1, 10),
        2: (2, 30),
        3: (2, 30),
        4: (2, 30),
        5: (5, 42),
        6: (-1, -1),
    }


def test_no_epoch_ends_beyond_the_log() -> None:
    """An epoch that was written down for a record which then found no room."""
    assert cache((1, 0), (2, 10)).end_offset_for(LeaderEpoch(1), Offset(8)) == (1, 8)


def test_nothing_is_known_of_an_empty_log() -> None:
    epochs = cache()
    assert epochs.latest == -1
    assert epochs.end_offset_for(LeaderEpoch(0), Offset(0)) == (-1, -1)
    assert epochs.epoch_at(Offset(0)) == -1


def test_epoch_of_an_offset() -> None:
    epochs = cache((1, 5), (2, 10))
    assert [epochs.epoch_at(offset) for offset in map(Offset, (4, 5, 9, 10, 99))] == [-1, 1, 1, 2, 2]


def test_entries_that_contradict_a_new_one_are_removed() -> None:
    epochs = cache((1, 0), (2, 10), (5, 30))
    epochs.assign(LeaderEpoch(3), Offset(10))
    assert epochs.entries == [(1, 0), (3, 10)]
    epochs.assign(LeaderEpoch(3), Offset(20))
    assert epochs.entries == [(1, 0), (3, 10)]
    epochs.assign(LeaderEpoch(3), Offset(4))
    assert epochs.entries == again(epochs) == [(1, 0), (3, 4)]
    assert (epochs.latest, epochs.latest_start) == (3, 4)


def test_an_epoch_reaches_the_file_when_its_records_are_flushed() -> None:
    epochs = cache((1, 0))
    epochs.assign(LeaderEpoch(2), Offset(10))
    epochs.store(Offset(10))
    assert epochs.entries == [(1, 0), (2, 10)] and again(epochs) == [(1, 0)]
    epochs.truncate_from_end(Offset(10))
    epochs.assign(LeaderEpoch(3), Offset(10))
    epochs.store(Offset(11))
    assert epochs.entries == again(epochs) == [(1, 0), (3, 10)]


def test_truncation_at_both_ends() -> None:
    epochs = cache((1, 0), (2, 10), (5, 30))
    epochs.truncate_from_end(Offset(30))
    assert epochs.entries == [(1, 0), (2, 10)]
    epochs.truncate_from_start(Offset(4))
    assert epochs.entries == [(1, 4), (2, 10)]
    epochs.truncate_from_start(Offset(15))
    assert epochs.entries == again(epochs) == [(2, 15)]
    epochs.clear()
    assert epochs.entries == again(epochs) == []


def test_the_file_is_kafkas() -> None:
    epochs = cache((1, 0), (2, 10))
    assert epochs._disk.read_file(FOLDER / "leader-epoch-checkpoint") == b"0\n2\n1 0\n2 10\n"


@pytest.mark.parametrize("text", [b"1\n0\n", b"0\n2\n1 0\n", b"0\n1\nx y\n", b"0\n1\n1 0 0\n", b"\xff\n0\n"])
def test_a_damaged_file_is_named(text: bytes) -> None:
    epochs = cache()
    epochs._disk.write_file(FOLDER / "leader-epoch-checkpoint", text)
    with pytest.raises(CorruptFile, match="leader-epoch-checkpoint"):
        EpochCache(epochs._disk, FOLDER)
