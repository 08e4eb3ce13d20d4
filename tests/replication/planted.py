"""Bugs that the world must find: each replaces one rule of replication."""

from collections.abc import Callable
from typing import Any

import pytest

from reference.protocol.errors import ErrorCode
from reference.replication import follower, leader, proposal
from reference.replication.leader import Leading
from reference.replication.partition import Partition
from reference.replication.proposal import ProposalOutcome
from reference.storage import epoch_cache

Plant = Callable[[pytest.MonkeyPatch], None]


def high_watermark_ignores_the_proposed_isr(patch: pytest.MonkeyPatch) -> None:
    """KIP-497: only the committed members count."""
    patch.setattr(Leading, "is_in_maximal_isr", lambda self, broker: broker in self.state.isr)


def a_proposed_leaver_counts_no_more(patch: pytest.MonkeyPatch) -> None:
    """A member that is proposed to leave counts no more, before the controller has agreed."""
    patch.setattr(
        Leading,
        "is_in_maximal_isr",
        lambda self, broker: broker in (self.pending.isr if self.pending else self.state.isr),
    )


def stale_proposals_are_rolled_back(patch: pytest.MonkeyPatch) -> None:
    """INVALID_UPDATE_VERSION undoes a proposal of which an earlier copy may have been accepted."""
    patch.setitem(proposal.OUTCOMES, ErrorCode.INVALID_UPDATE_VERSION, ProposalOutcome.ROLLED_BACK)


def lost_answers_roll_back(patch: pytest.MonkeyPatch) -> None:
    """A proposal without an answer is undone."""
    patch.setitem(proposal.OUTCOMES, ErrorCode.NETWORK_EXCEPTION, ProposalOutcome.ROLLED_BACK)


def acknowledged_before_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leading, "is_committed", lambda self, end: self.log.log_end_offset >= end)


def high_watermark_restored_from_the_log_end(patch: pytest.MonkeyPatch) -> None:
    original = Partition.restart
    patch.setattr(Partition, "restart", lambda self, checkpoint: original(self, self.log.log_end_offset))


def high_watermark_under_min_isr(patch: pytest.MonkeyPatch) -> None:
    """KIP-966: the last replica standing goes on committing."""
    patch.setattr(Leading, "is_under_min_isr", property(lambda self: False))


def epoch_start_is_not_asked_for(patch: pytest.MonkeyPatch) -> None:
    """Whoever has the new leader's (old) high watermark may join."""
    patch.setattr(leader, "may_join", lambda end, high_watermark, epoch_start: end >= high_watermark)


def largest_smaller_epoch_is_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    """KIP-279: the leader answers for exactly the epoch asked, or with its end."""
    original = epoch_cache.end_of_epoch

    def end_of_epoch(asked: int, latest: int, floor: int, next_start: int, log_end: int) -> tuple[int, int]:
        epoch, end = original(asked, latest, floor, next_start, log_end)
        return (asked, end) if epoch >= 0 else (epoch, end)

    patch.setattr(epoch_cache, "end_of_epoch", end_of_epoch)


def the_follower_believes_the_leader(patch: pytest.MonkeyPatch) -> None:
    """A follower's high watermark goes beyond its own log."""
    patch.setattr(follower, "follower_high_watermark", lambda leader_high_watermark, log_end: leader_high_watermark)


def diverging_answers_are_not_heeded(patch: pytest.MonkeyPatch) -> None:
    """A leader serves whoever asks, whatever the asker's last epoch."""
    original = Leading.look_at
    patch.setattr(Leading, "look_at", lambda self, offset, last_epoch: original(self, offset, -1))


def no_pending_after_a_new_record(patch: pytest.MonkeyPatch) -> None:
    """A record of the same partition epoch, replayed late, undoes what was proposed since."""
    original = Partition.take_up

    def take_up(self: Partition, state: Any, now: int) -> bool:
        if self.is_leader and state.partition_epoch == self.state.partition_epoch:
            self.pending = None
        return original(self, state, now)

    patch.setattr(Partition, "take_up", take_up)


PLANTED: tuple[Plant, ...] = (
    high_watermark_ignores_the_proposed_isr,
    a_proposed_leaver_counts_no_more,
    stale_proposals_are_rolled_back,
    lost_answers_roll_back,
    acknowledged_before_the_high_watermark,
    high_watermark_restored_from_the_log_end,
    high_watermark_under_min_isr,
    epoch_start_is_not_asked_for,
    largest_smaller_epoch_is_not_looked_for,
    the_follower_believes_the_leader,
    diverging_answers_are_not_heeded,
    no_pending_after_a_new_record,
)
