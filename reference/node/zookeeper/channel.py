"""Sends requests to the controller, which is one of the brokers.

A broker's own requests use channels for their purposes. Clients' requests for the controller are forwarded too, where Kafka's
brokers answer most APIs with NOT_CONTROLLER: a client of the controller itself sees no difference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reference.node.active_controller import ActiveController, Asked
from reference.node.decisions import Abandon
from reference.node.peers import CONTROLLER_TIMEOUT_MS, Answered, Brokers, Peers
from reference.node.refusals import refusal
from reference.node.release import versions_of
from reference.node.replication import FETCH_PURPOSE
from reference.node.requests import Request, Responder
from reference.node.zookeeper.controller_requests import PURPOSE
from reference.node.zookeeper.producer_blocks import ProducerBlocks
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from reference.protocol.messages.delete_topics import DeleteTopicsRequest
from reference.protocol.primitives import NO_EPOCH, NO_NODE, LeaderEpoch, NodeId, TimestampMs
from reference.protocol.schema import Message

FORWARD_PURPOSE = "forward"
RETRY_MS = 50
TIMEOUT_MS = 30_000


@dataclass(slots=True)
class _Carried:
    """A client's request that is being forwarded."""

    request: Request
    body: Message
    deadline: TimestampMs
    next_try: TimestampMs


class ZooKeeperChannel:
    """The counterpart of `ControllerChannel`."""

    def __init__(
        self,
        node: NodeId,
        controller: ActiveController,
        brokers: Brokers,
        controller_id: Callable[[], NodeId],
        controller_epoch: Callable[[], LeaderEpoch],
        peers: Peers,
        responder: Responder,
    ) -> None:
        self.controller = controller
        self.blocks: ProducerBlocks | None = None
        """The source of producer ids; None for the controller."""
        self._node = node
        self._brokers = brokers
        self._controller_id = controller_id
        self._peers = peers
        self._controller_epoch = controller_epoch
        self._followed: tuple[NodeId, LeaderEpoch] = (NO_NODE, NO_EPOCH)
        """The controller and its epoch when the channels were opened."""
        self._responder = responder
        self._waiting: list[_Carried] = []

    def ask(self, purpose: str, body: Message, answered: Answered, now: TimestampMs) -> None:
        """Send a request to the controller; the answer is None if there is none."""
        controller = self._controller_id()
        if self.blocks is not None and isinstance(body, AllocateProducerIdsRequest):
            self.blocks.ask(answered, now)
        elif self.controller.is_active:
            version = versions_of(body.KEY, "3.9.2")[1]
            self.controller.decide(Asked(body.KEY, version, body), answered, lambda then: answered(None, then), now)
        elif controller >= 0 and controller != self._node:
            self._brokers.ask(controller, purpose, body, CONTROLLER_TIMEOUT_MS, answered, now)
        else:
            answered(None, now)

    def follow(self, now: TimestampMs) -> None:
        """After a change of the controller, fail the open requests to the former one, so that they are sent again."""
        followed = self._controller_id(), self._controller_epoch()
        if followed == self._followed:
            return
        (former, _), self._followed = self._followed, followed
        if former >= 0:
            for purpose in self._peers.purposes_to(former):
                if purpose != FETCH_PURPOSE and purpose != PURPOSE:
                    self._peers.hang_up(former, purpose, now)

    def decide_or_refuse(self, request: Request, body: Message, now: TimestampMs) -> None:
        """Answer a request that only the controller handles, with NOT_CONTROLLER if another broker is the controller."""

        def refuse(then: TimestampMs) -> None:
            self._responder.respond(request, refusal(request.key, request.version, body, ErrorCode.NOT_CONTROLLER))

        self._decide(request, body, refuse, now) if self.controller.is_active else refuse(now)

    def was_forwarded(self, request: Request) -> bool:
        """Whether another broker forwarded a client's request to this node as the controller: that broker has checked it.

        A former controller passes it on.
        """
        return self._brokers.has_sent(request.client_id)

    def carry(self, request: Request, body: Message, frame: bytes, now: TimestampMs) -> None:
        """Answer a client's request, by this node or the controller."""
        self._send(_Carried(request, body, TimestampMs(now + TIMEOUT_MS), now), now)

    def tick(self, now: TimestampMs) -> None:
        """Retry the requests that are due."""
        due = [carried for carried in self._waiting if carried.next_try <= now]
        self._waiting = [carried for carried in self._waiting if carried.next_try > now]
        for carried in due:
            self._send(carried, now)

    def next_deadline(self) -> TimestampMs | None:
        return min((carried.next_try for carried in self._waiting), default=None)

    def _send(self, carried: _Carried, now: TimestampMs) -> None:
        request, body = carried.request, carried.body
        if now >= carried.deadline:
            code = ErrorCode.REQUEST_TIMED_OUT
            self._responder.respond(request, refusal(request.key, request.version, body, code))
        elif self.controller.is_active:
            self._decide(request, body, lambda then: self._wait(carried, then), now)
        else:
            question = _in_newest_form(body)
            self.ask(FORWARD_PURPOSE, question, lambda answer, then: self._answered(carried, answer, then), now)

    def _answered(self, carried: _Carried, answer: Message | None, now: TimestampMs) -> None:
        if answer is None or _is_not_controller(answer):
            self._wait(carried, now)
        else:
            self._responder.respond(carried.request, answer)

    def _wait(self, carried: _Carried, now: TimestampMs) -> None:
        carried.next_try = TimestampMs(now + RETRY_MS)
        self._waiting.append(carried)

    def _decide(self, request: Request, body: Message, abandon: Abandon, now: TimestampMs) -> None:
        def answer(response: Message | None, then: TimestampMs) -> None:
            if response is not None:
                self._responder.respond(request, response)

        self.controller.decide(Asked(request.key, request.version, body), answer, abandon, now)


def _in_newest_form(body: Message) -> Message:
    """The request in the newest version's fields, for forwarding: DeleteTopics has topics in another field there."""
    if isinstance(body, DeleteTopicsRequest) and body.topic_names:
        topics = [DeleteTopicsRequest.DeleteTopicState(name=name) for name in body.topic_names]
        return DeleteTopicsRequest(topics=topics, timeout_ms=body.timeout_ms)
    return body


def _is_not_controller(answer: Message) -> bool:
    """Whether the broker is no longer the controller, by the response's error or that of its first item."""
    code = getattr(answer, "error_code", None)
    if code is None:
        items = next(
            (value for name in ("topics", "responses", "results") if (value := getattr(answer, name, None))), ()
        )
        code = next((each.error_code for each in items if hasattr(each, "error_code")), ErrorCode.NONE)
    return code == ErrorCode.NOT_CONTROLLER
