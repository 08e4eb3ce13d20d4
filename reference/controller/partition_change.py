"""Computes the record that changes a partition to a target state.

Every decision about a partition uses this. A change of its ISR, replicas or brokers may require an election, a new ELR, or the
end of a reassignment; the same record has them.
Source: KIP-631, KIP-841, KIP-858, KIP-966; org.apache.kafka.controller.PartitionChangeBuilder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from reference.controller.directory_ids import DirectoryId
from reference.controller.image import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    NO_RECOVERY_CHANGE,
    RECOVERING,
    PartitionImage,
)
from reference.controller.leadership_rules import begins_leader_epoch, may_be_elected, stays_eligible
from reference.protocol.messages.partition_change_record import PartitionChangeRecord
from reference.protocol.primitives import NodeId, TopicId


class Election(Enum):
    PREFERRED = "the first replica, if it may lead"
    ONLINE = "the leader that there is, or the first replica that may lead"
    UNCLEAN = "as online; where none may lead, the first live replica, whatever it lacks"


@dataclass(frozen=True, slots=True)
class Terms:
    """The conditions of a change, besides the partition."""

    min_isr: int
    """The topic's min.insync.replicas, at most its number of replicas."""
    has_elr: bool
    """Whether the cluster has eligible leader replicas."""
    is_alive: Callable[[NodeId], bool]
    """Whether a replica's broker and directory are available after the change."""
    directory_for_new_replica: Callable[[NodeId], DirectoryId]
    election: Election = Election.ONLINE
    lost_its_tail: NodeId = NO_LEADER
    """The broker that came back from an unclean shutdown; -1 for none."""
    needs_whole_target: bool = False
    """Whether a reassignment ends only when all of its target replicas are in sync, as in a cluster with ZooKeeper."""


@dataclass(slots=True)
class Target:
    """The wanted state of the partition; `directories` has the known directories of replicas."""

    isr: list[NodeId]
    replicas: list[NodeId]
    removing_replicas: list[NodeId]
    adding_replicas: list[NodeId]
    eligible_leader_replicas: list[NodeId]
    leader_recovery_state: int
    directories: dict[NodeId, DirectoryId]

    @staticmethod
    def unchanged(partition: PartitionImage) -> Target:
        """The present state, for the caller to change."""
        return Target(
            isr=partition.isr,
            replicas=partition.replicas,
            removing_replicas=partition.removing_replicas,
            adding_replicas=partition.adding_replicas,
            eligible_leader_replicas=partition.eligible_leader_replicas,
            leader_recovery_state=partition.leader_recovery_state,
            directories=dict(zip(partition.replicas, partition.directories, strict=True)),
        )


class Elected(NamedTuple):
    leader: NodeId
    is_unclean: bool


def change_partition(
    topic: TopicId, index: int, partition: PartitionImage, target: Target, terms: Terms
) -> PartitionChangeRecord | None:
    """The record that changes `partition` to `target`, with the changes that follow; None if nothing changes.

    `target` is modified: it becomes the decided state.
    """
    record = PartitionChangeRecord(topic_id=topic, partition_id=index)
    _complete_reassignment(target, terms)
    if terms.has_elr:
        target.eligible_leader_replicas = _eligible_after(partition, target, terms)
    # Before ISR and ELR are written: the election depends on both, and changes both.
    _elect(record, partition, target, terms)
    _begin_leader_epoch(record, partition, target)
    _write_eligible(record, partition, target, terms)
    _write_isr(record, partition, target, terms)
    if terms.has_elr:
        _write_last_leader(record, partition)
    _write_assignment(record, partition, target, terms)
    if target.leader_recovery_state != partition.leader_recovery_state:
        record.leader_recovery_state = target.leader_recovery_state
    return None if _changes_nothing(record) else record


def _complete_reassignment(target: Target, terms: Terms) -> None:
    """End a reassignment if all adding replicas are in sync: drop the removing ones (KIP-455).

    With fewer adding than removing replicas the kept ones must be in sync too, because the partition then has fewer replicas.
    With ZooKeeper they always must (KafkaController.isReassignmentComplete of Apache Kafka 3.9.2).
    """
    adding, removing = target.adding_replicas, target.removing_replicas
    isr = [each for each in target.isr if each not in removing]
    replicas = [each for each in target.replicas if each not in removing]
    leaves_no_replica = bool(removing) and not (isr and replicas)
    is_enough = len(adding) >= len(removing) and not terms.needs_whole_target
    needed = adding if is_enough else [*adding, *replicas]
    # Not earlier: the removing replicas may be the only ones with the records.
    if (adding or removing) and not leaves_no_replica and {*needed} <= {*isr}:
        target.isr, target.replicas = isr, replicas
        target.removing_replicas, target.adding_replicas = [], []


def _eligible_after(partition: PartitionImage, target: Target, terms: Terms) -> list[NodeId]:
    return [
        each
        for each in sorted({*target.eligible_leader_replicas, *partition.isr})
        if stays_eligible(
            len(target.isr),
            terms.min_isr,
            was_in_isr=each in partition.isr,
            was_eligible=each in target.eligible_leader_replicas,
            is_in_isr=each in target.isr,
            lost_its_tail=each == terms.lost_its_tail,
            has_replica=each in target.replicas,
        )
    ]


def _choose(partition: PartitionImage, target: Target, terms: Terms) -> Elected:
    """The first replica, in the order of the election, that may lead; -1 if none may."""
    preferred = target.replicas[:1] if terms.election is Election.PREFERRED else []
    for each in (*preferred, partition.leader, *target.replicas):
        is_in_isr, is_eligible = each in target.isr, each in target.eligible_leader_replicas
        if (is_in_isr or is_eligible) and may_be_elected(terms.is_alive(each), is_in_isr, not target.isr, is_eligible):
            return Elected(each, is_unclean=False)
    if _may_elect_last_leader(partition, target, terms):
        return Elected(partition.last_known_elr[0], is_unclean=True)
    alive = filter(terms.is_alive, target.replicas) if terms.election is Election.UNCLEAN else iter(())
    leader = next(alive, NO_LEADER)
    return Elected(leader, is_unclean=leader != NO_LEADER)


def _may_elect_last_leader(partition: PartitionImage, target: Target, terms: Terms) -> bool:
    """Whether the last leader may lead although ISR and ELR are empty: all their members lost their tails, and it lost the
    least."""
    if not terms.has_elr or target.isr or target.eligible_leader_replicas:
        return False
    return len(partition.last_known_elr) == 1 and terms.is_alive(partition.last_known_elr[0])


def _elect(record: PartitionChangeRecord, partition: PartitionImage, target: Target, terms: Terms) -> None:
    leader, is_unclean = _choose(partition, target, terms)
    if leader == partition.leader:
        return
    record.leader = leader
    # The leader begins with an ISR of its own: no other replica is known to be in sync.
    if leader in target.eligible_leader_replicas:
        target.isr = [leader]
        target.eligible_leader_replicas = [each for each in target.eligible_leader_replicas if each != leader]
    if is_unclean:
        record.isr = [leader]
        if partition.leader_recovery_state != RECOVERING:
            record.leader_recovery_state = RECOVERING


def _begin_leader_epoch(record: PartitionChangeRecord, partition: PartitionImage, target: Target) -> None:
    """Name a leader that stays if a replica is dropped: that begins a leader epoch, which fences the dropped follower."""
    names_leader = record.leader != NO_LEADER_CHANGE
    drops_replica = not set(partition.replicas) <= set(target.replicas)
    if begins_leader_epoch(names_leader, drops_replica) and not names_leader:
        record.leader = partition.leader


def _write_eligible(record: PartitionChangeRecord, partition: PartitionImage, target: Target, terms: Terms) -> None:
    """Write the ELR. An unclean election, recognized by the ISR that it wrote, empties it."""
    if record.isr is not None or not terms.has_elr:
        target.eligible_leader_replicas = []
    if target.eligible_leader_replicas != partition.eligible_leader_replicas:
        record.eligible_leader_replicas = target.eligible_leader_replicas


def _write_isr(record: PartitionChangeRecord, partition: PartitionImage, target: Target, terms: Terms) -> None:
    """Write the ISR. Without the ELR the last member stays in the ISR: otherwise no record would have a complete replica."""
    may_be_written = bool(target.isr) or terms.has_elr
    if record.isr is None and may_be_written and target.isr != partition.isr:
        record.isr = target.isr


def _write_last_leader(record: PartitionChangeRecord, partition: PartitionImage) -> None:
    """Store the last leader in last_known_elr while there is no leader."""
    if record.leader == NO_LEADER and not partition.last_known_elr:
        record.last_known_elr = [partition.leader]
    elif record.leader >= 0 and partition.last_known_elr:
        record.last_known_elr = []


def _write_assignment(record: PartitionChangeRecord, partition: PartitionImage, target: Target, terms: Terms) -> None:
    known = target.directories
    directories = [known[each] if each in known else terms.directory_for_new_replica(each) for each in target.replicas]
    if target.replicas and directories != partition.directories:
        record.directories = directories
    if target.replicas and target.replicas != partition.replicas:
        record.replicas = target.replicas
    if target.removing_replicas != partition.removing_replicas:
        record.removing_replicas = target.removing_replicas
    if target.adding_replicas != partition.adding_replicas:
        record.adding_replicas = target.adding_replicas


def _changes_nothing(record: PartitionChangeRecord) -> bool:
    lists = (
        record.isr, record.eligible_leader_replicas, record.last_known_elr, record.replicas, record.removing_replicas,
        record.adding_replicas, record.directories,
    )  # fmt: skip
    return (
        all(each is None for each in lists)
        and record.leader == NO_LEADER_CHANGE
        and record.leader_recovery_state == NO_RECOVERY_CHANGE
    )
