"""Quotas that a requirement sets for a while, and the clients that they throttle.

Each quota is for an unused client id, or for such a client id of any user, so that no other client is affected. A client
counts as throttled by `throttle_time_ms` and by the content of responses. Amounts are so large that the first request
throttles a client. A request that must be throttled for an earlier one is sent soon, or nothing is judged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from typing import Any

from conformance.answers import error_name, message_of, number, only
from conformance.batches import batch
from conformance.broker import Broker
from conformance.results import Lack
from conformance.wire import BrokerConnection, Failed
from linearizability.client.requests import Topic, produce_request
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from reference.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from reference.protocol.messages.produce import ProduceRequest

USER, CLIENT_ID, IP = "user", "client-id", "ip"
PRODUCE, CONSUME, REQUESTS, MUTATIONS, CONNECTIONS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
APIS = {"AlterClientQuotas": 0, "DescribeClientQuotas": 0}
EXACT, DEFAULT, ANY = 0, 1, 2
ANONYMOUS = "ANONYMOUS"
"""The user of a client that has not authenticated."""
WINDOWS, WINDOW_S = "11", "1"
"""Kafka's defaults of quota.window.num and quota.window.size.seconds. A client's usage counts for all windows but one."""

Entity = Mapping[str, str | None]
Entry = AlterClientQuotasRequest.EntryData


def entry(entity: Entity, values: Mapping[str, float | None]) -> Entry:
    """The changes for one entity; a None value removes the quota."""
    return Entry(
        entity=[
            AlterClientQuotasRequest.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()
        ],
        ops=[
            AlterClientQuotasRequest.OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in values.items()
        ],
    )


def alter(broker: Broker, *entries: Entry, validate_only: bool = False) -> list[Any]:
    """Send AlterClientQuotas, and return the results of its entries."""
    return broker.call(AlterClientQuotasRequest(entries=[*entries], validate_only=validate_only)).entries


def alter_one(
    broker: Broker, entity: Entity, values: Mapping[str, float | None], *, validate_only: bool = False
) -> int:
    """Send AlterClientQuotas for one entity, and return its error code."""
    return only(alter(broker, entry(entity, values), validate_only=validate_only), "entry").error_code


def describe(
    broker: Broker,
    components: Mapping[str, tuple[int, str | None]],
    *,
    strict: bool = False,
    to: tuple[str, int] | None = None,
) -> Any:
    data = DescribeClientQuotasRequest.ComponentData
    return broker.call(
        DescribeClientQuotasRequest(
            components=[
                data(entity_type=kind, match_type=match, match=name) for kind, (match, name) in components.items()
            ],
            strict=strict,
        ),
        to=to,
    )


def described(broker: Broker, entity: Entity, to: tuple[str, int] | None = None) -> dict[str, float]:
    """The quotas of exactly this entity, from the default node, or from the node at `to`."""
    exact = {kind: (DEFAULT if name is None else EXACT, name) for kind, name in entity.items()}
    answer = describe(broker, exact, strict=True, to=to)
    broker.expect_error(answer.error_code, ErrorCode.NONE, what="DescribeClientQuotas")
    return {value.key: value.value for each in answer.entries or () for value in each.values}


@contextmanager
def quota(broker: Broker, entity: Entity, values: Mapping[str, float]) -> Generator[None]:
    """Set quotas for the duration of the block."""
    set_quota(broker, entity, values)
    try:
        yield
    finally:
        alter(broker, entry(entity, dict.fromkeys(values)))
        _wait_until_described(broker, entity, {})


def set_quota(broker: Broker, entity: Entity, values: Mapping[str, float | None]) -> None:
    """Set or remove quotas, and wait until every node describes them."""
    for node in _nodes(broker):
        broker.connection(node)  # opened before, so that no connection quota of an address counts it
    for each in alter(broker, entry(entity, values)):
        if each.error_code != ErrorCode.NONE:
            raise Failed(f"AlterClientQuotas was refused with {error_name(each.error_code)} {message_of(each)}")
    _wait_until_described(broker, entity, {key: value for key, value in values.items() if value is not None})


@contextmanager
def acting_quota(broker: Broker, entity: Entity, values: Mapping[str, float]) -> Generator[None]:
    """Set quotas for the duration of the block. Skips where other quotas take precedence (`expect_acting`)."""
    expect_acting(broker, values)
    with quota(broker, entity, values):
        yield


def set_acting_quota(broker: Broker, entity: Entity, values: Mapping[str, float | None]) -> None:
    """Set or remove quotas. Skips where other quotas take precedence (`expect_acting`)."""
    expect_acting(broker, values)
    set_quota(broker, entity, values)


def expect_acting(broker: Broker, keys: Collection[str]) -> None:
    """Skips where the target has quotas of users, which take precedence over those of a client id."""
    for each in describe(broker, {USER: (ANY, None)}).entries or ():
        parts = {part.entity_type: part.entity_name for part in each.entity}
        shadowing = {value.key for value in each.values} & {*keys}
        if shadowing and USER in parts and parts.get(CLIENT_ID) is None and _may_be_ours(broker, parts[USER]):
            broker.skip(f"needs a target without a quota of {parts}: it has {', '.join(sorted(shadowing))}")


def _may_be_ours(broker: Broker, user: str | None) -> bool:
    """Whether the suite's clients may be this user; None is the default user."""
    if user is None or user == ANONYMOUS:
        return True
    return broker.subject.authenticates_clients and not user.startswith("tg-")


def _wait_until_described(broker: Broker, entity: Entity, wanted: Mapping[str, float]) -> None:
    for node in _nodes(broker) or [None]:
        what = f"{dict(wanted) or 'no quotas'} of {dict(entity)} are described by {node or 'the broker'}"
        broker.eventually(lambda node=node: described(broker, entity, node) == wanted, what)


def _nodes(broker: Broker) -> list[tuple[str, int]]:
    """The addresses of a cluster's nodes; empty for a single node, which gets all requests."""
    return [(node.host, node.port) for node in broker.metadata([]).brokers] if broker.subject.nodes > 1 else []


# ---- clients


def client(broker: Broker, client_id: str, topic: Topic | None = None) -> BrokerConnection:
    """A new connection with this client id: to the topic's leader, or without a topic to the controller."""
    controller = broker.controller() if broker.subject.nodes > 1 else None
    return broker.connect(controller if topic is None else broker.leader(topic), client_id=client_id)


def produce(
    broker: Broker, client_id: str, topic: Topic, size: int, *, acks: int = 1, on: BrokerConnection | None = None
) -> Any:
    """Produce one batch, by default on a new connection, and return the response; None with acks=0."""
    request = produce_request({(topic, 0): bytes(batch(b"x" * size))}, acks=acks)
    connection = on or client(broker, client_id, topic)
    version = broker.version_for(ProduceRequest)
    if acks == 0:
        connection.send(request, version, awaited=False)
        return None
    answer = connection.call(request, version)
    result = only(only(answer.responses, "topic in the answer").partition_responses, "partition in the answer")
    broker.expect_error(result.error_code, ErrorCode.NONE, what="the batch")
    return answer


KEPT_MS = 500
"""A slower response may have been delayed for the throttle time."""


def throttled_after(broker: Broker, use: Callable[[], Any], ask: Callable[[], int]) -> int:
    """The throttle time that `ask` returns after `use` has used up the client's quota. Skips where `ask` may come too late.

    It does where the broker delays the response to `use` for the throttle time, as Kafka did before KIP-219.
    """
    use()
    began = time.monotonic()
    last = broker.recorder.exchanges[-1]
    throttle_ms = ask()
    if throttle_ms == 0 and last.outcome == "answered" and last.elapsed_ms > KEPT_MS:
        broker.skip(
            f"the response came after {last.elapsed_ms:.0f} ms: by then the client may no longer exceed its quota"
        )
    if throttle_ms == 0 and time.monotonic() - began > counts_for_s(broker) / 2:
        broker.skip("this machine was too slow to ask while the quota was used up")
    return throttle_ms


def counts_for_s(broker: Broker) -> float:
    """The least time in seconds for which a client's usage counts."""
    described = broker.subject.profile.configs
    windows = number(described.get("quota.window.num") or WINDOWS, "quota.window.num")
    seconds = number(described.get("quota.window.size.seconds") or WINDOW_S, "quota.window.size.seconds")
    if windows < 2 or seconds < 1:
        what = f"quota.window.num={windows} and quota.window.size.seconds={seconds}"
        broker.skip(f"needs quotas that count what was used before; the target has {what}", Lack.CONFIGURATION)
    return (windows - 1) * seconds


def expect_throttled(broker: Broker, ask: Callable[[], int], what: str) -> None:
    """Wait until the client is throttled: a broker may enforce a quota a moment after it describes it."""
    broker.eventually(lambda: ask() > 0, f"{what} is throttled")
