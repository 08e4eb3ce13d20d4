"""QTA: quotas of entities: which quota applies, which filters match an entity, and that quotas survive a restart."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from conformance.broker import Broker
from conformance.quotas import (
    ANY,
    APIS,
    CLIENT_ID,
    CONNECTIONS,
    CONSUME,
    DEFAULT,
    EXACT,
    IP,
    MUTATIONS,
    PRODUCE,
    USER,
    Entity,
    alter,
    alter_one,
    described,
    entry,
    quota,
    set_quota,
)
from conformance.requirement import WITHOUT_ZOOKEEPER, requirement
from conformance.requirements.quotas import DESCRIBED, INVALID, LOOPBACK_BLOCK, SINCE, SOURCE, TOOL, WRONG, found
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest


def names_of(entries: list[Any]) -> list[dict[str, str | None]]:
    return [{part.entity_type: part.entity_name for part in each.entity} for each in entries]


@requirement(
    "QTA-15",
    notices=TOOL,
    source="KIP-546, KIP-612; ClientQuotasImage.describe",
    sentence="A filter is refused that names a type twice, or an address beside a user or a client id.",
    accepted=INVALID,
    since=WITHOUT_ZOOKEEPER,
    kraft=True,
    apis=APIS,
)
def impossible_filters(broker: Broker) -> None:
    data = DescribeClientQuotasRequest.ComponentData
    parts = {kind: data(entity_type=kind, match_type=ANY, match=None) for kind in (USER, CLIENT_ID, IP)}
    for kinds in ((USER, USER), (CLIENT_ID, USER, CLIENT_ID), (IP, USER), (IP, CLIENT_ID)):
        with broker.case(" and ".join(kinds)):
            request = DescribeClientQuotasRequest(components=[parts[kind] for kind in kinds])
            broker.expect_error(broker.call(request).error_code, ErrorCode.INVALID_REQUEST)


@requirement(
    "QTA-16",
    notices=WRONG,
    source=f"{SOURCE}; 3.3.2 takes rates of connections beyond it, 3.6.2 does not",
    sentence="A byte rate beyond 2^63 - 1, or a rate of connections beyond 2^31 - 1, is refused.",
    accepted=INVALID + ", and nothing is set; the largest rate of connections is taken",
    since="3.6",
    kraft=True,
    apis=APIS,
)
def too_large(broker: Broker) -> None:
    client, address = {CLIENT_ID: broker.unused_name("client")}, {IP: f"{LOOPBACK_BLOCK}3"}
    for entity, key, value in ((client, PRODUCE, 1e19), (client, CONSUME, 1e19), (address, CONNECTIONS, 2.0**31)):
        with broker.case(f"{key}={value:g}"):
            broker.expect_error(alter_one(broker, entity, {key: value}), ErrorCode.INVALID_REQUEST)
            broker.expect_equal("the quotas", described(broker, entity), {})
    with quota(broker, address, {CONNECTIONS: 2.0**31 - 1}):
        broker.expect_equal("the largest", described(broker, address), {CONNECTIONS: 2.0**31 - 1})


@requirement(
    "QTA-17",
    notices=TOOL,
    source=DESCRIBED,
    sentence="The quota of the default client id, or of the default user, is described as one without a name, and is not "
    "that of any name.",
    accepted="the value by a filter for the default; none by a filter for a name",
    exclusive=True,
    **SINCE,
)
def defaults(broker: Broker) -> None:
    for kind in (CLIENT_ID, USER):
        with broker.case(kind):
            if own := described(broker, {kind: None}):  # the end of the block would remove it
                broker.skip(f"needs a target without a quota of the default {kind}: it has {own}")
            with quota(broker, {kind: None}, {PRODUCE: 2.0**50}):  # far above the rate of any client
                broker.expect_equal("the default", described(broker, {kind: None}), {PRODUCE: 2.0**50})
                broker.expect_equal("the entity", found(broker, {kind: (DEFAULT, None)}, strict=True), [{kind: None}])
                broker.expect_equal("a name", described(broker, {kind: broker.unused_name("name")}), {})
                broker.expect_equal("the name `<default>`", described(broker, {kind: "<default>"}), {})


@requirement(
    "QTA-18",
    notices="operator: after a restart no client is throttled any more",
    source="KIP-546: quotas are records of the metadata log",
    sentence="Quotas are after a restart of the broker as before.",
    accepted="the same values; and none of an entity whose quota was removed before",
    hooks=("restart",),
    since=WITHOUT_ZOOKEEPER,
    kraft=True,
    apis=APIS,
    exclusive=True,
    deadline_s=60.0,
)
def after_a_restart(broker: Broker) -> None:
    user, client_id = broker.unused_name("user"), broker.unused_name("client")
    kept, removed = {USER: user, CLIENT_ID: None}, {CLIENT_ID: client_id}
    set_quota(broker, removed, {PRODUCE: 1000.0})
    set_quota(broker, removed, {PRODUCE: None})
    with quota(broker, kept, {PRODUCE: 1000.0, MUTATIONS: 0.25}):
        broker.restart_leader(broker.topic())
        broker.expect_equal("the quotas", described(broker, kept), {PRODUCE: 1000.0, MUTATIONS: 0.25})
        broker.expect_equal("of the other entity", described(broker, removed), {})


@requirement(
    "QTA-19",
    notices=TOOL,
    source="KIP-612; ClientQuotasImage.describe",
    sentence="A filter by an address means the address alone, one for any address all of them and no client.",
    accepted="by the address its entity; by any both addresses, and neither of the clients",
    since="2.8",
    apis=APIS,
)
def filter_of_addresses(broker: Broker) -> None:
    one, other = {IP: f"{LOOPBACK_BLOCK}4"}, {IP: f"{LOOPBACK_BLOCK}5"}
    named = {CLIENT_ID: broker.unused_name("client")}
    rate = {CONNECTIONS: 9.0}
    with quota(broker, one, rate), quota(broker, other, rate), quota(broker, named, {PRODUCE: 1000.0}):
        broker.expect_equal("entities by the address", found(broker, {IP: (EXACT, one[IP])}), [one])
        by_any = found(broker, {IP: (ANY, None)})
        broker.expect(one in by_any and other in by_any, "a filter for any address matches both")
        broker.expect_equal("entities without an address", [each for each in by_any if set(each) != {IP}], [])


@requirement(
    "QTA-27",
    notices=WRONG,
    source=SOURCE,
    sentence="The quotas of a user, of a client id and of this client id of this user are apart: a change of one leaves the "
    "others.",
    accepted="the values of the two others after a change and a removal of the third",
    **SINCE,
)
def apart(broker: Broker) -> None:
    user, client_id = broker.unused_name("user"), broker.unused_name("client")
    entities: list[Entity] = [{USER: user}, {CLIENT_ID: client_id}, {USER: user, CLIENT_ID: client_id}]
    with ExitStack() as stack:
        for number, entity in enumerate(entities, 1):
            stack.enter_context(quota(broker, entity, {PRODUCE: 1000.0 * number}))
        for value in (9000.0, None):
            set_quota(broker, entities[2], {PRODUCE: value})
            broker.expect_equal("of the user", described(broker, entities[0]), {PRODUCE: 1000.0})
            broker.expect_equal("of the client id", described(broker, entities[1]), {PRODUCE: 2000.0})


@requirement(
    "QTA-28",
    notices=WRONG,
    source=SOURCE,
    sentence="Of an entity with one quota that is refused none is set.",
    accepted=INVALID + ", and the quotas that it had before",
    since="3.3",
    kraft=True,
    apis=APIS,
)
def all_or_none(broker: Broker) -> None:
    entity = {CLIENT_ID: broker.unused_name("client")}
    with quota(broker, entity, {PRODUCE: 1000.0}):
        for name, wrong in (("set", {CONSUME: 5.0, "nonsense": 1.0}), ("removed", {PRODUCE: None, "nonsense": 1.0})):
            with broker.case(name):
                broker.expect_error(alter_one(broker, entity, wrong), ErrorCode.INVALID_REQUEST)
        other = {CLIENT_ID: broker.unused_name("client")}
        with quota(broker, other, {PRODUCE: 1.0}):  # by now the broker has handled all earlier requests
            broker.expect_equal("the quotas", described(broker, entity), {PRODUCE: 1000.0})


@requirement(
    "QTA-29",
    notices="tool: Java's Admin fails for a default entity: its result is that of no entity that was asked for",
    source="KIP-546; AlterClientQuotasResponse",
    sentence="AlterClientQuotas answers each entity by its parts as they were asked for, a default without a name.",
    accepted="one result for each entity, with its types and names",
    **SINCE,
)
def named_as_asked(broker: Broker) -> None:
    user, client_id = broker.unused_name("user"), broker.unused_name("client")
    entities: list[Entity] = [
        {CLIENT_ID: client_id},
        {USER: None},
        {USER: user, CLIENT_ID: None},
        {USER: None, CLIENT_ID: client_id},
    ]
    results = alter(broker, *(entry(each, {PRODUCE: 1000.0}) for each in entities), validate_only=True)
    broker.expect_equal("errors", [each.error_code for each in results], [ErrorCode.NONE] * len(entities))
    seen = names_of(results)
    broker.expect_equal("the number of results", len(seen), len(entities))
    for entity in entities:
        broker.expect(entity in seen, f"a result names {dict(entity)}")
