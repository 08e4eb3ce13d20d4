"""Which node coordinates a group or a transactional id. (COO-01 to COO-07)"""

from __future__ import annotations

from reference.controller.image import Endpoint, MetadataImage
from reference.node.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, AutoTopicCreation, coordinator_of
from reference.node.requests import Request
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from reference.protocol.primitives import NodeId, TimestampMs

FIRST_VERSION_WITH_SEVERAL_KEYS = 4

GROUP, TRANSACTION = 0, 1
_TOPICS = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTIONS_TOPIC}
"""Where the coordinators of each type of key keep their state; share groups are not coordinated here."""

_SENTENCES = {
    ErrorCode.NONE: "NONE",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.INVALID_REQUEST: "This most likely occurs because of a request being malformed by the client library or the "
    "message was sent to an incompatible broker. See the broker logs for more details.",
}
"""What Kafka 4.3.1 says of each answer in versions 1 to 3. Later ones are silent but for a request that is refused."""


def find_coordinator(
    image: MetadataImage, creation: AutoTopicCreation, request: Request, body: FindCoordinatorRequest, now: TimestampMs
) -> FindCoordinatorResponse:
    """Who coordinates each key; the internal topic comes to be on the first question."""
    if request.version >= FIRST_VERSION_WITH_SEVERAL_KEYS:
        found = [_find(image, creation, request, key, body.key_type, now) for key in body.coordinator_keys]
        return FindCoordinatorResponse(coordinators=found)
    found = _find(image, creation, request, body.key, body.key_type, now)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=_SENTENCES[ErrorCode(found.error_code)],
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(
    image: MetadataImage, creation: AutoTopicCreation, request: Request, key: str, key_type: int, now: TimestampMs
) -> FindCoordinatorResponse.Coordinator:
    answer = FindCoordinatorResponse.Coordinator(key=key, node_id=-1, port=-1)
    topic = _TOPICS.get(key_type)
    if topic is None:
        answer.error_code = ErrorCode.INVALID_REQUEST
        answer.error_message = _SENTENCES[ErrorCode.INVALID_REQUEST]
        return answer
    leader = coordinator_of(image, topic, key)
    if leader is None:
        creation.create_internal(topic, now)
    endpoint = _endpoint_of(image, leader, request.client.listener) if leader is not None else None
    if leader is None or endpoint is None:
        answer.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return answer
    answer.node_id, answer.host, answer.port = leader, endpoint.host, endpoint.port
    return answer


def _endpoint_of(image: MetadataImage, broker: NodeId, listener: str) -> Endpoint | None:
    found = image.brokers.get(broker)
    if found is None or found.fenced:
        return None
    return next((each for each in found.endpoints if each.listener == listener), None)
