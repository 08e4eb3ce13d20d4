"""The addresses of other members: from the voters' record, from a response or a leader's request, or the bootstrap servers.

With the voters of the configuration (kraft.version 0) the caller has the addresses, and this module is not used.
Source: KIP-853; org.apache.kafka.raft.Endpoints, RequestManager.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from reference.controller.quorum_settings import QuorumSettings
from reference.controller.quorum_voters import NamedEndpoint, VoterSet
from reference.protocol.primitives import NodeId
from reference.protocol.schema import Message

Address = tuple[str, int]

FIRST_BOOTSTRAP = NodeId(-2)
"""Bootstrap servers have no known ids: here the first is -2, the next -3 (as in Kafka)."""


class Addresses:
    """The addresses on the voters' listener."""

    def __init__(self, settings: QuorumSettings) -> None:
        self._listener = settings.listener
        self._servers = settings.bootstrap
        self._endpoints = settings.endpoints
        self._named: dict[NodeId, Address] = {}
        self.bootstrap = tuple(NodeId(FIRST_BOOTSTRAP - index) for index in range(len(self._servers)))
        """The bootstrap servers, as peers."""

    @property
    def own(self) -> Address | None:
        """This node's address; None for a node that is not a controller."""
        found = [(each.host, each.port) for each in self._endpoints if each.listener == self._listener]
        return found[0] if found else None

    def of(self, peer: NodeId, voters: VoterSet, leader: NodeId) -> Address | None:
        """A peer's address; None if it is unknown. A leader's own messages take precedence over the voters' record."""
        if peer in self.bootstrap:
            return self._servers[FIRST_BOOTSTRAP - peer]
        if peer == leader and peer in self._named:
            return self._named[peer]
        voter = voters.get(peer)
        for each in voter.endpoints if voter is not None else ():
            if each.listener == self._listener:
                return each.host, each.port
        return self._named.get(peer)

    def learn(self, peer: NodeId, endpoints: Sequence[NamedEndpoint], kept: NodeId) -> None:
        """Learn the address of a request's sender, which may not be a voter in this member's log."""
        for each in endpoints:
            if each.name.upper() == self._listener:
                self._name({peer: (each.host, each.port)}, kept)

    def learn_from(self, response: Message, kept: NodeId) -> None:
        """Learn the addresses in a response."""
        named: Sequence[Any] = getattr(response, "node_endpoints", ())
        if named:
            self._name({each.node_id: (each.host, each.port) for each in named}, kept)

    def _name(self, named: dict[NodeId, Address], kept: NodeId) -> None:
        """Replace the learned addresses, except for that of `kept`, the leader of this epoch."""
        self._named = named | {peer: known for peer, known in self._named.items() if peer == kept}

    def add_own(self, request: Any) -> None:
        """Add this leader's endpoints to a request to another voter."""
        form = cast(Any, type(request))
        request.leader_endpoints = [
            form.LeaderEndpoint(name=each.listener, host=each.host, port=each.port) for each in self._endpoints
        ]


def add_leader(response: Any, leader: NodeId, address: Address | None) -> None:
    """Add the leader's address to a response, for nodes without the voters' record."""
    form = cast(Any, type(response))
    if leader >= 0 and address is not None:
        host, port = address
        response.node_endpoints = [form.NodeEndpoint(node_id=leader, host=host, port=port)]
