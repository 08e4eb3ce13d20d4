"""Quotas that a requirement sets for a while, and clients that they are for.

Each is for a client id, or for a client id of any user, that nothing else has: other clients are left alone. Whether a client is
throttled is judged by `throttle_time_ms` and by what answers hold. Amounts are so large that a client is throttled by its first
request; where a later one is to be throttled for what an earlier has used, it is asked soon, or nothing is judged.
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
"""Kafka's defaults of quota.window.num and quota.window.size.seconds: what was used counts for all windows but one."""

Entity = Mapping[str, str | None]
Entry = AlterClientQuotasRequest.EntryData


def entry(entity: Entity, values: Mapping[str, float | None]) -> Entry:
    """What is to change for one entity; a value that is None is removed."""
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
    """The results of AlterClientQuotas."""
    return broker.call(AlterClientQuotasRequest(entries=[*entries], validate_only=validate_only)).entries


def alter_one(
    broker: Broker, entity: Entity, values: Mapping[str, float | None], *, validate_only: bool = False
) -> int:
    """The error of the only entry."""
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
    """The quotas of an entity, and of no other; as the controller knows them, or the node of that address."""
    exact = {kind: (DEFAULT if name is None else EXACT, name) for kind, name in entity.items()}
    answer = describe(broker, exact, strict=True, to=to)
    broker.expect_error(answer.error_code, ErrorCode.NONE, what="DescribeClientQuotas")
    return {value.key: value.value for each in answer.entries or () for value in each.values}


@contextmanager
def quota(broker: Broker, entity: Entity, values: Mapping[str, float]) -> Generator[None]:
    """Quotas that are set within the block."""
    set_quota(broker, entity, values)
    try:
        yield
    finally:
        alter(broker, entry(entity, dict.fromkeys(values)))
        _wait_until_described(broker, entity, {})


def set_quota(broker: Broker, entity: Entity, values: Mapping[str, float | None]) -> None:
    """Quotas that are set, or removed, and described so by every node: each learns of them in its own time."""
    for node in _nodes(broker):
        broker.connection(node)  # made before, so that it counts for no quota of an address
    for each in alter(broker, entry(entity, values)):
        if each.error_code != ErrorCode.NONE:
            raise Failed(f"AlterClientQuotas was refused with {error_name(each.error_code)} {message_of(each)}")
    _wait_until_described(broker, entity, {key: value for key, value in values.items() if value is not None})


@contextmanager
def acting_quota(broker: Broker, entity: Entity, values: Mapping[str, float]) -> Generator[None]:
    """Quotas that are set within the block, and by which the clients of the entity are throttled."""
    expect_acting(broker, values)
    with quota(broker, entity, values):
        yield


def set_acting_quota(broker: Broker, entity: Entity, values: Mapping[str, float | None]) -> None:
    """Quotas that are set, or removed, and by which the clients of the entity are throttled."""
    expect_acting(broker, values)
    set_quota(broker, entity, values)


def expect_acting(broker: Broker, keys: Collection[str]) -> None:
    """Skips where the target has quotas of users that go before those of a client id."""
    for each in describe(broker, {USER: (ANY, None)}).entries or ():
        parts = {part.entity_type: part.entity_name for part in each.entity}
        shadowing = {value.key for value in each.values} & {*keys}
        if shadowing and USER in parts and parts.get(CLIENT_ID) is None and _may_be_ours(broker, parts[USER]):
            broker.skip(f"needs a target without a quota of {parts}: it has {', '.join(sorted(shadowing))}")


def _may_be_ours(broker: Broker, user: str | None) -> bool:
    """Whether the suite's clients may be this user; none stands for the default."""
    if user is None or user == ANONYMOUS:
        return True
    return broker.subject.authenticates_clients and not user.startswith("tg-")


def _wait_until_described(broker: Broker, entity: Entity, wanted: Mapping[str, float]) -> None:
    for node in _nodes(broker) or [None]:
        what = f"{dict(wanted) or 'no quotas'} of {dict(entity)} are described by {node or 'the broker'}"
        broker.eventually(lambda node=node: described(broker, entity, node) == wanted, what)


def _nodes(broker: Broker) -> list[tuple[str, int]]:
    """The addresses of a cluster's nodes; none of a single node, which all requests go to."""
    return [(node.host, node.port) for node in broker.metadata([]).brokers] if broker.subject.nodes > 1 else []


# ---- clients


def client(broker: Broker, client_id: str, topic: Topic | None = None) -> BrokerConnection:
    """A new connection of a client of this id, to the topic's leader, or to the controller where none is given."""
    controller = broker.controller() if broker.subject.nodes > 1 else None
    return broker.connect(controller if topic is None else broker.leader(topic), client_id=client_id)


def produce(
    broker: Broker, client_id: str, topic: Topic, size: int, *, acks: int = 1, on: BrokerConnection | None = None
) -> Any:
    """The answer to one batch, on a connection of its own unless one is given; None where none is asked for."""
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
"""What is answered later may have been kept for the throttle time."""


def throttled_after(broker: Broker, use: Callable[[], Any], ask: Callable[[], int]) -> int:
    """The throttle time that `ask` gets after a client has used up its quota; nothing is judged where it asks too late.

    It is too late where the broker keeps the answer to `use` until the throttle time is over, as Kafka did before KIP-219.
    """
    use()
    began = time.monotonic()
    last = broker.recorder.exchanges[-1]
    throttle_ms = ask()
    if throttle_ms == 0 and last.outcome == "answered" and last.elapsed_ms > KEPT_MS:
        broker.skip(
            f"the client was answered after {last.elapsed_ms:.0f} ms: by then it may have used up nothing any more"
        )
    if throttle_ms == 0 and time.monotonic() - began > counts_for_s(broker) / 2:
        broker.skip("this machine was too slow to ask while the quota was used up")
    return throttle_ms


def counts_for_s(broker: Broker) -> float:
    """How long what a client has used counts at the least."""
    described = broker.subject.profile.configs
    windows = number(described.get("quota.window.num") or WINDOWS, "quota.window.num")
    seconds = number(described.get("quota.window.size.seconds") or WINDOW_S, "quota.window.size.seconds")
    if windows < 2 or seconds < 1:
        what = f"quota.window.num={windows} and quota.window.size.seconds={seconds}"
        broker.skip(f"needs quotas that count what was used before; the target has {what}", Lack.CONFIGURATION)
    return (windows - 1) * seconds


def expect_throttled(broker: Broker, ask: Callable[[], int], what: str) -> None:
    """The client comes to be throttled: a broker may act on a quota a moment after it describes it."""
    broker.eventually(lambda: ask() > 0, f"{what} is throttled")
