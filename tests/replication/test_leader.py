"""A leader's steps: what fetches tell it, how far it commits, and what it proposes."""

from dataclasses import replace
from typing import Any

import pytest

from reference.protocol.errors import ErrorCode, KafkaError
from reference.replication.partition import Partition
from reference.replication.partition_state import Peer
from reference.replication.proposal import Proposal, ProposalOutcome
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


def produce(leading: Partition, count: int = 1, *, now: int = NOW, acks: int = -1) -> int:
    """Gives the log's new end."""
    return leading.produce(batch(*[b"x"] * count), now, required_acks=acks).last_offset + 1


def caught_up(isr: tuple[int, ...] = ALL, **settings: Any) -> tuple[Partition, Registry]:
    """A leader with one record that all followers of the ISR have."""
    registry = Registry()
    leading = leader(isr, registry, **settings)
    end = produce(leading)
    for member in isr[1:]:
        fetch(leading, member, end, last_epoch=5)
    assert leading.high_watermark == end
    return leading, registry


def refusal(code: ErrorCode, leading: Partition, node: int, offset: int, **changes: Any) -> None:
    with pytest.raises(KafkaError) as error:
        fetch(leading, node, offset, **changes)
    assert error.value.code is code


# ---- leader epochs


@pytest.mark.step("replication", "BecomeLeader")
def test_only_a_newer_leader_epoch_is_taken_up() -> None:
    leading = leader()
    for stale in (state(), state(epoch=4), state(epoch=5, partition_epoch=99)):
        assert not leading.become_leader(stale, NOW)
        assert leading.state == state()
    assert leading.become_leader(state(epoch=6), NOW)


@pytest.mark.step("replication", "BecomeLeader")
def test_a_new_leader_epoch_forgets_progress_and_proposals() -> None:
    leading, _ = caught_up(isr=(1, 2))
    fetch(leading, 3, 1, last_epoch=5)
    assert leading.pending is not None
    end = produce(leading)
    assert leading.take_up(state(epoch=6, partition_epoch=11, isr=(1, 2)), NOW)
    assert leading.pending is None and leading.take_proposal() is None
    assert {progress.end for progress in leading.followers.values()} == {-1}
    assert leading.epoch_start == end
    assert leading.offset_for_leader_epoch(6, -1) == (6, end)
    assert leading.high_watermark == 1


@pytest.mark.step("replication", "BecomeFollower")
def test_a_leader_epoch_that_ends_leaves_nothing_of_the_role() -> None:
    leading, _ = caught_up(isr=(1, 2))
    fetch(leading, 3, 1, last_epoch=5)
    assert leading.take_up(state(leader=2, epoch=6, partition_epoch=11), NOW)
    assert not leading.is_leader and leading.pending is None and leading.followers == {}
    assert leading.answer_to_produce(1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not leading.shrink_isr(NOW + 2 * LAG_MS) and leading.shrink_deadline() is None


@pytest.mark.step("replication", "CommitIsr")
def test_an_isr_is_committed_by_newer_partition_epochs_of_this_leader_epoch_only() -> None:
    leading, _ = caught_up()
    for stale in (state(partition_epoch=10, isr=(1,)), state(epoch=4, partition_epoch=11, isr=(1,))):
        assert not leading.commit_isr(stale, NOW)
    assert leading.state.isr == ALL
    produce(leading)
    assert leading.take_up(state(partition_epoch=11, isr=(1,)), NOW)
    assert leading.state.isr == (1,)
    # Two caught-up followers may be about to join again: only when they lag the leader goes on alone.
    assert leading.high_watermark == 1
    assert leading.advance_high_watermark(NOW + LAG_MS + 1) and leading.high_watermark == 2


def test_an_assignment_that_comes_after_its_isr_keeps_what_is_pending() -> None:
    leading, _ = caught_up(isr=(1, 2))
    fetch(leading, 3, 1, last_epoch=5)
    pending = leading.pending
    wider = replace(state(isr=(1, 2), replicas=(1, 2, 3, 4)), adding=(4,))
    assert leading.take_up(wider, NOW)
    assert leading.pending is pending
    assert leading.state.adding == (4,) and set(leading.followers) == {2, 3, 4}
    assert leading.followers[2].end == 1
    assert not leading.take_up(wider, NOW)


# ---- fetches


def test_a_fetch_gives_all_up_to_the_logs_end_and_the_high_watermark_before_it() -> None:
    leading = leader()
    produce(leading, 2)
    read = fetch(leading, 2, 0)
    assert values(read.records) == [b"x", b"x"] and read.high_watermark == 0
    assert values(fetch(leading, 2, 2, last_epoch=5).records) == []
    assert leading.high_watermark == 0
    assert fetch(leading, 3, 2, last_epoch=5).high_watermark == 0
    assert leading.high_watermark == 2
    assert fetch(leading, 2, 2, last_epoch=5).high_watermark == 2


@pytest.mark.step("replication", "AnswerFetch")
def test_fetches_of_other_leader_epochs_strangers_and_earlier_incarnations_are_no_progress() -> None:
    leading, registry = caught_up(isr=(1, 2))
    registry.peers[2] = Peer(incarnation(2) + 100)
    before = replace(leading.followers[2])
    refusal(ErrorCode.FENCED_LEADER_EPOCH, leading, 2, 0, asked_epoch=4)
    refusal(ErrorCode.UNKNOWN_LEADER_EPOCH, leading, 2, 0, asked_epoch=6)
    refusal(ErrorCode.UNKNOWN_LEADER_EPOCH, leading, 9, 0)
    refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, leading, 9, 0, asked_epoch=-1)
    refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, leading, 2, 0)
    refusal(ErrorCode.OFFSET_OUT_OF_RANGE, leading, 2, 2, broker_epoch=incarnation(2) + 100)
    refusal(ErrorCode.OFFSET_OUT_OF_RANGE, leading, 2, -1, broker_epoch=incarnation(2) + 100)
    assert leading.followers[2] == before


def test_a_fetch_of_a_diverging_log_is_answered_with_the_epoch_and_is_no_progress() -> None:
    leading, _ = caught_up()
    leading.take_up(state(epoch=8, partition_epoch=11), NOW)
    produce(leading)
    assert fetch(leading, 2, 2, last_epoch=7).diverging == (5, 1)
    assert fetch(leading, 2, 2, last_epoch=5).diverging == (5, 1)
    assert leading.followers[2].end == -1
    assert fetch(leading, 2, 1, last_epoch=5).diverging is None
    assert leading.followers[2].end == 1


def test_below_the_logs_start_all_is_out_of_range_even_where_the_logs_part() -> None:
    leading, _ = caught_up()
    produce(leading)
    for member in (2, 3):
        fetch(leading, member, 2, last_epoch=5)
    leading.delete_records(2)
    refusal(ErrorCode.OFFSET_OUT_OF_RANGE, leading, 2, 0)
    refusal(ErrorCode.OFFSET_OUT_OF_RANGE, leading, 2, 1, last_epoch=3)


def test_the_low_watermark_waits_for_live_followers_to_report_their_start() -> None:
    leading, registry = caught_up()
    assert leading.delete_records(1) == -1
    fetch(leading, 2, 1, last_epoch=5, log_start=1)
    assert leading.low_watermark() == -1
    fetch(leading, 3, 1, last_epoch=5, log_start=0)
    assert leading.low_watermark() == 0
    registry.peers[3] = Peer(incarnation(3), is_fenced=True)
    assert leading.low_watermark() == 1


@pytest.mark.step("replication", "AnswerFetch")
def test_only_news_is_a_step() -> None:
    leading = leader(isr=(1, 2))
    reported = steps_of(leading)
    for _ in range(3):
        fetch(leading, 2, 0)
    assert reported == ["AnswerFetch"]
    fetch(leading, 2, 0, broker_epoch=incarnation(2) + 1)
    assert reported == ["AnswerFetch", "AnswerFetch"]


# ---- the high watermark


@pytest.mark.step("replication", "AdvanceHighWatermark")
def test_it_waits_for_the_slowest_member_and_not_for_who_lags_outside() -> None:
    leading, _ = caught_up(isr=(1, 2))
    produce(leading, 3)
    fetch(leading, 2, 4, last_epoch=5)
    assert leading.high_watermark == 4


def test_it_waits_for_a_follower_that_may_be_about_to_join() -> None:
    leading, registry = caught_up(isr=(1, 2))
    fetch(leading, 3, 0)
    fetch(leading, 3, 1, last_epoch=5)
    proposal = leading.take_proposal()
    assert proposal is not None
    leading.proposal_answered(proposal, ErrorCode.INELIGIBLE_REPLICA, NOW)
    produce(leading)
    fetch(leading, 2, 2, last_epoch=5)
    assert leading.high_watermark == 1, "3 has just been caught up"
    registry.peers[3] = Peer(incarnation(3), is_fenced=True)
    assert leading.advance_high_watermark(NOW) and leading.high_watermark == 2


def test_it_counts_the_proposed_member() -> None:
    leading, _ = caught_up(isr=(1, 2))
    fetch(leading, 3, 1, last_epoch=5)
    assert leading.is_in_maximal_isr(3)
    produce(leading)
    late = NOW + 2 * LAG_MS
    fetch(leading, 2, 2, last_epoch=5, now=late)
    assert leading.high_watermark == 1
    fetch(leading, 3, 2, last_epoch=5, now=late)
    assert leading.high_watermark == 2


def test_it_counts_who_is_proposed_to_leave() -> None:
    leading, _ = caught_up()
    produce(leading)
    late = NOW + LAG_MS + 1
    fetch(leading, 2, 2, last_epoch=5, now=late)
    assert leading.shrink_isr(late) and leading.pending is not None and leading.pending.isr == (1, 2)
    assert not leading.advance_high_watermark(late + LAG_MS) and leading.high_watermark == 1


@pytest.mark.step("replication", "AdvanceHighWatermark")
def test_it_stands_still_while_the_isr_is_too_small() -> None:
    leading = leader(isr=(1,), min_isr=2)
    produce(leading, acks=1)
    assert leading.high_watermark == 0
    assert leading.take_up(state(partition_epoch=11, isr=(1, 2)), NOW)
    fetch(leading, 2, 1, last_epoch=5)
    assert leading.high_watermark == 1
    alone = leader(isr=(1,), min_isr=2)
    alone.state = replace(alone.state, replicas=(1,))
    assert alone.effective_min_isr == 1


def test_it_never_goes_back_when_a_member_does() -> None:
    leading, _ = caught_up()
    fetch(leading, 2, 0, broker_epoch=incarnation(2) + 1)
    assert not leading.advance_high_watermark(NOW) and leading.high_watermark == 1


# ---- acknowledgements


def test_acks_all_waits_for_the_high_watermark_and_then_asks_whether_enough_hold_it() -> None:
    leading, _ = caught_up(isr=(1, 2), min_isr=2)
    end = produce(leading)
    assert leading.answer_to_produce(end) is None
    fetch(leading, 2, end, last_epoch=5)
    assert leading.answer_to_produce(end) is ErrorCode.NONE
    assert leading.take_up(state(partition_epoch=11, isr=(1,)), NOW)
    assert leading.answer_to_produce(end) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    with pytest.raises(KafkaError) as error:
        produce(leading)
    assert error.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


def test_an_end_is_not_reported_while_a_new_leader_does_not_know_what_is_committed() -> None:
    leading, _ = caught_up()
    produce(leading)
    leading.take_up(state(epoch=6, partition_epoch=11), NOW)
    for timestamp in (-1, NOW + 1):
        with pytest.raises(KafkaError) as error:
            leading.list_offset(timestamp, False, -1)
        assert error.value.code is ErrorCode.OFFSET_NOT_AVAILABLE
    assert leading.list_offset(-2, False, -1).offset == 0
    assert leading.list_offset(-1, False, -1, for_replica=True).offset == 2
    for member in (2, 3):
        fetch(leading, member, 2, last_epoch=5)
    assert leading.list_offset(-1, False, -1).offset == 2


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
    leading, registry = caught_up(isr=(1, 2))
    registry.peers.pop(3)
    if peer is not None:
        registry.peers[3] = peer
    fetch(leading, 3, 1, last_epoch=5)
    assert leading.pending is None


@pytest.mark.step("replication", "ExpandIsr")
def test_a_follower_joins_when_it_has_what_is_committed_and_what_the_leader_epoch_began_with() -> None:
    leading, _ = caught_up(isr=(1, 2))
    produce(leading, 2)
    leading.take_up(state(epoch=6, partition_epoch=11, isr=(1, 2)), NOW)
    fetch(leading, 3, 1, last_epoch=5)
    assert leading.high_watermark == 1 and leading.pending is None, "the reign began at 3"
    fetch(leading, 3, 3, last_epoch=5)
    assert leading.pending == Proposal(6, 11, (1, 2, 3), (incarnation(1), -1, incarnation(3)))


def test_one_proposal_is_pending_at_a_time_and_is_taken_once() -> None:
    leading, _ = caught_up(isr=(1,))
    fetch(leading, 2, 1, last_epoch=5)
    fetch(leading, 3, 1, last_epoch=5)
    proposal = leading.take_proposal()
    assert proposal == Proposal(5, 10, (1, 2), (incarnation(1), incarnation(2)))
    assert leading.take_proposal() is None
    assert not leading.shrink_isr(NOW + 2 * LAG_MS)


@pytest.mark.step("replication", "ShrinkIsr")
def test_members_leave_one_by_one_when_they_lag_and_the_time_for_it_is_known() -> None:
    leading, _ = caught_up()
    assert leading.shrink_deadline() is None
    produce(leading)
    assert leading.shrink_deadline() == NOW + LAG_MS + 1
    assert not leading.shrink_isr(NOW + LAG_MS)
    assert leading.shrink_isr(NOW + LAG_MS + 1) and leading.shrink_deadline() is None
    first = leading.take_proposal()
    assert first is not None and first.isr == (1, 3)
    answer(leading, first, partition_epoch=11, now=NOW + LAG_MS + 1)
    assert leading.shrink_deadline() == NOW + LAG_MS + 1
    assert leading.shrink_isr(NOW + LAG_MS + 1)
    second = leading.take_proposal()
    assert second is not None and second.isr == (1,)
    answer(leading, second, partition_epoch=12, now=NOW + LAG_MS + 1)
    assert leading.state.isr == (1,) and leading.high_watermark == 1
    assert leading.take_up(state(partition_epoch=12, isr=(1,)), NOW + LAG_MS + 1)
    assert leading.high_watermark == 2


LATE = NOW + LAG_MS + 1


def gone_by_answer() -> Partition:
    """A leader of (1, 2) and of one record more than 2 has, to which the controller has answered that 2 is out."""
    leading, _ = caught_up(isr=(1, 2))
    produce(leading)
    assert leading.shrink_isr(LATE)
    proposal = leading.take_proposal()
    assert proposal is not None
    assert answer(leading, proposal, now=LATE) is ProposalOutcome.COMMITTED
    assert leading.state.isr == (1,) and leading.high_watermark == 1
    return leading


def test_who_left_by_an_answer_counts_until_the_record_is_replayed() -> None:
    leading = gone_by_answer()
    assert not leading.take_up(state(isr=(1, 2)), LATE), "an earlier record says nothing of it"
    assert leading.high_watermark == 1
    assert leading.take_up(state(partition_epoch=11, isr=(1,)), LATE)
    assert leading.high_watermark == 2
    assert not leading.take_up(state(partition_epoch=11, isr=(1,)), LATE)


def test_a_later_record_shows_as_much() -> None:
    leading = gone_by_answer()
    assert leading.take_up(state(partition_epoch=12, isr=(1,)), LATE)
    assert leading.high_watermark == 2


def test_with_the_record_comes_the_setting_that_it_was_written_under() -> None:
    """KIP-966: with min.insync.replicas=2 the controller keeps 2 eligible, for so small an ISR commits nothing."""
    leading = gone_by_answer()
    leading.learn_min_isr(2)
    assert leading.take_up(state(partition_epoch=11, isr=(1,)), LATE)
    assert leading.high_watermark == 1
    assert leading.answer_to_produce(2) is None


def test_who_joined_and_left_by_answers_counts_too() -> None:
    leading, _ = caught_up(isr=(1, 2))
    fetch(leading, 3, 1, last_epoch=5)
    joining = leading.take_proposal()
    assert joining is not None and joining.isr == ALL
    answer(leading, joining)
    end = produce(leading)
    fetch(leading, 2, end, last_epoch=5)
    assert leading.shrink_isr(LATE)
    leaving = leading.take_proposal()
    assert leaving is not None and leaving.isr == (1, 2)
    answer(leading, leaving, partition_epoch=12, now=LATE)
    assert leading.high_watermark == 1
    leading.take_up(state(partition_epoch=11), LATE)
    assert leading.high_watermark == 1, "that record is not the last that was reported"
    leading.take_up(state(partition_epoch=12, isr=(1, 2)), LATE)
    assert leading.high_watermark == 2


def test_a_new_leader_epoch_waits_for_no_replica_that_left_before() -> None:
    leading = gone_by_answer()
    assert leading.take_up(state(epoch=6, partition_epoch=12, isr=(1,)), NOW)
    assert leading.high_watermark == 2 and not leading.removed_pending_replay


def test_a_member_at_the_end_never_lags() -> None:
    leading, _ = caught_up()
    assert not leading.shrink_isr(NOW + 100 * LAG_MS)


# ---- proposals


def answer(leading: Partition, proposal: Proposal, *, now: int = NOW, **changes: Any) -> ProposalOutcome | None:
    said: dict[str, Any] = {"leader_epoch": 5, "partition_epoch": 11, "isr": proposal.isr, **changes}
    return leading.proposal_answered(proposal, said.pop("error", ErrorCode.NONE), now, **said)


def proposing() -> tuple[Partition, Proposal]:
    """A leader of (1, 2) that has proposed 3."""
    leading, _ = caught_up(isr=(1, 2))
    fetch(leading, 3, 1, last_epoch=5)
    proposal = leading.take_proposal()
    assert proposal is not None
    return leading, proposal


@pytest.mark.step("replication", "CommitIsr")
def test_an_accepted_proposal_is_the_isr() -> None:
    leading, proposal = proposing()
    reported = steps_of(leading)
    assert answer(leading, proposal) is ProposalOutcome.COMMITTED
    assert leading.state.isr == ALL and leading.state.partition_epoch == 11 and leading.pending is None
    assert reported == ["CommitIsr"]


@pytest.mark.parametrize("error", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
@pytest.mark.step("replication", "RollBackIsr")
def test_a_proposal_that_was_refused_for_good_is_undone(error: ErrorCode) -> None:
    leading, proposal = proposing()
    reported = steps_of(leading)
    assert answer(leading, proposal, error=error) is ProposalOutcome.ROLLED_BACK
    assert leading.pending is None and leading.state.isr == (1, 2)
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
    leading, proposal = proposing()
    assert answer(leading, proposal, error=error) is ProposalOutcome.KEPT
    assert leading.is_in_maximal_isr(3) and leading.take_proposal() is None
    produce(leading)
    late = NOW + 2 * LAG_MS
    fetch(leading, 2, 2, last_epoch=5, now=late)
    assert leading.high_watermark == 1
    assert leading.take_up(state(partition_epoch=11, isr=ALL), late)
    assert leading.pending is None and leading.state.isr == ALL


@pytest.mark.parametrize("error", [ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH])
def test_a_proposal_without_an_answer_is_sent_again_as_it_was(error: ErrorCode) -> None:
    leading, proposal = proposing()
    assert answer(leading, proposal, error=error) is ProposalOutcome.SENT_AGAIN
    assert leading.take_proposal() is proposal


def test_answers_of_the_past_settle_nothing() -> None:
    leading, proposal = proposing()
    answer(leading, proposal, leader_epoch=4)
    assert leading.pending is proposal
    answer(leading, proposal, partition_epoch=9)
    assert leading.pending is proposal
    leading.take_up(state(partition_epoch=12, isr=(1, 2)), NOW)
    assert answer(leading, proposal) is None
    assert leading.state.isr == (1, 2)


def test_a_proposal_that_changed_nothing_is_settled() -> None:
    leading, proposal = proposing()
    answer(leading, proposal, partition_epoch=10)
    assert leading.pending is None and leading.state.isr == (1, 2)


# ---- the disk


def test_a_leader_epoch_that_the_disk_does_not_take_does_not_begin() -> None:
    leading, _ = caught_up()
    leading.log._disk.read_only = True  # type: ignore[attr-defined]
    with pytest.raises(StorageError):
        leading.take_up(state(epoch=6, partition_epoch=11), NOW)
    assert leading.leader_epoch == 5 and contents(leading.log) == [(0, 5, b"x")]


# ---- settings, and the end of a replica


@pytest.mark.step("replication", "LearnMinIsr")
def test_another_min_isr_is_traced_by_the_leader_and_holds_at_once() -> None:
    leading, _ = caught_up(isr=(1, 2), min_isr=2)
    reported = steps_of(leading)
    leading.learn_min_isr(2)
    leading.learn_min_isr(3)
    assert reported == ["LearnMinIsr"]
    with pytest.raises(KafkaError) as error:
        produce(leading)
    assert error.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


@pytest.mark.step("replication", "GiveUpReplica")
def test_a_replica_that_is_given_up_has_no_role_and_traces_an_empty_log() -> None:
    leading, _ = caught_up()
    rows: list[Any] = []
    leading.trace = lambda action, row: rows.append(row)
    leading.give_up_replica()
    assert [(row["action"], row["leo"], row["hw"], row["leaderEpoch"]) for row in rows] == [("GiveUpReplica", 0, 0, -1)]
    assert not leading.is_leader
    with pytest.raises(KafkaError) as error:
        produce(leading)
    assert error.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
