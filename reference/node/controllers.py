"""The other controllers, as a node knows them: the voters, their addresses, and whether there are others.

The voters are those of the configuration (controller.quorum.voters), or of the log (KIP-853).
"""

from __future__ import annotations

from collections.abc import Callable

from reference.controller.configs import Configuration
from reference.controller.image import Endpoint
from reference.controller.quorum import Quorum
from reference.controller.quorum_settings import QuorumSettings
from reference.node.active_controller import VoterEndpoints
from reference.node.identity import Identity
from reference.node.peers import NOWHERE, Peers, quorum_purpose
from reference.node.properties import Address, Voters, first_controller_listener_of
from reference.node.release import RELEASE, peers_release_of
from reference.node.requests import Request, Responder
from reference.protocol.primitives import NodeId, TimestampMs
from reference.protocol.schema import Message


def quorum_settings(identity: Identity, configuration: Configuration, voters: Voters) -> QuorumSettings:
    """The settings of the quorum; `voters` are the configuration's."""
    properties = configuration.static
    return QuorumSettings(
        tuple(voters),
        pre_vote=peers_release_of(properties) == RELEASE,
        listener=first_controller_listener_of(properties),
        endpoints=identity.controller_endpoints,
        bootstrap=identity.bootstrap,
        auto_join=properties.get("controller.quorum.auto.join.enable", "").strip().lower() == "true",
    ).configured(configuration.integer)


def answer(responder: Responder, token: object, response: Message, now: TimestampMs) -> None:
    """Pass a response of the quorum to its token: a client's request, or a pending decision."""
    if isinstance(token, Request):
        responder.respond(token, response)
    else:
        assert callable(token)
        token(response, now)


class Controllers:
    """The voters of the quorum."""

    def __init__(self, quorum: Quorum, voters: Voters) -> None:
        """`voters` are the configuration's."""
        self._quorum = quorum
        self._voters = voters

    @property
    def is_alone(self) -> bool:
        """Whether this is the only voter, so that there is no other to wait for."""
        return len(self._voters) == 1 if self._quorum.is_static else self._quorum.is_only_voter

    @property
    def kraft_version(self) -> int:
        """The finalized kraft.version; 0 with the voters of the configuration."""
        return self._quorum.kraft_version

    def address_of(self, controller: NodeId) -> Address:
        """The address of a controller, from the quorum or the configuration."""
        known = self._quorum.address_of(controller)
        if known is None:
            return self._voters.get(controller, NOWHERE)
        return Address(*known, self._quorum.settings.listener)

    def ask(
        self, peers: Peers, peer: NodeId, body: Message, now: TimestampMs, take: Callable[[NodeId, Message], None]
    ) -> None:
        """Send a quorum's request to another member, on the channel for it; `take` gets each response first."""

        def answered(answer: Message | None, then: TimestampMs) -> None:
            if answer is None:
                self._quorum.unreachable(peer, body, then)
            else:
                take(peer, answer)
                self._quorum.receive(peer, body, answer, then)

        timeout_ms = self._quorum.settings.request_timeout_ms
        peers.ask(peer, self.address_of(peer), quorum_purpose(body), body, now, timeout_ms, answered)

    def endpoints(self) -> VoterEndpoints:
        """The endpoints of each voter, for DescribeQuorum and DescribeCluster."""
        if not self._quorum.is_static:
            return {voter.id: voter.endpoints for voter in self._quorum.voters}
        listener = self._quorum.settings.listener
        return {id: [Endpoint(listener, at.host, at.port)] for id, at in self._voters.items()}
