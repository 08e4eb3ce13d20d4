"""A leader's steps: progress by fetches, the high watermark, and proposals."""

from dataclasses import replace
from typing import Any

import pytest

from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.primitives import BrokerEpoch, LeaderEpoch, NodeId, Offset
from reference.replication.partition import Partition
from reference.replication.partition_state import Peer
from reference.replication.proposal import ProposalOutcome
from reference.storage.errors import StorageError
from reference.storage.simulated_disk import SimulatedDisk
from tests.replication.replicas import (
    ALL,
    LAG_MS,
    NOW,
    batch,
    contents,
    fetch,
    incarnation,
    leader,
    open_log,
    state,
    steps_of,
)
from tests.replication.serving import answer, caught_up, produce


def refusal(code: ErrorCode, replica: Partition, node: int, offset: int, **changes: Any) -> None:
    with pytest.raises(KafkaError) as error:
        fetch(replica, node, offset, **changes)
    assert error.value.code is code


# ---- leader epochs


@pytest.mark.step("replication", "BecomeLeader")
def test_only_a_newer_leader_epoch_is_taken_up() -> None:
    replica = leader()
    role = replica.role
    for stale in (state(), state(epoch=4), state(epoch=4, partition_epoch=99)):
        assert not replica.take_up(stale, NOW)
        assert replica.state == state() and replica.role is role
    assert replica.take_up(state(epoch=6), NOW) and replica.role is not role


@pytest.mark.step("replication", "BecomeLeader")
def test_a_new_leader_epoch_forgets_progress_and_proposals() -> None:
    replica, _ = caught_up(isr=(1, 2))
    fetch(replica, 3, 1, last_epoch=5)
    assert replica.require_leader().pending is not None
    end = produce(replica)
    assert replica.take_up(state(epoch=6, partition_epoch=11, isr=(1, 2)), NOW)
    assert replica.require_leader().pending is None and replica.require_leader().take_proposal() is None
    assert {progress.end for progress in replica.require_leader().followers.values()} == {-1}
    assert replica.require_leader().epoch_start == end
    assert replica.require_leader().offset_for_leader_epoch(LeaderEpoch(6)) == (6, end)
    assert replica.high_watermark == 1


@pytest.mark.step("replication", "BecomeFollower")
def test_a_leader_epoch_that_ends_leaves_nothing_of_the_role() -> None:
    replica, _ = caught_up(isr=(1, 2))
    fetch(replica, 3, 1, last_epoch=5)
    assert replica.take_up(state(leader=2, epoch=6, partition_epoch=11), NOW)
    assert not replica.is_leader and replica.leading is None and replica.pending is None
    with pytest.raises(KafkaError) as error:
        replica.require_leader()
    assert error.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.step("replication", "CommitIsr")
def test_an_isr_is_committed_by_newer_partition_epochs_of_this_leader_epoch_only() -> None:
    replica, _ = caught_up()
    for stale in (state(partition_epoch=10, isr=(1,)), state(epoch=4, partition_epoch=11, isr=(1,))):
        assert not replica.require_leader().commit_isr(stale, NOW)
    assert replica.state.isr == ALL
    produce(replica)
    assert replica.take_up(state(partition_epoch=11, isr=(1,)), NOW)
    assert replica.state.isr == (1,)
    # Two caught-up followers may be about to join again: only when they lag the leader goes on alone.
    assert replica.high_watermark == 1
    assert replica.require_leader().advance_high_watermark(NOW + LAG_MS + 1) and replica.high_watermark == 2


def test_an_assignment_that_comes_after_its_isr_keeps_what_is_pending() -> None:
    replica, _ = caught_up(isr=(1, 2))
    fetch(replica, 3, 1, last_epoch=5)
    pending = replica.require_leader().pending
    wider = replace(state(isr=(1, 2), replicas=(1, 2, 3, 4)), adding=(4,))
    assert replica.take_up(wider, NOW)
    assert replica.require_leader().pending is pending
    assert replica.state.adding == (4,) and set(replica.require_leader().followers) == {2, 3, 4}
    assert replica.require_leader().followers[NodeId(2)].end == 1
    assert not replica.take_up(wider, NOW)


# ---- fetches


@pytest.mark.step("replication", "AnswerFetch")
def test_fetches_of_other_leader_epochs_strangers_and_earlier_incarnations_are_no_progress() -> None:
    replica, registry = caught_up(isr=(1, 2))
    registry.peers[2] = Peer(BrokerEpoch(incarnation(2) + 100))
    before = replace(replica.require_leader().followers[NodeId(2)])
    refusal(ErrorCode.FENCED_LEADER_EPOCH, replica, 2, 0, asked_epoch=4)
    refusal(ErrorCode.UNKNOWN_LEADER_EPOCH, replica, 2, 0, asked_epoch=6)
    refusal(ErrorCode.UNKNOWN_LEADER_EPOCH, replica, 9, 0)
    refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, replica, 9, 0, asked_epoch=-1)
    refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, replica, 2, 0)
    refusal(ErrorCode.OFFSET_OUT_OF_RANGE, replica, 2, 2, broker_epoch=incarnation(2) + 100)
    refusal(ErrorCode.OFFSET_OUT_OF_RANGE, replica, 2, -1, broker_epoch=incarnation(2) + 100)
    assert replica.require_leader().followers[NodeId(2)] == before


def test_a_follower_that_asks_for_the_middle_of_a_batch_has_nothing_of_it() -> None:
    leading = leader(isr=(1, 2))
    leading.produce(batch(b"a"), NOW)
    leading.produce(batch(b"b", b"c", b"d"), NOW)
    for asked, known in ((1, 1), (2, 1), (3, 1), (4, 4)):
        fetch(leading, 2, asked)
        assert (leading.require_leader().followers[NodeId(2)].end, leading.high_watermark) == (known, known)


@pytest.mark.step("replication", "AnswerFetch")
def test_only_news_is_a_step() -> None:
    replica = leader(isr=(1, 2))
    reported = steps_of(replica)
    for _ in range(3):
        fetch(replica, 2, 0)
    assert reported == ["AnswerFetch"]
    fetch(replica, 2, 0, broker_epoch=incarnation(2) + 1)
    assert reported == ["AnswerFetch", "AnswerFetch"]


# ---- the high watermark


@pytest.mark.step("replication", "AdvanceHighWatermark")
def test_the_high_watermark_waits_for_the_slowest_member_and_not_for_lagging_outsiders() -> None:
    replica, _ = caught_up(isr=(1, 2))
    produce(replica, 3)
    fetch(replica, 2, 4, last_epoch=5)
    assert replica.high_watermark == 4


def test_the_high_watermark_waits_for_a_follower_that_may_be_about_to_join() -> None:
    replica, registry = caught_up(isr=(1, 2))
    fetch(replica, 3, 0)
    fetch(replica, 3, 1, last_epoch=5)
    proposal = replica.require_leader().take_proposal()
    assert proposal is not None
    replica.require_leader().proposal_answered(proposal, ErrorCode.INELIGIBLE_REPLICA, NOW)
    produce(replica)
    fetch(replica, 2, 2, last_epoch=5)
    assert replica.high_watermark == 1, "3 has just been caught up"
    registry.peers[3] = Peer(incarnation(3), is_fenced=True)
    assert replica.require_leader().advance_high_watermark(NOW) and replica.high_watermark == 2


@pytest.mark.step("replication", "AdvanceHighWatermark")
def test_the_high_watermark_does_not_advance_while_the_isr_is_too_small() -> None:
    replica = leader(isr=(1,), min_isr=2)
    produce(replica, acks=1)
    assert replica.high_watermark == 0
    assert replica.take_up(state(partition_epoch=11, isr=(1, 2)), NOW)
    fetch(replica, 2, 1, last_epoch=5)
    assert replica.high_watermark == 1
    alone = leader(isr=(1,), min_isr=2)
    alone.state = replace(alone.state, replicas=(1,))
    assert alone.require_leader().effective_min_isr == 1


# ---- acknowledgements


def test_acks_all_waits_for_the_high_watermark_and_then_asks_whether_enough_hold_it() -> None:
    replica, _ = caught_up(isr=(1, 2), min_isr=2)
    end = produce(replica)
    assert replica.require_leader().answer_to_produce(end) is None
    fetch(replica, 2, end, last_epoch=5)
    assert replica.require_leader().answer_to_produce(end) is ErrorCode.NONE
    assert replica.take_up(state(partition_epoch=11, isr=(1,)), NOW)
    assert replica.require_leader().answer_to_produce(end) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    with pytest.raises(KafkaError) as error:
        produce(replica)
    assert error.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


# ---- the ISR


LATE = NOW + LAG_MS + 1


def removed_by_response() -> Partition:
    """A leader with ISR (1, 2) and a record that 2 lacks, after the response that removed 2 from the ISR."""
    replica, _ = caught_up(isr=(1, 2))
    produce(replica)
    assert replica.require_leader().shrink_isr(LATE)
    proposal = replica.require_leader().take_proposal()
    assert proposal is not None
    assert answer(replica, proposal, now=LATE) is ProposalOutcome.COMMITTED
    assert replica.state.isr == (1,) and replica.high_watermark == 1
    return replica


def test_a_replica_removed_by_a_response_counts_until_the_record_is_replayed() -> None:
    replica = removed_by_response()
    assert not replica.take_up(state(isr=(1, 2)), LATE), "an earlier record says nothing of it"
    assert replica.high_watermark == 1
    assert replica.take_up(state(partition_epoch=11, isr=(1,)), LATE)
    assert replica.high_watermark == 2
    assert not replica.take_up(state(partition_epoch=11, isr=(1,)), LATE)


def test_a_later_record_ends_the_wait_too() -> None:
    replica = removed_by_response()
    assert replica.take_up(state(partition_epoch=12, isr=(1,)), LATE)
    assert replica.high_watermark == 2


def test_with_the_record_comes_the_setting_that_it_was_written_under() -> None:
    """KIP-966: with min.insync.replicas=2 the controller keeps 2 eligible, because an ISR of one commits nothing."""
    replica = removed_by_response()
    replica.learn_min_isr(2)
    assert replica.take_up(state(partition_epoch=11, isr=(1,)), LATE)
    assert replica.high_watermark == 1
    assert replica.require_leader().answer_to_produce(Offset(2)) is None


def test_a_replica_added_and_removed_by_responses_counts_too() -> None:
    replica, _ = caught_up(isr=(1, 2))
    fetch(replica, 3, 1, last_epoch=5)
    joining = replica.require_leader().take_proposal()
    assert joining is not None and joining.isr == ALL
    answer(replica, joining)
    end = produce(replica)
    fetch(replica, 2, end, last_epoch=5)
    assert replica.require_leader().shrink_isr(LATE)
    leaving = replica.require_leader().take_proposal()
    assert leaving is not None and leaving.isr == (1, 2)
    answer(replica, leaving, partition_epoch=12, now=LATE)
    assert replica.high_watermark == 1
    replica.take_up(state(partition_epoch=11), LATE)
    assert replica.high_watermark == 1, "that record is not the last that was reported"
    replica.take_up(state(partition_epoch=12, isr=(1, 2)), LATE)
    assert replica.high_watermark == 2


def test_a_new_leader_epoch_waits_for_no_replica_that_left_before() -> None:
    replica = removed_by_response()
    assert replica.take_up(state(epoch=6, partition_epoch=12, isr=(1,)), NOW)
    assert replica.high_watermark == 2 and not replica.require_leader().removed_pending_replay


# ---- the disk


def test_a_leader_epoch_needs_the_disk_for_its_first_record_only() -> None:
    disk = SimulatedDisk()
    replica, _ = caught_up(log=open_log(disk))
    disk.read_only = True
    replica.take_up(state(epoch=6, partition_epoch=11), NOW)
    assert replica.is_leader and replica.log.end_offset_for_epoch(LeaderEpoch(5)) == (5, 1)
    with pytest.raises(StorageError):
        produce(replica)
    assert contents(replica.log) == [(0, 5, b"x")]


# ---- settings, and the end of a replica


@pytest.mark.step("replication", "LearnMinIsr")
def test_another_min_isr_is_traced_by_the_leader_and_holds_at_once() -> None:
    replica, _ = caught_up(isr=(1, 2), min_isr=2)
    reported = steps_of(replica)
    replica.learn_min_isr(2)
    replica.learn_min_isr(3)
    assert reported == ["LearnMinIsr"]
    with pytest.raises(KafkaError) as error:
        produce(replica)
    assert error.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


@pytest.mark.step("replication", "GiveUpReplica")
def test_a_replica_that_is_given_up_has_no_role_and_traces_an_empty_log() -> None:
    replica, _ = caught_up()
    rows: list[Any] = []
    replica.trace = lambda action, row: rows.append(row)
    replica.give_up_replica()
    assert [(row["action"], row["leo"], row["hw"], row["leaderEpoch"]) for row in rows] == [("GiveUpReplica", 0, 0, -1)]
    assert not replica.is_leader
    with pytest.raises(KafkaError) as error:
        produce(replica)
    assert error.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
