"""The way to the active controller, wherever it is.

Where this node is the active controller it decides (`controller`); else the leader of the quorum is asked. What a broker asks
for itself goes straight to that one, on a lane for its purpose; what a client asks of a broker goes in an envelope
(`forwarding`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from reference.node.apis import Api, is_decided
from reference.node.peers import CONTROLLER_TIMEOUT_MS, Answered
from reference.node.refusals import refusal
from reference.node.release import BROKER, CONTROLLER
from reference.node.replication import FETCH_LANE
from reference.node.requests import Client, Request
from reference.node.voters import QUORUM_LANES
from reference.protocol.errors import ErrorCode
from reference.protocol.primitives import Buffer, Epoch, NodeId, TimestampMs
from reference.protocol.schema import Message

if TYPE_CHECKING:
    from reference.node.node import Node

HEARTBEAT_LANE = "heartbeat"


class ActiveController:
    """Whom this node asks for decisions."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._session_timeout_ms = node.configuration.integer("broker.session.timeout.ms")
        self._followed_reign: tuple[Epoch, NodeId] = (-1, -1)
        """The quorum's epoch and leader, of whom the controller's lanes ask."""

    def take(self, request: Request, api: Api, body: Message, kind: str, frame: Buffer, now: TimestampMs) -> None:
        """A request has come in on a kind of listener that only the active controller answers."""
        copied = bytes(frame)
        if self._node.controller.is_active:
            self.decide(
                request, api, body, now,
                lambda answer, then: self._node.responder.respond(request, answer) if answer is not None else None,
                lambda then: self._not_here(request, body, kind, copied, then),
            )  # fmt: skip
        else:
            self._not_here(request, body, kind, copied, now)

    def _not_here(self, request: Request, body: Message, kind: str, frame: bytes, now: TimestampMs) -> None:
        if kind is CONTROLLER:
            self._node.responder.respond(request, refusal(request.key, request.version, body, ErrorCode.NOT_CONTROLLER))
        else:
            self._node.forwarding.forward(request, body, frame, now)

    def decide(
        self, request: Request, api: Api, body: Message, now: TimestampMs, answer: Answered,
        abandon: Callable[[TimestampMs], None],
    ) -> None:  # fmt: skip
        """Let the controller that this node is decide on a request."""
        node = self._node
        node.controller.hears(body, now)
        node.controller.submit(lambda then: api.handler(request, body, then), answer, abandon, now)

    def decide_here(self, request: Request, body: Message, answered: Answered, now: TimestampMs) -> bool:
        """Decide on a request that was to be carried on, if this node has become the active controller."""
        if not self._node.controller.is_active:
            return False
        api = self._node.apis[BROKER][request.key]
        self.decide(request, api, body, now, answered, lambda then: answered(None, then))
        return True

    def ask(self, lane: str, body: Message, answered: Answered, now: TimestampMs) -> None:
        """Ask it for this node itself; None is the answer where there is none."""
        node = self._node
        if node.controller.is_active:
            api = node.apis[CONTROLLER][body.KEY]
            request = Request(Client(-1, "", ""), body.KEY, api.highest, 0, f"node-{node.id}")
            self.decide(request, api, body, now, answered, lambda then: answered(None, then))
        elif (leader := node.quorum.leader) >= 0 and leader != node.id:
            timeout_ms = self._session_timeout_ms // 2 if lane == HEARTBEAT_LANE else CONTROLLER_TIMEOUT_MS
            node.peers.ask(leader, node.voters[leader], lane, body, now, timeout_ms, answered)
        else:
            answered(None, now)

    def carried(self, key: int) -> Api | None:
        """The API for a request that comes in an envelope; None where it is not the controller's to answer."""
        return self._node.apis[BROKER].get(key) if is_decided(key) else None

    def follow(self, now: TimestampMs) -> None:
        """Another reign of the quorum: what was asked of the one before, be it the same node, is asked again."""
        node = self._node
        reign = node.quorum.epoch, node.quorum.leader
        if reign == self._followed_reign:
            return
        (_, former), self._followed_reign = self._followed_reign, reign
        if former >= 0:
            for lane in node.peers.lanes_to(former):
                if lane not in QUORUM_LANES and lane != FETCH_LANE:
                    node.peers.hang_up(former, lane, now)
