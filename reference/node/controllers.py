"""The other controllers as a node knows them: who votes, where each is reached, whether there is another one at all.

The voters are the configuration's (controller.quorum.voters), or those in the log (KIP-853).
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
    """How the quorum is set up; `voters` are the configuration's."""
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
    """Give an answer of the quorum to its token: a client's request, or the decision that asked for it."""
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
        """Whether there is no voter but one: then no other is to be waited for."""
        return len(self._voters) == 1 if self._quorum.is_static else self._quorum.is_only_voter

    @property
    def kraft_version(self) -> int:
        """The finalized kraft.version; 0 where the voters are the configuration's."""
        return self._quorum.kraft_version

    def address_of(self, controller: NodeId) -> Address:
        """Where a controller is reached: as the quorum knows, or as the configuration says."""
        known = self._quorum.address_of(controller)
        if known is None:
            return self._voters.get(controller, NOWHERE)
        return Address(*known, self._quorum.settings.listener)

    def ask(
        self, peers: Peers, peer: NodeId, body: Message, now: TimestampMs, take: Callable[[NodeId, Message], None]
    ) -> None:
        """Put a question of the quorum to another member, on the channel for it; `take` sees each response first."""

        def answered(answer: Message | None, then: TimestampMs) -> None:
            if answer is None:
                self._quorum.unreachable(peer, body, then)
            else:
                take(peer, answer)
                self._quorum.receive(peer, body, answer, then)

        timeout_ms = self._quorum.settings.request_timeout_ms
        peers.ask(peer, self.address_of(peer), quorum_purpose(body), body, now, timeout_ms, answered)

    def endpoints(self) -> VoterEndpoints:
        """The endpoints of each voter, for clients that describe the quorum."""
        if not self._quorum.is_static:
            return {voter.id: voter.endpoints for voter in self._quorum.voters}
        listener = self._quorum.settings.listener
        return {id: [Endpoint(listener, at.host, at.port)] for id, at in self._voters.items()}
