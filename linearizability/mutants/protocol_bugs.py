"""Bugs in frames and responses, and in request handlers."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from linearizability.mutants.registry import mutant
from reference.protocol.codec import CodecError
from reference.protocol.errors import ErrorCode

MUCH = 1 << 30


@mutant(
    "reference.node.requests:Responder.respond",
    "The twelfth answer on a connection, and each twelfth after it, bears the next request's correlation id.",
    caught_by=("FRM",),
    fuzz=True,
)
def wrong_correlation_id(original: Any, responder: Any, request: Any, response: Any) -> None:
    answers = vars(responder).setdefault("_answers", Counter())
    answers[request.client.connection] += 1
    if answers[request.client.connection] % 12 == 0:
        request.correlation_id += 1
    original(responder, request, response)


@mutant(
    "reference.protocol.codec_decoding:read_tags",
    "A request with a tagged field that the broker does not know closes the connection.",
    caught_by=("FRM", "API"),
)
def unknown_tags_refused(original: Any, view: memoryview, position: int, size: int, budget: int) -> Any:
    tags, end, left = original(view, position, size, budget)
    if tags:
        raise CodecError(f"unknown tagged field {tags[0][0]}")
    return tags, end, left


@mutant(
    "reference.runtime.server:Server._close_idle",
    "An idle connection is closed after a fifth of connections.max.idle.ms.",
    caught_by=("FRM-13",),
)
def idle_a_fifth_as_long(original: Any, server: Any) -> None:
    whole_ms = server._max_idle_ms
    server._max_idle_ms = whole_ms // 5
    try:
        original(server)
    finally:
        server._max_idle_ms = whole_ms


@mutant(
    "reference.node.produce:_answer",
    "An acks=0 produce that failed leaves its connection open.",
    caught_by=("ACK-03",),
)
def acks0_error_unnoticed(original: Any, responder: Any, request: Any, acks: int, response: Any) -> Any:
    return response if acks != 0 else responder.respond_raw(request, None)


@mutant(
    "reference.node.produce:_append",
    "A batch with acks=1 is acknowledged and not appended.",
    caught_by=("PRD", "ACK"),
    fuzz=True,
)
def acknowledged_without_append(original: Any, context: Any, request: Any, acks: int, part: Any, now: int) -> Any:
    partition = context.replicas.partitions.get((part.topic, part.data.index))
    if acks != 1 or partition is None:
        return original(context, request, acks, part, now)
    part.result.base_offset = partition.log.log_end_offset
    return None


@mutant(
    "reference.node.fetch:fetch",
    "A fetch waits for its whole max_wait although min_bytes are there.",
    caught_by=("FET",),
)
def timed_out_without_need(original: Any, node: Any, request: Any, body: Any, now: int) -> Any:
    if body.max_wait_ms > 0 and body.min_bytes > 0:
        body.min_bytes = MUCH
    return original(node, request, body, now)


@mutant(
    "reference.node.fetch_sessions:_is_news",
    "An incremental fetch response names every partition of the session, also those without news.",
    caught_by=("FSS",),
)
def session_repeats_everything(original: Any, wanted: Any, result: Any) -> bool:
    return True


@mutant(
    "reference.node.fetch_sessions:FetchSessions._continue",
    "An incremental fetch does not take the new offset of a partition that the session knows.",
    caught_by=("FSS",),
    fuzz=True,
)
def session_forgets_positions(original: Any, sessions: Any, session: Any, request: Any, now: int) -> Any:
    before = {key: each.fetch_offset for key, each in session.partitions.items()}
    context = original(sessions, session, request, now)
    for key, offset in before.items():
        if key in session.partitions:
            session.partitions[key].fetch_offset = offset
    return context


@mutant(
    "reference.controller.topics:create_topic",
    "A topic that is deleted and created again has the id that it had before.",
    caught_by=("TOP",),
)
def topic_id_kept(original: Any, image: Any, topic: Any, *, chance: Any, **more: Any) -> Any:
    return original(image, topic, chance=random.Random(topic.name), **more)


@mutant(
    "reference.node.topics:_create",
    "CreateTopics of a topic that is there succeeds.",
    caught_by=("TOP",),
)
def existing_topic_created(original: Any, *arguments: Any) -> Any:
    result = original(*arguments)
    if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
        result.error_code = ErrorCode.NONE
    return result


@mutant(
    "reference.node.producers:ProducerIds.next",
    "Producer ids are given out again after a restart: their block is not written to the metadata log.",
    caught_by=(),
    fuzz=True,
)
def producer_id_twice(original: Any, ids: Any, now: int) -> int:
    if not ids._block:
        first = ids._image.next_producer_id
        ids._block = range(first, first + 1000)
    return original(ids, now)
