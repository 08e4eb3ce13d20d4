"""The checker of all nodes together: an oracle for each partition, and the nodes' metadata compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from linearizability.history.excuses import EXCUSE, OVER
from linearizability.simulation.compacted_oracle import CompactedOracle
from linearizability.simulation.configuration import properties_of
from linearizability.simulation.metadata_agreement import MetadataAgreement
from linearizability.simulation.partition_oracle import Decided, PartitionOracle
from linearizability.simulation.schedule import METADATA_TOPIC, Schedule
from linearizability.simulation.traced_decisions import DECISIONS, require_decided
from linearizability.simulation.voter_agreement import VoterAgreement
from linearizability.simulation.world import Violation
from linearizability.simulation.znode_agreement import ZnodeAgreement
from linearizability.simulation.znode_tree import ZnodeTree
from reference.controller.image import MetadataImage, PartitionImage, TopicImage
from reference.controller.quorum import Quorum
from reference.node.node import Node
from reference.replication.partition import Partition
from reference.zookeeper.operations import SessionId

Key = tuple[str, int]

WITNESSED = frozenset(
    {
        "AdvanceHighWatermark", "AnswerFetch", "AppendFetched", "Truncate", "Acknowledge", "RollBackIsr", "CommitIsr",
        "ExpandIsr", "ShrinkIsr",
    }
)  # fmt: skip
"""Steps of partitions that are checked as they happen."""

VOTES = frozenset({"GrantVote", "BecomeCandidate"})
"""Steps by which a voter gives its vote."""


def _mark_nothing(f: str, **fields: object) -> None:
    pass


class ClusterChecker:
    """Sees every step of every node."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        topics = (*schedule.topics, *schedule.compacted)
        self._min_isrs = {topic.name: schedule.least_min_isr(topic) for topic in topics}
        self._compacted = {topic.name for topic in schedule.compacted}
        self._default_min_isr = int(properties_of(schedule, 1)["min.insync.replicas"])
        self._oracles: dict[tuple[UUID, int], PartitionOracle] = {}
        self._newest: dict[Key, PartitionOracle] = {}
        self._partitions: dict[int, Mapping[Key, Partition]] = {}
        self._image_ends: dict[int, int] = {}
        self._metadata = PartitionOracle("__cluster_metadata-0", 1, is_excused=False)
        self._metadata_seen: dict[int, tuple[int, int, bool, int]] = {}
        self._reached_in_steps = 0
        """The highest high watermark of the metadata that a node had when it was killed within a step."""
        self._decisions = MetadataAgreement()
        self._voters = VoterAgreement() if schedule.coordination == "changing-voters" else None
        self._znodes: ZnodeAgreement | None = None
        self._votes: dict[tuple[int, int], int] = {}
        self._broker_epochs: dict[int, int] = {}
        """The newest registration of each broker."""
        self._excuses: dict[PartitionOracle, int] = {}
        """Partition -> the number of the excuse that it has now."""
        self._numbers = 0
        self.mark: Callable[..., None] = _mark_nothing
        """Records the excuses for the history rules."""
        self.listener: Callable[[int, str, Mapping[str, Any]], None] | None = None
        """Called with every step: node, action, row of the trace."""

    # ---- what others call

    def expect(self, topic: str, min_isr: int) -> None:
        """Announce the min.insync.replicas of a topic that the schedule does not name."""
        self._min_isrs[topic] = min_isr

    def oracle(self, key: Key) -> PartitionOracle | None:
        """The oracle of a partition of the newest topic with this name; None where there is none."""
        return self._newest.get(key)

    def oracle_of_id(self, topic_id: UUID, index: int) -> PartitionOracle | None:
        """The oracle of a partition of the topic with this id; None where there is none."""
        return self._oracles.get((topic_id, index))

    @property
    def leader_changes(self) -> int:
        """The number of leader changes of all partitions."""
        return sum(oracle.leader_changes for oracle in self._oracles.values())

    @property
    def is_excused(self) -> bool:
        return any(oracle.is_excused for oracle in self._oracles.values())

    def excuses(self, key: Key) -> bool:
        """Whether committed records of this partition may be lost."""
        oracle = self._newest.get(key)
        return oracle is not None and oracle.is_excused

    def lost_ends(self, number: int, partition: Partition) -> bool:
        """Whether an excused loss may explain the missing end of each open transaction in a node's replica."""
        return self._oracle_of(partition.topic, partition.topic_id, partition.index).lost_ends(number, partition)

    # ---- what machines call

    def on_change(self, number: int, partition: Partition) -> None:
        """Errors: Violation."""
        self._oracle_of(partition.topic, partition.topic_id, partition.index).observe(number, partition)

    def on_action(self, number: int, action: str, row: Mapping[str, Any]) -> None:
        """Errors: Violation."""
        if self.listener is not None:
            self.listener(number, action, row)
        if self._znodes is not None:
            self._znodes.on_action(number, action, row)
            if action == "TakeStopReplica":
                self._require_deletable(number, row["args"]["deleted"])
        if action in VOTES:
            self._note_vote(number, row["epoch"], row.get("to", number))
        if action in DECISIONS and self._schedule.coordination != "zookeeper":
            require_decided(action, row)
        if action not in WITNESSED or row["partition"].startswith(METADATA_TOPIC):
            return
        topic, _, index = row["partition"].rpartition("-")
        partition = self._partitions.get(number, {}).get((topic, int(index)))
        if partition is None:
            return
        oracle = self._oracle_of(topic, partition.topic_id, partition.index)
        match action:
            case "Truncate":
                oracle.truncated(number, row["leo"])
            case "AppendFetched":
                oracle.require_no_newer_epoch(number, partition)
            case "Acknowledge":
                oracle.acknowledge(number, partition)
            case "AnswerFetch":
                oracle.count_follower(number, partition, row["args"]["follower"], row["args"]["end"])
            case "CommitIsr":
                if not partition.is_leader:
                    raise Violation(
                        "traced-decision", f"node {number} commits an ISR of {row['partition']}, and follows"
                    )
            case "ExpandIsr" | "ShrinkIsr":
                _require_change(number, action, row["args"]["follower"], partition)
            case "RollBackIsr":
                oracle.require_known_members(number, partition)
            case _:
                oracle.advance(number, partition, row["hw"])

    def _require_deletable(self, number: int, keys: list[tuple[str, int]]) -> None:
        """Check the replicas that a node is about to delete. Errors: Violation."""
        assert self._znodes is not None
        for key in keys:
            partition = self._partitions.get(number, {}).get((key[0], key[1]))
            if partition is not None:
                self._znodes.on_deletion(number, partition.topic, partition.index, partition.topic_id)

    def _note_vote(self, voter: int, epoch: int, candidate: int) -> None:
        """Check that a voter has one vote in each epoch, over all its incarnations. Errors: Violation."""
        first = self._votes.setdefault((voter, epoch), candidate)
        if first != candidate:
            text = f"node {voter} votes for node {candidate} in epoch {epoch}, where it voted for node {first}"
            raise Violation("two-votes", text)

    def on_step(self, number: int, node: Node) -> None:
        """Errors: Violation."""
        self._partitions[number] = node.partitions
        if self._schedule.coordination == "zookeeper":
            return
        self._watch_quorum(number, node)
        self._decisions.look_at_replicas(number, node)
        image = node.image
        known = self._image_ends.get(number, -1)
        if image.end_offset != known:
            self._image_ends[number] = image.end_offset
            self._read(number, image)
            self._decisions.follow(number, node, is_first=known < 0)

    def _watch_quorum(self, number: int, node: Node) -> None:
        """Check the metadata log: one active controller in each epoch, and equal, permanent committed records on all nodes.

        A power loss is no excuse: the quorum counts only fsynced records.
        """
        quorum = node.quorum
        seen = quorum.log_end_offset, quorum.high_watermark, quorum.is_leader, quorum.epoch
        before = self._metadata_seen.get(number)
        if seen == before:
            return
        self._metadata_seen[number] = seen
        if before is not None and (quorum.epoch < before[3] or quorum.high_watermark < before[1]):
            raise Violation("quorum-back", f"node {number}: epoch and high watermark went from {before} to {seen}")
        log = quorum.records_log
        if quorum.high_watermark > log.log_end_offset:
            text = f"node {number} says {quorum.high_watermark}, and its metadata log ends at {log.log_end_offset}"
            raise Violation("high-watermark-beyond-end", text)
        self._require_own_epoch(number, before, quorum)
        self._metadata.observe_log(number, log, quorum.high_watermark, quorum.epoch if quorum.is_leader else None)
        if self._voters is not None:
            self._voters.follow(number, quorum)
        snapshot = quorum.latest_snapshot
        committed_end = max(self._metadata.committed_end, self._reached_in_steps)
        if snapshot is not None and snapshot.end_offset > committed_end:
            text = f"node {number} has a snapshot up to {snapshot.end_offset}, committed up to {committed_end}"
            raise Violation("snapshot-not-committed", text)

    def _require_own_epoch(self, number: int, before: tuple[int, int, bool, int] | None, quorum: Quorum) -> None:
        """Check that a leader commits earlier epochs' records only together with one of its own epoch (Raft, 5.4.2)."""
        if before is None or not (before[2] and quorum.is_leader) or before[3] != quorum.epoch:
            return
        if quorum.high_watermark > max(before[1], quorum.records_log.log_start_offset) and before[1] >= 0:
            epoch = quorum.records_log.epoch_at(quorum.high_watermark - 1)
            if epoch != quorum.epoch:
                text = f"node {number} commits up to {quorum.high_watermark}, of epoch {epoch}, as the leader of {quorum.epoch}"
                raise Violation("commit-of-old-epoch", text)

    def on_kill_in_step(self, node: Node) -> None:
        """A step that commits metadata may also write a snapshot of them, and no end of the step shows what it committed."""
        if self._schedule.coordination != "zookeeper":
            self._reached_in_steps = max(self._reached_in_steps, node.quorum.high_watermark)

    def on_process_end(self, number: int, is_clean: bool) -> None:
        for oracle in self._oracles.values():
            oracle.end_process(number, self._broker_epochs.get(number, -1), is_clean)
        self._metadata.end_process(number)
        if self._znodes is not None:
            self._znodes.end_process(number)
        seen = self._metadata_seen.get(number)
        if seen is not None:
            # The epoch is durable; the high watermark is not.
            self._metadata_seen[number] = (-1, -1, False, seen[3])
        self._image_ends.pop(number, None)
        self._partitions.pop(number, None)

    def on_power_loss(self, number: int) -> None:
        for oracle in self._oracles.values():
            oracle.lost_power(number, self._broker_epochs.get(number, -1))

    # ---- metadata

    def watch_zookeeper(self, tree: ZnodeTree, is_live: Callable[[SessionId], bool]) -> None:
        """Check the decisions that are written to these znodes; `is_live` returns whether a session is live."""
        self._znodes = agreement = ZnodeAgreement(tree, is_live, self._decided, self._registered)
        tree.on_write = agreement.on_write
        tree.on_transaction = agreement.on_transaction

    def _decided(self, name: str, topic_id: UUID, index: int, decided: Decided, epochs: Mapping[int, int]) -> None:
        oracle = self._oracle_of(name, topic_id, index)
        for member in {*decided.isr} - {*oracle.decided.isr}:
            if member in epochs:
                oracle.rejoined(member, epochs[member], decided.leader_epoch)
        if decided.partition_epoch > oracle.decided.partition_epoch:
            oracle.decide(decided)

    def _registered(self, broker: int, epoch: int) -> None:
        self._broker_epochs[broker] = epoch

    def _read(self, number: int, image: MetadataImage) -> None:
        for broker in image.brokers.values():
            self._broker_epochs[broker.id] = max(broker.epoch, self._broker_epochs.get(broker.id, -1))
        for topic in image.topics.values():
            for index, partition in topic.partitions.items():
                oracle = self._oracle_of(topic.name, topic.id, index)
                if partition.partition_epoch > oracle.decided.partition_epoch or (
                    partition.partition_epoch == oracle.decided.partition_epoch
                    and tuple(partition.eligible_leader_replicas) != oracle.decided.eligible
                ):
                    self._require_unfenced(number, image, topic, index, partition)
                    for member in partition.isr:
                        broker = image.brokers.get(member)
                        if broker is not None:
                            oracle.rejoined(member, broker.epoch, partition.leader_epoch)
                    oracle.decide(decided_of(partition))

    def _require_unfenced(
        self, number: int, image: MetadataImage, topic: TopicImage, index: int, partition: PartitionImage
    ) -> None:
        for member in partition.isr:
            broker = image.brokers.get(member)
            if broker is None or broker.fenced:
                text = f"{topic.name}-{index}: node {number} knows node {member} in the ISR {partition.isr}, and fenced"
                raise Violation("fenced-member-in-isr", text)

    def _note_excuse(self, oracle: PartitionOracle) -> None:
        """Record that losses of a partition are excused from now on, because of these nodes, or no longer are."""
        if not oracle.excuse_nodes:
            self.mark(OVER, number=self._excuses.pop(oracle))
            return
        number = self._excuses.setdefault(oracle, self._numbers + 1)
        self._numbers = max(self._numbers, number)
        self.mark(EXCUSE, number=number, cause="power-loss", keys=[oracle.name], nodes=[*oracle.excuse_nodes])

    def _oracle_of(self, name: str, topic_id: UUID, index: int) -> PartitionOracle:
        oracle = self._oracles.get((topic_id, index))
        if oracle is None:
            min_isr = self._min_isrs.get(name, self._default_min_isr)
            kind = CompactedOracle if name in self._compacted else PartitionOracle
            oracle = kind(f"{name}-{index}", min_isr, self._schedule.elects_uncleanly)
            oracle.has_elr = self._schedule.coordination != "zookeeper"
            oracle.on_excuse = self._note_excuse
            self._oracles[topic_id, index] = oracle
            self._newest[name, index] = oracle
        return oracle


def _require_change(number: int, action: str, follower: int, partition: Partition) -> None:
    """Check that a leader proposes to add only a replica outside the ISR, or to remove one inside. Errors: Violation."""
    isr = partition.state.isr
    if (follower in isr) == (action == "ExpandIsr"):
        text = f"node {number} proposes {action} of node {follower} to {partition.name}, whose ISR is {list(isr)}"
        raise Violation("proposal-of-no-change", text)


def decided_of(partition: PartitionImage) -> Decided:
    return Decided(
        partition.partition_epoch,
        partition.leader,
        partition.leader_epoch,
        tuple(partition.replicas),
        tuple(partition.isr),
        tuple(partition.eligible_leader_replicas),
    )
