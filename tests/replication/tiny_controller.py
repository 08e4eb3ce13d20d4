"""A fair controller of one partition, as the specification's chapter 3 has it: one that never fails.

Each decision is one record; the partition epoch grows with every record, the leader epoch with every change of leader.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from reference.protocol.errors import ErrorCode
from reference.replication.isr import UNSAID
from reference.replication.proposal import Proposal
from reference.replication.reign import NO_BROKER, Peer, Reign

Nodes = frozenset[int]


@dataclass(frozen=True)
class Entry:
    """One place of the metadata log: what is true of the partition and of the brokers from there on."""

    reign: Reign
    registry: dict[int, Peer]


class TinyController:
    """Registers and fences brokers, elects leaders, judges proposals (KIP-497, KIP-903, KIP-966)."""

    def __init__(
        self,
        nodes: tuple[int, ...],
        min_isr: int,
        chance: Random,
        tell: Callable[[dict[str, Any]], None],
    ) -> None:
        self.nodes = nodes
        self.min_isr = min_isr
        self.chance = chance
        self.tell = tell
        self.registry = {node: Peer(100 + node) for node in nodes}
        self.next_broker_epoch = 200
        self.reign = Reign(chance.choice(nodes), 0, 0, nodes, nodes)
        self.elr: Nodes = frozenset()
        self.entries = [Entry(self.reign, dict(self.registry))]

    @property
    def record(self) -> dict[str, Any]:
        """The partition's record as a trace shows it."""
        reign = self.reign
        return {
            "leader": reign.leader,
            "leaderEpoch": reign.leader_epoch,
            "partitionEpoch": reign.partition_epoch,
            "isr": sorted(reign.isr),
            "elr": sorted(self.elr),
        }

    # ---- brokers

    def register(self, node: int, *, clean: bool) -> int:
        """A broker is back: it gets a new epoch, and is fenced; one that may have lost records leaves ISR and ELR."""
        self.next_broker_epoch += 1
        self.registry[node] = Peer(self.next_broker_epoch, is_fenced=True)
        isr = self._isr_without(node)
        self._decide(isr, self._eligible_after(isr, frozenset() if clean else frozenset({node})))
        self._done("RegisterBroker", broker=node)
        return self.next_broker_epoch

    def unfence(self, node: int) -> None:
        self.registry[node] = Peer(self.registry[node].broker_epoch)
        self._decide(frozenset(self.reign.isr), self.elr)
        self._done("UnfenceBroker", broker=node)

    def fence(self, node: int, action: str = "FenceBroker") -> None:
        self.registry[node] = Peer(self.registry[node].broker_epoch, is_fenced=True)
        isr = self._isr_without(node)
        self._decide(isr, self._eligible_after(isr, frozenset()))
        self._done(action, broker=node)

    def elect(self, node: int) -> None:
        """Leadership moves without a failure, if it may."""
        if node != self.reign.leader and node in self.reign.isr and not self.registry[node].is_fenced:
            self._publish(replace(self.reign, leader=node, leader_epoch=self.reign.leader_epoch + 1), self.elr)
            self._done("ElectLeader", broker=node)

    def could_elect_without(self, node: int, unclean: set[int]) -> bool:
        """Whether somebody stays eligible when a broker goes: else the partition would be without a leader for ever."""
        isr = self._isr_without(node)
        return bool((isr | self._eligible_after(isr, frozenset())) - unclean)

    # ---- proposals

    def alter_partition(self, node: int, proposal: Proposal) -> tuple[ErrorCode, Reign]:
        """The error, and what is true now."""
        error = self._judge(node, proposal)
        if error is ErrorCode.NONE:
            isr = frozenset(proposal.isr)
            self._publish(replace(self.reign, isr=proposal.isr), self._eligible_after(isr, frozenset()))
            self._done("AlterPartition", leader=node)
        return error, self.reign

    def _judge(self, node: int, proposal: Proposal) -> ErrorCode:
        if proposal.leader_epoch < self.reign.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if node != self.reign.leader:
            return ErrorCode.INVALID_REQUEST
        if proposal.partition_epoch < self.reign.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        members = zip(proposal.isr, proposal.broker_epochs, strict=True)
        eligible = all(self._is_eligible(member, broker_epoch) for member, broker_epoch in members)
        return ErrorCode.NONE if eligible else ErrorCode.INELIGIBLE_REPLICA

    def _is_eligible(self, member: int, broker_epoch: int) -> bool:
        peer = self.registry[member]
        if broker_epoch == UNSAID:
            return not peer.is_fenced
        return not peer.is_fenced and peer.broker_epoch == broker_epoch

    # ---- records

    def _isr_without(self, node: int) -> Nodes:
        return frozenset(self.reign.isr) - {node}

    def _eligible_after(self, isr: Nodes, unclean: Nodes) -> Nodes:
        """While the ISR is too small the high watermark stands still: whoever leaves has all that is committed."""
        if len(isr) >= self.min_isr:
            return frozenset()
        return (self.elr | frozenset(self.reign.isr)) - isr - unclean

    def _decide(self, isr: Nodes, elr: Nodes) -> None:
        """The leader stays if it can; else any live member of the ISR leads, or, where that is empty, of the ELR."""
        unfenced = {node for node in self.nodes if not self.registry[node].is_fenced}
        reign, before = self.reign, (self.reign, self.elr)
        kept = tuple(node for node in reign.isr if node in isr)
        electable = sorted((isr or elr) & unfenced)
        if reign.leader in isr & unfenced or (not electable and reign.leader == NO_BROKER):
            reign = replace(reign, isr=kept)
        elif electable:
            leader = self.chance.choice(electable)
            isr_after = kept if leader in isr else (leader,)
            elr = elr - {leader}
            reign = replace(reign, leader=leader, leader_epoch=reign.leader_epoch + 1, isr=isr_after)
        else:
            reign = replace(reign, leader=NO_BROKER, leader_epoch=reign.leader_epoch + 1, isr=kept)
        if (reign, elr) != before:
            self._publish(reign, elr)

    def _publish(self, reign: Reign, elr: Nodes) -> None:
        self.reign, self.elr = replace(reign, partition_epoch=self.reign.partition_epoch + 1), elr

    def _done(self, action: str, **arguments: int) -> None:
        self.entries.append(Entry(self.reign, dict(self.registry)))
        self.tell({"node": 0, "action": action, "args": arguments, "partition": self.record})
