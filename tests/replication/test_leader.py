"""A leader's steps: what fetches tell it, how far it commits, and what it proposes."""

from dataclasses import replace
from typing import Any

import pytest

from reference.protocol.errors import ErrorCode, KafkaError
from reference.replication.partition import Partition
from reference.replication.partition_state import Peer
from reference.replication.proposal import AcceptedIsr, Proposal, ProposalOutcome
from reference.storage.errors import StorageError
from tests.replication.replicas import (
    ALL,
    LAG_MS,
    NOW,
    Registry,
    batch,
    contents,
    fetch,
    incarnation,
    leader,
    state,
    steps_of,
    values,
)


def produce(replica: Partition, count: int = 1, *, now: int = NOW, acks: int = -1) -> int:
    """Gives the log's new end."""
    return replica.produce(batch(*[b"x"] * count), now, required_acks=acks).last_offset + 1


def caught_up(isr: tuple[int, ...] = ALL, **settings: Any) -> tuple[Partition, Registry]:
    """A leader with one record that all followers of the ISR have."""
    registry = Registry()
    replica = leader(isr, registry, **settings)
    end = produce(replica)
    for member in isr[1:]:
        fetch(replica, member, end, last_epoch=5)
    assert replica.high_watermark == end
    return replica, registry


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
    assert replica.leading.pending is not None
    end = produce(replica)
    assert replica.take_up(state(epoch=6, partition_epoch=11, isr=(1, 2)), NOW)
    assert replica.leading.pending is None and replica.leading.take_proposal() is None
    assert {progress.end for progress in replica.leading.followers.values()} == {-1}
    assert replica.leading.epoch_start == end
    assert replica.require_leader().offset_for_leader_epoch(6) == (6, end)
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
        assert not replica.leading.commit_isr(stale, NOW)
    assert replica.state.isr == ALL
    produce(replica)
    assert replica.take_up(state(partition_epoch=11, isr=(1,)), NOW)
    assert replica.state.isr == (1,)
    # Two caught-up followers may be about to join again: only when they lag the leader goes on alone.
    assert replica.high_watermark == 1
    assert replica.leading.advance_high_watermark(NOW + LAG_MS + 1) and replica.high_watermark == 2


def test_an_assignment_that_comes_after_its_isr_keeps_what_is_pending() -> None:
    replica, _ = caught_up(isr=(1, 2))
    fetch(replica, 3, 1, last_epoch=5)
    pending = replica.leading.pending
    wider = replace(state(isr=(1, 2), replicas=(1, 2, 3, 4)), adding=(4,))
    assert replica.take_up(wider, NOW)
    assert replica.leading.pending is pending
    assert replica.state.adding == (4,) and set(replica.leading.followers) == {2, 3, 4}
    assert replica.leading.followers[2].end == 1
    assert not replica.take_up(wider, NOW)


# ---- fetches


def test_a_fetch_gives_all_up_to_the_logs_end_and_the_high_watermark_before_it() -> None:
    replica = leader()
    produce(replica, 2)
    read = fetch(replica, 2, 0)
    assert values(read.records) == [b"x", b"x"] and read.high_watermark == 0
    assert values(fetch(replica, 2, 2, last_epoch=5).records) == []
    assert replica.high_watermark == 0
    assert fetch(replica, 3, 2, last_epoch=5).high_watermark == 0
    assert replica.high_watermark == 2
    assert fetch(replica, 2, 2, last_epoch=5).high_watermark == 2


@pytest.mark.step("replication", "AnswerFetch")
def test_fetches_of_other_leader_epochs_strangers_and_earlier_incarnations_are_no_progress() -> None:
    replica, registry = caught_up(isr=(1, 2))
    registry.peers[2] = Peer(incarnation(2) + 100)
    before = replace(replica.leading.followers[2])
    refusal(ErrorCode.FENCED_LEADER_EPOCH, replica, 2, 0, asked_epoch=4)
    refusal(ErrorCode.UNKNOWN_LEADER_EPOCH, replica, 2, 0, asked_epoch=6)
    refusal(ErrorCode.UNKNOWN_LEADER_EPOCH, replica, 9, 0)
    refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, replica, 9, 0, asked_epoch=-1)
    refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, replica, 2, 0)
    refusal(ErrorCode.OFFSET_OUT_OF_RANGE, replica, 2, 2, broker_epoch=incarnation(2) + 100)
    refusal(ErrorCode.OFFSET_OUT_OF_RANGE, replica, 2, -1, broker_epoch=incarnation(2) + 100)
    assert replica.leading.followers[2] == before


def test_a_fetch_of_a_diverging_log_is_answered_with_the_epoch_and_is_no_progress() -> None:
    replica, _ = caught_up()
    replica.take_up(state(epoch=8, partition_epoch=11), NOW)
    produce(replica)
    assert fetch(replica, 2, 2, last_epoch=7).diverging == (5, 1)
    assert fetch(replica, 2, 2, last_epoch=5).diverging == (5, 1)
    assert replica.leading.followers[2].end == -1
    assert fetch(replica, 2, 1, last_epoch=5).diverging is None
    assert replica.leading.followers[2].end == 1


def test_below_the_logs_start_all_is_out_of_range_even_where_the_logs_part() -> None:
    replica, _ = caught_up()
    produce(replica)
    for member in (2, 3):
        fetch(replica, member, 2, last_epoch=5)
    replica.delete_records(2)
    refusal(ErrorCode.OFFSET_OUT_OF_RANGE, replica, 2, 0)
    refusal(ErrorCode.OFFSET_OUT_OF_RANGE, replica, 2, 1, last_epoch=3)


def test_the_low_watermark_waits_for_live_followers_to_report_their_start() -> None:
    replica, registry = caught_up()
    assert replica.delete_records(1) == -1
    fetch(replica, 2, 1, last_epoch=5, log_start=1)
    assert replica.leading.low_watermark() == -1
    fetch(replica, 3, 1, last_epoch=5, log_start=0)
    assert replica.leading.low_watermark() == 0
    registry.peers[3] = Peer(incarnation(3), is_fenced=True)
    assert replica.leading.low_watermark() == 1


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
def test_it_waits_for_the_slowest_member_and_not_for_who_lags_outside() -> None:
    replica, _ = caught_up(isr=(1, 2))
    produce(replica, 3)
    fetch(replica, 2, 4, last_epoch=5)
    assert replica.high_watermark == 4


def test_it_waits_for_a_follower_that_may_be_about_to_join() -> None:
    replica, registry = caught_up(isr=(1, 2))
    fetch(replica, 3, 0)
    fetch(replica, 3, 1, last_epoch=5)
    proposal = replica.leading.take_proposal()
    assert proposal is not None
    replica.leading.proposal_answered(proposal, ErrorCode.INELIGIBLE_REPLICA, NOW)
    produce(replica)
    fetch(replica, 2, 2, last_epoch=5)
    assert replica.high_watermark == 1, "3 has just been caught up"
    registry.peers[3] = Peer(incarnation(3), is_fenced=True)
    assert replica.leading.advance_high_watermark(NOW) and replica.high_watermark == 2


def test_it_counts_the_proposed_member() -> None:
    replica, _ = caught_up(isr=(1, 2))
    fetch(replica, 3, 1, last_epoch=5)
    assert replica.leading.is_in_maximal_isr(3)
    produce(replica)
    late = NOW + 2 * LAG_MS
    fetch(replica, 2, 2, last_epoch=5, now=late)
    assert replica.high_watermark == 1
    fetch(replica, 3, 2, last_epoch=5, now=late)
    assert replica.high_watermark == 2


def test_it_counts_who_is_proposed_to_leave() -> None:
    replica, _ = caught_up()
    produce(replica)
    late = NOW + LAG_MS + 1
    fetch(replica, 2, 2, last_epoch=5, now=late)
    assert (
        replica.leading.shrink_isr(late)
        and replica.leading.pending is not None
        and replica.leading.pending.isr == (1, 2)
    )
    assert not replica.leading.advance_high_watermark(late + LAG_MS) and replica.high_watermark == 1


@pytest.mark.step("replication", "AdvanceHighWatermark")
def test_it_stands_still_while_the_isr_is_too_small() -> None:
    replica = leader(isr=(1,), min_isr=2)
    produce(replica, acks=1)
    assert replica.high_watermark == 0
    assert replica.take_up(state(partition_epoch=11, isr=(1, 2)), NOW)
    fetch(replica, 2, 1, last_epoch=5)
    assert replica.high_watermark == 1
    alone = leader(isr=(1,), min_isr=2)
    alone.state = replace(alone.state, replicas=(1,))
    assert alone.leading.effective_min_isr == 1


def test_it_never_goes_back_when_a_member_does() -> None:
    replica, _ = caught_up()
    fetch(replica, 2, 0, broker_epoch=incarnation(2) + 1)
    assert not replica.leading.advance_high_watermark(NOW) and replica.high_watermark == 1


# ---- acknowledgements


def test_acks_all_waits_for_the_high_watermark_and_then_asks_whether_enough_hold_it() -> None:
    replica, _ = caught_up(isr=(1, 2), min_isr=2)
    end = produce(replica)
    assert replica.leading.answer_to_produce(end) is None
    fetch(replica, 2, end, last_epoch=5)
    assert replica.leading.answer_to_produce(end) is ErrorCode.NONE
    assert replica.take_up(state(partition_epoch=11, isr=(1,)), NOW)
    assert replica.leading.answer_to_produce(end) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    with pytest.raises(KafkaError) as error:
        produce(replica)
    assert error.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


def test_an_end_is_not_reported_while_a_new_leader_does_not_know_what_is_committed() -> None:
    replica, _ = caught_up()
    produce(replica)
    replica.take_up(state(epoch=6, partition_epoch=11), NOW)
    for timestamp in (-1, NOW + 1):
        with pytest.raises(KafkaError) as error:
            replica.require_leader().list_offset(timestamp, False)
        assert error.value.code is ErrorCode.OFFSET_NOT_AVAILABLE
    assert replica.require_leader().list_offset(-2, False).offset == 0
    assert replica.require_leader().list_offset(-1, False, for_replica=True).offset == 2
    for member in (2, 3):
        fetch(replica, member, 2, last_epoch=5)
    assert replica.require_leader().list_offset(-1, False).offset == 2


# ---- the ISR


@pytest.mark.parametrize(
    "peer",
    [
        None,
        Peer(incarnation(3), is_fenced=True),
        Peer(incarnation(3), is_shutting_down=True),
        Peer(incarnation(3) + 1, is_fenced=True),
    ],
)
def test_who_is_not_admissible_is_not_proposed(peer: Peer | None) -> None:
    replica, registry = caught_up(isr=(1, 2))
    registry.peers.pop(3)
    if peer is not None:
        registry.peers[3] = peer
    fetch(replica, 3, 1, last_epoch=5)
    assert replica.leading.pending is None


@pytest.mark.step("replication", "ExpandIsr")
def test_a_follower_joins_when_it_has_what_is_committed_and_what_the_leader_epoch_began_with() -> None:
    replica, _ = caught_up(isr=(1, 2))
    produce(replica, 2)
    replica.take_up(state(epoch=6, partition_epoch=11, isr=(1, 2)), NOW)
    fetch(replica, 3, 1, last_epoch=5)
    assert replica.high_watermark == 1 and replica.leading.pending is None, "the leader epoch began at 3"
    fetch(replica, 3, 3, last_epoch=5)
    assert replica.leading.pending == Proposal(6, 11, (1, 2, 3), (incarnation(1), -1, incarnation(3)))


def test_one_proposal_is_pending_at_a_time_and_is_taken_once() -> None:
    replica, _ = caught_up(isr=(1,))
    fetch(replica, 2, 1, last_epoch=5)
    fetch(replica, 3, 1, last_epoch=5)
    proposal = replica.leading.take_proposal()
    assert proposal == Proposal(5, 10, (1, 2), (incarnation(1), incarnation(2)))
    assert replica.leading.take_proposal() is None
    assert not replica.leading.shrink_isr(NOW + 2 * LAG_MS)


@pytest.mark.step("replication", "ShrinkIsr")
def test_members_leave_one_by_one_when_they_lag() -> None:
    replica, _ = caught_up()
    produce(replica)
    assert not replica.leading.shrink_isr(NOW + LAG_MS)
    assert replica.leading.shrink_isr(NOW + LAG_MS + 1)
    assert not replica.leading.shrink_isr(NOW + LAG_MS + 1)
    first = replica.leading.take_proposal()
    assert first is not None and first.isr == (1, 3)
    answer(replica, first, partition_epoch=11, now=NOW + LAG_MS + 1)
    assert replica.leading.shrink_isr(NOW + LAG_MS + 1)
    second = replica.leading.take_proposal()
    assert second is not None and second.isr == (1,)
    answer(replica, second, partition_epoch=12, now=NOW + LAG_MS + 1)
    assert replica.state.isr == (1,) and replica.high_watermark == 1
    assert replica.take_up(state(partition_epoch=12, isr=(1,)), NOW + LAG_MS + 1)
    assert replica.high_watermark == 2


LATE = NOW + LAG_MS + 1


def gone_by_answer() -> Partition:
    """A leader of (1, 2) and of one record more than 2 has, to which the controller has answered that 2 is out."""
    replica, _ = caught_up(isr=(1, 2))
    produce(replica)
    assert replica.leading.shrink_isr(LATE)
    proposal = replica.leading.take_proposal()
    assert proposal is not None
    assert answer(replica, proposal, now=LATE) is ProposalOutcome.COMMITTED
    assert replica.state.isr == (1,) and replica.high_watermark == 1
    return replica


def test_who_left_by_an_answer_counts_until_the_record_is_replayed() -> None:
    replica = gone_by_answer()
    assert not replica.take_up(state(isr=(1, 2)), LATE), "an earlier record says nothing of it"
    assert replica.high_watermark == 1
    assert replica.take_up(state(partition_epoch=11, isr=(1,)), LATE)
    assert replica.high_watermark == 2
    assert not replica.take_up(state(partition_epoch=11, isr=(1,)), LATE)


def test_a_later_record_shows_as_much() -> None:
    replica = gone_by_answer()
    assert replica.take_up(state(partition_epoch=12, isr=(1,)), LATE)
    assert replica.high_watermark == 2


def test_with_the_record_comes_the_setting_that_it_was_written_under() -> None:
    """KIP-966: with min.insync.replicas=2 the controller keeps 2 eligible, for so small an ISR commits nothing."""
    replica = gone_by_answer()
    replica.learn_min_isr(2)
    assert replica.take_up(state(partition_epoch=11, isr=(1,)), LATE)
    assert replica.high_watermark == 1
    assert replica.leading.answer_to_produce(2) is None


def test_who_joined_and_left_by_answers_counts_too() -> None:
    replica, _ = caught_up(isr=(1, 2))
    fetch(replica, 3, 1, last_epoch=5)
    joining = replica.leading.take_proposal()
    assert joining is not None and joining.isr == ALL
    answer(replica, joining)
    end = produce(replica)
    fetch(replica, 2, end, last_epoch=5)
    assert replica.leading.shrink_isr(LATE)
    leaving = replica.leading.take_proposal()
    assert leaving is not None and leaving.isr == (1, 2)
    answer(replica, leaving, partition_epoch=12, now=LATE)
    assert replica.high_watermark == 1
    replica.take_up(state(partition_epoch=11), LATE)
    assert replica.high_watermark == 1, "that record is not the last that was reported"
    replica.take_up(state(partition_epoch=12, isr=(1, 2)), LATE)
    assert replica.high_watermark == 2


def test_a_new_leader_epoch_waits_for_no_replica_that_left_before() -> None:
    replica = gone_by_answer()
    assert replica.take_up(state(epoch=6, partition_epoch=12, isr=(1,)), NOW)
    assert replica.high_watermark == 2 and not replica.leading.removed_pending_replay


def test_a_member_at_the_end_never_lags() -> None:
    replica, _ = caught_up()
    assert not replica.leading.shrink_isr(NOW + 100 * LAG_MS)


# ---- proposals


def answer(replica: Partition, proposal: Proposal, *, now: int = NOW, **changes: Any) -> ProposalOutcome | None:
    said: dict[str, Any] = {"leader_epoch": 5, "partition_epoch": 11, "isr": proposal.isr, **changes}
    error = said.pop("error", ErrorCode.NONE)
    return replica.leading.proposal_answered(proposal, error, now, AcceptedIsr(**said))


def proposing() -> tuple[Partition, Proposal]:
    """A leader of (1, 2) that has proposed 3."""
    replica, _ = caught_up(isr=(1, 2))
    fetch(replica, 3, 1, last_epoch=5)
    proposal = replica.leading.take_proposal()
    assert proposal is not None
    return replica, proposal


@pytest.mark.step("replication", "CommitIsr")
def test_an_accepted_proposal_is_the_isr() -> None:
    replica, proposal = proposing()
    reported = steps_of(replica)
    assert answer(replica, proposal) is ProposalOutcome.COMMITTED
    assert replica.state.isr == ALL and replica.state.partition_epoch == 11 and replica.leading.pending is None
    assert reported == ["CommitIsr"]


@pytest.mark.parametrize("error", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
@pytest.mark.step("replication", "RollBackIsr")
def test_a_proposal_that_was_refused_for_good_is_undone(error: ErrorCode) -> None:
    replica, proposal = proposing()
    reported = steps_of(replica)
    assert answer(replica, proposal, error=error) is ProposalOutcome.ROLLED_BACK
    assert replica.leading.pending is None and replica.state.isr == (1, 2)
    assert reported == ["RollBackIsr"]


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
    ],
)
def test_a_stale_proposal_is_kept_until_metadata_show_its_outcome(error: ErrorCode) -> None:
    replica, proposal = proposing()
    assert answer(replica, proposal, error=error) is ProposalOutcome.KEPT
    assert replica.leading.is_in_maximal_isr(3) and replica.leading.take_proposal() is None
    produce(replica)
    late = NOW + 2 * LAG_MS
    fetch(replica, 2, 2, last_epoch=5, now=late)
    assert replica.high_watermark == 1
    assert replica.take_up(state(partition_epoch=11, isr=ALL), late)
    assert replica.leading.pending is None and replica.state.isr == ALL


@pytest.mark.parametrize("error", [ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH])
def test_a_proposal_without_an_answer_is_sent_again_as_it_was(error: ErrorCode) -> None:
    replica, proposal = proposing()
    assert answer(replica, proposal, error=error) is ProposalOutcome.SENT_AGAIN
    assert replica.leading.take_proposal() is proposal


def test_answers_of_the_past_settle_nothing() -> None:
    replica, proposal = proposing()
    answer(replica, proposal, leader_epoch=4)
    assert replica.leading.pending is proposal
    answer(replica, proposal, partition_epoch=9)
    assert replica.leading.pending is proposal
    replica.take_up(state(partition_epoch=12, isr=(1, 2)), NOW)
    assert answer(replica, proposal) is None
    assert replica.state.isr == (1, 2)


def test_a_proposal_that_changed_nothing_is_settled() -> None:
    replica, proposal = proposing()
    answer(replica, proposal, partition_epoch=10)
    assert replica.leading.pending is None and replica.state.isr == (1, 2)


# ---- the disk


def test_a_leader_epoch_needs_the_disk_for_its_first_record_only() -> None:
    replica, _ = caught_up()
    replica.log._disk.read_only = True  # type: ignore[attr-defined]
    replica.take_up(state(epoch=6, partition_epoch=11), NOW)
    assert replica.is_leader and replica.log.end_offset_for_epoch(5) == (5, 1)
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
