"""What comes in on the controllers' listeners: the quorum's own messages, and what brokers ask the active controller. (ELE-*)"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from reference.node.requests import Client, Request
from reference.protocol.codec import CodecError, decode_from
from reference.protocol.errors import ErrorCode
from reference.protocol.frames import decode_request, encode_response
from reference.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from reference.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from reference.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from reference.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from reference.protocol.messages.fetch import FetchRequest
from reference.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from reference.protocol.messages.vote import VoteRequest, VoteResponse
from reference.protocol.primitives import NO_UUID, TimestampMs
from reference.protocol.schema import Message

if TYPE_CHECKING:
    from reference.node.node import Node

FIRST_DESCRIBE_WITH_NODES = 2
"""From this version of DescribeQuorum on members have directories, and voters addresses."""


def vote(node: Node, request: Request, body: VoteRequest, now: TimestampMs) -> VoteResponse:
    return node.quorum.handle_vote(body, now)


def begin_quorum_epoch(
    node: Node, request: Request, body: BeginQuorumEpochRequest, now: TimestampMs
) -> BeginQuorumEpochResponse:
    return node.quorum.handle_begin_quorum_epoch(body, now)


def end_quorum_epoch(
    node: Node, request: Request, body: EndQuorumEpochRequest, now: TimestampMs
) -> EndQuorumEpochResponse:
    return node.quorum.handle_end_quorum_epoch(body, now)


def fetch_metadata(node: Node, request: Request, body: FetchRequest, now: TimestampMs) -> None:
    """The metadata log is fetched here; the answer comes when there is something, or the time is over."""
    node.quorum.handle_fetch(body, request, now)


def fetch_snapshot(node: Node, request: Request, body: FetchSnapshotRequest, now: TimestampMs) -> FetchSnapshotResponse:
    return node.quorum.handle_fetch_snapshot(body, now)


def describe_quorum(
    node: Node, request: Request, body: DescribeQuorumRequest, now: TimestampMs
) -> DescribeQuorumResponse:
    """How far each member is, as the leader knows; where the voters are found, from version 2 on."""
    response = node.quorum.handle_describe_quorum(now)
    if request.version < FIRST_DESCRIBE_WITH_NODES:
        for member in _members(response):
            member.replica_directory_id = NO_UUID
    else:
        listener = next(iter(node.controller_listeners), "CONTROLLER")
        response.nodes = [
            DescribeQuorumResponse.Node(
                node_id=voter, listeners=[DescribeQuorumResponse.Listener(name=listener, host=host, port=port)]
            )
            for voter, (host, port) in sorted(node.voters.items())
        ]
    return response


def _members(response: DescribeQuorumResponse) -> Iterable[DescribeQuorumResponse.ReplicaState]:
    for topic in response.topics:
        for partition in topic.partitions:
            yield from partition.current_voters
            yield from partition.observers


def decide(node: Node, request: Request, body: Message, now: TimestampMs) -> Message:
    """A request that is the controller's own: see `Controller.answer_to`."""
    return node.controller.answer_to(request.key, request.version, body, now)


def envelope(node: Node, request: Request, body: EnvelopeRequest, now: TimestampMs) -> EnvelopeResponse | None:
    """A client's request that a broker carried here; its answer goes back in an envelope too (KIP-590)."""
    if not node.controller.is_active:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    try:
        header, form, view, position = decode_request(bytes(body.request_data))
        key, version = header.request_api_key, header.request_api_version
        api = node.active_controller.carried(key)
        if api is None or not api.lowest <= version <= api.highest:
            return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
        inner, _ = decode_from(form.request, version, view, position)
    except CodecError:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    carried = Request(Client(-1, "", request.client.listener), key, version, header.correlation_id, header.client_id)

    def answer(response: Message | None, then: TimestampMs) -> None:
        assert response is not None
        parts = encode_response(key, version, header.correlation_id, response)
        data = b"".join(bytes(part) for part in parts)[4:]  # type: ignore[arg-type]  # no slices of files
        node.responder.respond(request, EnvelopeResponse(response_data=data))

    def abandon(then: TimestampMs) -> None:
        node.responder.respond(request, EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER))

    node.active_controller.decide(carried, api, inner, now, answer, abandon)
    return None
