"""An ISR that a leader proposes to the controller (AlterPartition), and the effect of each error code on it (KIP-497).

A proposal is *pending* from its creation until its outcome is known. While it is pending, its members count toward the
high watermark as the committed ISR does: the controller may have accepted it without the leader's knowledge. So it may
be rolled back only after an error that proves that it was not accepted and never will be. An error about a stale epoch
does not: an earlier copy of the request, whose response was lost, may have been accepted and made this one stale.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from reference.protocol.errors import ErrorCode
from reference.protocol.primitives import BrokerEpoch, LeaderEpoch, NodeId, PartitionEpoch


@dataclass(frozen=True, slots=True)
class Proposal:
    """The content of an AlterPartition request for one partition."""

    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    """The partition epoch that the proposal builds on."""
    isr: tuple[NodeId, ...]
    broker_epochs: tuple[BrokerEpoch, ...]
    """One for each of `isr`: the incarnation in which the member fetched; -1 for one that has not fetched in this leader
    epoch."""


class AcceptedIsr(NamedTuple):
    """The partition's state in a response without an error."""

    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    isr: tuple[NodeId, ...]


class ProposalOutcome(Enum):
    """The outcome of a pending proposal."""

    COMMITTED = auto()
    ROLLED_BACK = auto()
    KEPT = auto()
    """Pending until the metadata decide it."""
    SENT_AGAIN = auto()


OUTCOMES: dict[ErrorCode, ProposalOutcome] = {
    ErrorCode.NONE: ProposalOutcome.COMMITTED,
    ErrorCode.INELIGIBLE_REPLICA: ProposalOutcome.ROLLED_BACK,
    ErrorCode.OPERATION_NOT_ATTEMPTED: ProposalOutcome.ROLLED_BACK,
    ErrorCode.INVALID_UPDATE_VERSION: ProposalOutcome.KEPT,
    ErrorCode.FENCED_LEADER_EPOCH: ProposalOutcome.KEPT,
    ErrorCode.NEW_LEADER_ELECTED: ProposalOutcome.KEPT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ProposalOutcome.KEPT,
    ErrorCode.UNKNOWN_TOPIC_ID: ProposalOutcome.KEPT,
    ErrorCode.INVALID_REQUEST: ProposalOutcome.KEPT,
}
"""The outcome by the partition's error code in the response (Kafka's `Partition.handleAlterPartitionError`)."""


def outcome_of(error: ErrorCode) -> ProposalOutcome:
    """The outcome of a proposal. Any other error, also a missing response, decides nothing: the same proposal is sent again."""
    return OUTCOMES.get(error, ProposalOutcome.SENT_AGAIN)
