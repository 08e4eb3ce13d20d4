"""A fair controller of one partition, as the specification's chapter 3 has it: one that never fails.

Each decision is one record; the partition epoch grows with every record, the leader epoch with every change of leader.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from reference.protocol.errors import ErrorCode
from reference.replication.isr import UNSAID
from reference.replication.partition_state import NO_BROKER, PartitionState, Peer
from reference.replication.proposal import Proposal

Nodes = frozenset[int]


@dataclass(frozen=True)
class Entry:
    """One place of the metadata log: what is true of the partition and of the brokers from there on."""

    state: PartitionState
    registry: dict[int, Peer]


class TinyController:
    """Registers and fences brokers, elects leaders, judges proposals (KIP-497, KIP-903, KIP-966)."""

    def __init__(
        self,
        nodes: tuple[int, ...],
        min_isr: int,
        chance: Random,
        trace_step: Callable[[dict[str, Any]], None],
    ) -> None:
        self.nodes = nodes
        self.min_isr = min_isr
        self.chance = chance
        self.trace_step = trace_step
        self.registry = {node: Peer(100 + node) for node in nodes}
        self.next_broker_epoch = 200
        self.state = PartitionState(chance.choice(nodes), 0, 0, nodes, nodes)
        self.elr: Nodes = frozenset()
        self.entries = [Entry(self.state, dict(self.registry))]

    @property
    def record(self) -> dict[str, Any]:
        """The partition's record as a trace shows it."""
        state = self.state
        return {
            "leader": state.leader,
            "leaderEpoch": state.leader_epoch,
            "partitionEpoch": state.partition_epoch,
            "isr": sorted(state.isr),
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
        self._decide(frozenset(self.state.isr), self.elr)
        self._done("UnfenceBroker", broker=node)

    def fence(self, node: int, action: str = "FenceBroker") -> None:
        self.registry[node] = Peer(self.registry[node].broker_epoch, is_fenced=True)
        isr = self._isr_without(node)
        self._decide(isr, self._eligible_after(isr, frozenset()))
        self._done(action, broker=node)

    def elect(self, node: int) -> None:
        """Leadership moves without a failure, if it may."""
        if node != self.state.leader and node in self.state.isr and not self.registry[node].is_fenced:
            self._publish(replace(self.state, leader=node, leader_epoch=self.state.leader_epoch + 1), self.elr)
            self._done("ElectLeader", broker=node)

    def could_elect_without(self, node: int, unclean: set[int]) -> bool:
        """Whether somebody stays eligible when a broker goes: else the partition would be without a leader for ever."""
        isr = self._isr_without(node)
        return bool((isr | self._eligible_after(isr, frozenset())) - unclean)

    # ---- proposals

    def alter_partition(self, node: int, proposal: Proposal) -> tuple[ErrorCode, PartitionState]:
        """The error, and what is true now."""
        error = self._judge(node, proposal)
        if error is ErrorCode.NONE:
            isr = frozenset(proposal.isr)
            self._publish(replace(self.state, isr=proposal.isr), self._eligible_after(isr, frozenset()))
            self._done("AlterPartition", leader=node)
        return error, self.state

    def _judge(self, node: int, proposal: Proposal) -> ErrorCode:
        if proposal.leader_epoch < self.state.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if node != self.state.leader:
            return ErrorCode.INVALID_REQUEST
        if proposal.partition_epoch < self.state.partition_epoch:
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
        return frozenset(self.state.isr) - {node}

    def _eligible_after(self, isr: Nodes, unclean: Nodes) -> Nodes:
        """While the ISR is too small the high watermark stands still: whoever leaves has all that is committed."""
        if len(isr) >= self.min_isr:
            return frozenset()
        return (self.elr | frozenset(self.state.isr)) - isr - unclean

    def _decide(self, isr: Nodes, elr: Nodes) -> None:
        """The leader stays if it can; else any live member of the ISR leads, or, where that is empty, of the ELR."""
        unfenced = {node for node in self.nodes if not self.registry[node].is_fenced}
        state, before = self.state, (self.state, self.elr)
        kept = tuple(node for node in state.isr if node in isr)
        electable = sorted((isr or elr) & unfenced)
        if state.leader in isr & unfenced or (not electable and state.leader == NO_BROKER):
            state = replace(state, isr=kept)
        elif electable:
            leader = self.chance.choice(electable)
            isr_after = kept if leader in isr else (leader,)
            elr = elr - {leader}
            state = replace(state, leader=leader, leader_epoch=state.leader_epoch + 1, isr=isr_after)
        else:
            state = replace(state, leader=NO_BROKER, leader_epoch=state.leader_epoch + 1, isr=kept)
        if (state, elr) != before:
            self._publish(state, elr)

    def _publish(self, state: PartitionState, elr: Nodes) -> None:
        self.state, self.elr = replace(state, partition_epoch=self.state.partition_epoch + 1), elr

    def _done(self, action: str, **arguments: int) -> None:
        self.entries.append(Entry(self.state, dict(self.registry)))
        self.trace_step({"node": 0, "action": action, "args": arguments, "partition": self.record})
