"""A follower's steps: appends, refusals, and truncations."""

from collections.abc import Callable
from typing import Any

import pytest

from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.primitives import FIRST_OFFSET, LeaderEpoch, NodeId, Offset
from reference.protocol.records.errors import RecordsError
from reference.replication.partition import Partition
from reference.storage.errors import LogError, StorageError
from reference.storage.simulated_disk import SimulatedDisk
from tests.replication.replicas import (
    NOW,
    batch,
    bytes_of,
    contents,
    fetch,
    follower,
    leader,
    open_log,
    replica,
    state,
    steps_of,
    take,
)
from tests.storage.breaking_disk import BreakingDisk


def filled(*epochs: int, leads_in: int = 0, **settings: Any) -> Partition:
    """A follower in the newest of these leader epochs (or, of `leads_in`, still leader) with one record of each epoch."""
    found = replica(2, **settings)
    for partition_epoch, epoch in enumerate(epochs):
        found.take_up(state(1, epoch, partition_epoch), NOW)
        take(found, batch(b"v%d" % epoch, base_offset=found.log.log_end_offset, epoch=epoch), found.log.log_end_offset)
    if leads_in:
        found.take_up(state(2, leads_in, 50), NOW)
    return found


@pytest.mark.step("replication", "AppendFetched")
def test_offsets_and_epochs_are_kept_as_they_came() -> None:
    following = follower()
    assert take(following, batch(b"a", b"b", base_offset=0, epoch=3), 0)
    assert take(following, batch(b"c", base_offset=2, epoch=5), 2)
    assert contents(following.log) == [(0, 3, b"a"), (1, 3, b"b"), (2, 5, b"c")]
    assert following.last_fetched_epoch == 5


@pytest.mark.step("replication", "AppendFetched")
def test_records_that_do_not_continue_the_log_are_refused() -> None:
    following = follower()
    take(following, batch(b"a", base_offset=0, epoch=5), 0)
    for at, base in ((0, 0), (2, 2), (1, 0)):
        with pytest.raises(LogError):
            take(following, batch(b"z", base_offset=base, epoch=5), at)
    assert contents(following.log) == [(0, 5, b"a")]


def test_batches_of_a_newer_leader_epoch_are_left_for_their_own_leader_to_send() -> None:
    """Broker 1 sends slowly. Before its answer is read from the file it follows broker 3, has cut its log, and filled it again."""
    former, following = leader(), follower()
    for value in (b"a", b"b", b"c"):
        former.produce(batch(value), NOW)
    take(following, bytes_of(former.log.read(FIRST_OFFSET, 1 << 20, Offset(2)).records), 0)
    late = fetch(former, 2, 2, last_epoch=5).records
    assert not isinstance(late, bytes), "it is to be read later"
    former.take_up(state(leader=3, epoch=6, partition_epoch=11), NOW)
    former.require_follower_of(NodeId(3)).truncate(LeaderEpoch(5), Offset(1))
    renewed = [batch(value, base_offset=at, epoch=6) for at, value in ((1, b"x"), (2, b"y"))]
    take(former, b"".join(renewed), 1, leader=3)
    assert not take(following, late.read(), 2)
    assert contents(following.log) == [(0, 5, b"a"), (1, 5, b"b")]


def test_an_empty_log_does_not_begin_with_a_batch_of_a_newer_leader_epoch() -> None:
    following = follower()
    following.require_follower_of(NodeId(1)).start_over_at(Offset(2), NOW)
    assert not take(following, batch(b"a", b"b", b"c", base_offset=1, epoch=6), 2)
    assert following.log.log_end_offset == 2


def test_only_records_of_the_leader_are_appended() -> None:
    for listener in (follower(), leader(), replica(2)):
        with pytest.raises(KafkaError) as error:
            take(listener, b"", 0, leader=3)
        assert error.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_corrupt_bytes_are_refused_and_what_came_before_them_is_traced() -> None:
    following = follower()
    reported = steps_of(following)
    corrupt = batch(b"b", base_offset=1, epoch=5)
    corrupt[-1] ^= 1
    with pytest.raises(RecordsError):
        take(following, batch(b"a", base_offset=0, epoch=5) + corrupt, 0)
    assert reported == ["AppendFetched"] and following.log.log_end_offset == 1


@pytest.mark.step("replication", "AdoptHighWatermark")
def test_the_high_watermark_is_the_leaders_as_far_as_the_log_goes() -> None:
    following = follower()
    reported = steps_of(following)
    take(following, batch(b"a", b"b", base_offset=0, epoch=5), 0, high_watermark=9)
    assert following.high_watermark == 2
    take(following, b"", 2, high_watermark=1)
    assert following.high_watermark == 1, "a new leader may know less than the one before"
    assert not take(following, b"", 2, high_watermark=1)
    assert reported == ["AppendFetched", "AdoptHighWatermark", "AdoptHighWatermark"]


def test_an_empty_log_begins_with_the_whole_of_a_batch_in_which_the_leaders_log_starts() -> None:
    following = follower()
    following.require_follower_of(NodeId(1)).start_over_at(Offset(3), NOW)
    assert following.log.log_start_offset == 3 and following.high_watermark == 3
    take(following, batch(b"b", b"c", b"d", base_offset=2, epoch=5), 3, high_watermark=5, start=3)
    assert [offset for offset, _, _ in contents(following.log)] == [3, 4]


# ---- where the logs part


@pytest.mark.step("replication", "Truncate")
def test_a_log_is_cut_where_the_epoch_ended_on_the_leader() -> None:
    following = filled(3, 5)
    following.high_watermark = Offset(2)
    reported = steps_of(following)
    following.take_up(state(1, 6, 60), NOW)
    assert following.require_follower_of(NodeId(1)).truncate(LeaderEpoch(3), Offset(1)) == 1
    assert contents(following.log) == [(0, 3, b"v3")] and following.high_watermark == 1
    assert reported == ["BecomeFollower", "Truncate"]


@pytest.mark.step("replication", "Truncate")
def test_an_epoch_that_the_follower_does_not_have_is_approached_from_below() -> None:
    following = filled(1, 3)
    assert following.require_follower_of(NodeId(1)).truncate(LeaderEpoch(2), Offset(5)) == 1
    assert following.last_fetched_epoch == 1


@pytest.mark.step("replication", "BecomeFollower")
def test_an_epoch_without_records_is_forgotten_when_another_leads() -> None:
    following = filled(1, leads_in=5)
    assert following.log.leader_epoch == 5
    following.take_up(state(1, 6, 60), NOW)
    assert following.last_fetched_epoch == 1
    take(following, batch(b"w", base_offset=1, epoch=1), 1)
    assert contents(following.log) == [(0, 1, b"v1"), (1, 1, b"w")]


def test_records_beyond_the_leaders_log_are_cut_and_a_stale_log_starts_over() -> None:
    following = filled(1, 3)
    assert not following.require_follower_of(NodeId(1)).truncate_to_leader_end(Offset(2))
    assert not following.require_follower_of(NodeId(1)).truncate_to_leader_end(Offset(-1))
    assert following.require_follower_of(NodeId(1)).truncate_to_leader_end(Offset(1))
    assert not following.require_follower_of(NodeId(1)).start_over_at(Offset(1), NOW)
    assert following.require_follower_of(NodeId(1)).start_over_at(Offset(40), NOW)
    log = following.log
    assert (log.log_start_offset, log.log_end_offset, following.high_watermark) == (40, 40, 40)
    assert following.last_fetched_epoch == -1


def test_before_kip_101_a_log_was_cut_to_its_high_watermark_and_compared_no_more() -> None:
    following = filled(3, 5, truncation="high-watermark")
    following.high_watermark = Offset(1)
    following.take_up(state(1, 6, 60), NOW)
    assert following.log.log_end_offset == 1 and following.last_fetched_epoch == -1
    kept = filled(3, 5)
    kept.high_watermark = Offset(1)
    kept.take_up(state(1, 6, 60), NOW)
    assert kept.log.log_end_offset == 2


def test_without_a_leader_there_is_no_node_to_follow() -> None:
    following = follower()
    assert following.take_up(state(-1, 6, 11), NOW)
    with pytest.raises(KafkaError):
        take(following, b"", 0)
    assert not following.take_up(state(1, 6, 12), NOW), "one epoch has one leader"


# ---- what clients may see of it


def test_a_follower_serves_consumers_that_ask_any_replica_up_to_its_own_high_watermark() -> None:
    following = follower()
    take(following, batch(b"a", base_offset=0, epoch=5) + batch(b"b", base_offset=1, epoch=5), 0, high_watermark=1)
    asked = {"max_bytes": 1 << 20, "minimum_one": True, "committed": False, "last_epoch": -1}
    with pytest.raises(KafkaError) as error:
        following.read(Offset(0), asked_epoch=LeaderEpoch(-1), **asked)
    assert error.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    read = following.read(Offset(0), asked_epoch=LeaderEpoch(5), from_any_replica=True, **asked)
    assert (len(read.records), read.high_watermark) == (len(batch(b"a")), 1)
    for epoch, code in ((4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        with pytest.raises(KafkaError) as error:
            following.read(Offset(0), asked_epoch=LeaderEpoch(epoch), from_any_replica=True, **asked)
        assert error.value.code is code


# ---- incarnations


@pytest.mark.parametrize(("checkpoint", "restored"), [(1, 1), (9, 2), (-1, 0)])
@pytest.mark.step("replication", "Restart")
def test_a_restart_takes_the_checkpoint_at_most_up_to_the_log_end(checkpoint: int, restored: int) -> None:
    disk = SimulatedDisk()
    before = follower(log=open_log(disk))
    take(before, batch(b"a", b"b", base_offset=0, epoch=5), 0, high_watermark=2)
    after = replica(2, log=open_log(disk))
    reported = steps_of(after)
    after.restart(Offset(checkpoint))
    assert after.high_watermark == restored and after.role is None
    assert reported == ["Restart"]
    with pytest.raises(KafkaError):
        after.require_leader()


@pytest.mark.step("replication", "ShutDown")
def test_after_a_clean_end_there_is_no_role() -> None:
    leading = leader()
    leading.shut_down()
    assert leading.role is None
    with pytest.raises(KafkaError):
        fetch(leading, 2, 0, asked_epoch=-1)


def test_a_log_that_cannot_be_cut_leaves_the_replica_as_it_was() -> None:
    disk = SimulatedDisk()
    following = replica(2, log=open_log(disk))
    following.take_up(state(), NOW)
    take(following, batch(b"a", base_offset=0, epoch=5), 0)
    following.take_up(state(2, 6, 60), NOW)
    following.truncation = "high-watermark"
    disk.read_only = True
    with pytest.raises(StorageError):
        following.take_up(state(1, 7, 61), NOW)
    assert following.is_leader and following.leader_epoch == 6 and following.log.log_end_offset == 1


def three_records(disk: BreakingDisk) -> Partition:
    """A follower of three records, committed but for the last."""
    following = replica(2, log=open_log(disk))
    following.take_up(state(), NOW)
    for offset in range(3):
        take(following, batch(b"v", base_offset=offset, epoch=5), offset, high_watermark=2)
    return following


def changes_of(cut: Callable[[Partition], object]) -> int:
    """The number of changes that a cut makes on its disk."""
    disk = BreakingDisk()
    following = three_records(disk)
    disk.changes_left = 1_000
    cut(following)
    return 1_000 - disk.changes_left


def refused_after(changes: int, cut: Callable[[Partition], object]) -> Partition:
    """A follower whose disk failed after the first changes of a cut."""
    disk = BreakingDisk()
    following = three_records(disk)
    disk.changes_left = changes
    with pytest.raises(StorageError):
        cut(following)
    return following


@pytest.mark.parametrize(
    "cut",
    [
        lambda following: following.require_follower_of(1).truncate_to_leader_end(1),
        lambda following: following.require_follower_of(1).start_over_at(40, NOW),
    ],
    ids=["truncated", "begun again"],
)
def test_a_high_watermark_is_within_a_log_that_the_disk_did_not_cut_to_the_end(
    cut: Callable[[Partition], object],
) -> None:
    ends: set[int] = set()
    for changes in range(changes_of(cut)):
        following = refused_after(changes, cut)
        log = following.log
        assert log.log_start_offset <= following.high_watermark <= log.log_end_offset
        ends.add(log.log_end_offset)
    assert ends > {3}, "some cut had begun, and some had not"


def test_a_copy_of_the_log_may_begin_later() -> None:
    following = replica(2, log=open_log())
    following.take_up(state(), NOW)
    take(following, batch(b"a", b"b", base_offset=0, epoch=5), 0, high_watermark=1)
    copy = open_log(SimulatedDisk())
    copy.truncate_fully_and_start_at(Offset(2), NOW)
    following.replace_log(copy)
    assert following.log is copy and following.high_watermark == 2
