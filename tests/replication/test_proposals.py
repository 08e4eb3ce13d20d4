"""A leader's proposals: which replicas join and leave the ISR, and the effect of a response."""

import pytest

from reference.protocol.errors import ErrorCode
from reference.protocol.primitives import BrokerEpoch, LeaderEpoch, NodeId, PartitionEpoch
from reference.replication.partition import Partition
from reference.replication.proposal import Proposal, ProposalOutcome
from tests.replication.replicas import ALL, LAG_MS, NOW, fetch, incarnation, state, steps_of
from tests.replication.serving import answer, caught_up, produce


@pytest.mark.step("replication", "ExpandIsr")
def test_a_follower_joins_when_it_has_what_is_committed_and_what_the_leader_epoch_began_with() -> None:
    replica, _ = caught_up(isr=(1, 2))
    produce(replica, 2)
    replica.take_up(state(epoch=6, partition_epoch=11, isr=(1, 2)), NOW)
    fetch(replica, 3, 1, last_epoch=5)
    assert replica.high_watermark == 1 and replica.require_leader().pending is None, "the leader epoch began at 3"
    fetch(replica, 3, 3, last_epoch=5)
    assert replica.require_leader().pending == Proposal(
        LeaderEpoch(6), PartitionEpoch(11), ALL, (incarnation(1), BrokerEpoch(-1), incarnation(3))
    )


@pytest.mark.step("replication", "ShrinkIsr")
def test_members_leave_one_by_one_when_they_lag() -> None:
    replica, _ = caught_up()
    produce(replica)
    assert not replica.require_leader().shrink_isr(NOW + LAG_MS)
    assert replica.require_leader().shrink_isr(NOW + LAG_MS + 1)
    assert not replica.require_leader().shrink_isr(NOW + LAG_MS + 1)
    first = replica.require_leader().take_proposal()
    assert first is not None and first.isr == (1, 3)
    answer(replica, first, partition_epoch=11, now=NOW + LAG_MS + 1)
    assert replica.require_leader().shrink_isr(NOW + LAG_MS + 1)
    second = replica.require_leader().take_proposal()
    assert second is not None and second.isr == (1,)
    answer(replica, second, partition_epoch=12, now=NOW + LAG_MS + 1)
    assert replica.state.isr == (1,) and replica.high_watermark == 1
    assert replica.take_up(state(partition_epoch=12, isr=(1,)), NOW + LAG_MS + 1)
    assert replica.high_watermark == 2


def proposing() -> tuple[Partition, Proposal]:
    """A leader of (1, 2) that has proposed 3."""
    replica, _ = caught_up(isr=(1, 2))
    fetch(replica, 3, 1, last_epoch=5)
    proposal = replica.require_leader().take_proposal()
    assert proposal is not None
    return replica, proposal


@pytest.mark.step("replication", "CommitIsr")
def test_an_accepted_proposal_is_the_isr() -> None:
    replica, proposal = proposing()
    reported = steps_of(replica)
    assert answer(replica, proposal) is ProposalOutcome.COMMITTED
    assert replica.state.isr == ALL and replica.state.partition_epoch == 11 and replica.require_leader().pending is None
    assert reported == ["CommitIsr"]


@pytest.mark.parametrize("error", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
@pytest.mark.step("replication", "RollBackIsr")
def test_a_proposal_that_was_refused_for_good_is_undone(error: ErrorCode) -> None:
    replica, proposal = proposing()
    reported = steps_of(replica)
    assert answer(replica, proposal, error=error) is ProposalOutcome.ROLLED_BACK
    assert replica.require_leader().pending is None and replica.state.isr == (1, 2)
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
    assert replica.require_leader().is_in_maximal_isr(NodeId(3)) and replica.require_leader().take_proposal() is None
    produce(replica)
    late = NOW + 2 * LAG_MS
    fetch(replica, 2, 2, last_epoch=5, now=late)
    assert replica.high_watermark == 1
    assert replica.take_up(state(partition_epoch=11, isr=ALL), late)
    assert replica.require_leader().pending is None and replica.state.isr == ALL
