"""QTA: setting and describing quotas."""

from __future__ import annotations

from typing import Any

from conformance.answers import only
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
    REQUESTS,
    USER,
    Entity,
    alter,
    alter_one,
    describe,
    described,
    entry,
    quota,
    set_quota,
)
from conformance.requirement import WITHOUT_ZOOKEEPER, requirement
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.alter_client_quotas import AlterClientQuotasRequest

TOOL = "tool: kafka-configs and user interfaces show quotas that do not apply, or cannot set them"
WRONG = "tool: kafka-configs says that a quota is set, and no client is ever throttled"
SOURCE = "KIP-546; ClientQuotaControlManager.alterClientQuotas"
DESCRIBED = "KIP-546; ClientQuotasImage.describe"
SINCE: dict[str, Any] = {"since": "2.6", "apis": APIS}
INVALID = "INVALID_REQUEST(42)"
LOOPBACK_BLOCK = "198.51.100."
"""Addresses for documentation (RFC 5737), which no client has."""


@requirement(
    "QTA-01",
    notices=TOOL,
    source=SOURCE,
    sentence="Quotas are set for a client id, a user, and a client id of a user or of any user, and described as they were set.",
    accepted="error NONE(0), then these very values; controller_mutation_rate since 2.7 (KIP-599)",
    **SINCE,
)
def set_and_described(broker: Broker) -> None:
    user, client_id = broker.unused_name("user"), broker.unused_name("client")
    values = {PRODUCE: 1000.0, CONSUME: 2000.0, REQUESTS: 0.5}
    if broker.is_kafka("2.7"):
        values[MUTATIONS] = 0.25
    entities: tuple[Entity, ...] = (
        {CLIENT_ID: client_id},
        {USER: user},
        {USER: user, CLIENT_ID: client_id},
        {USER: user, CLIENT_ID: None},
        {USER: None, CLIENT_ID: client_id},
    )
    for entity in entities:
        with broker.case(str(dict(entity))), quota(broker, entity, values):
            broker.expect_equal("the quotas", described(broker, entity), values)


@requirement(
    "QTA-02",
    notices=TOOL,
    source="KIP-612; ClientQuotaControlManager.alterClientQuotas",
    sentence="A rate of connections is set for an address, and described as it was set.",
    accepted="error NONE(0), then this very value",
    since="2.8",
    apis=APIS,
)
def set_for_an_address(broker: Broker) -> None:
    entity = {IP: f"{LOOPBACK_BLOCK}1"}
    with quota(broker, entity, {CONNECTIONS: 7.0}):
        broker.expect_equal("the quotas", described(broker, entity), {CONNECTIONS: 7.0})


@requirement(
    "QTA-03",
    notices=TOOL,
    source=SOURCE,
    sentence="A quota that is set again has its last value; one that is removed is not described; removing what is not set is "
    "no error.",
    accepted="error NONE(0) each time",
    **SINCE,
)
def changed_and_removed(broker: Broker) -> None:
    entity = {CLIENT_ID: broker.unused_name("client")}
    set_quota(broker, entity, {PRODUCE: 1000.0, CONSUME: 3.0})
    broker.expect_error(alter_one(broker, entity, {PRODUCE: 2000.0}), ErrorCode.NONE, what="another value")
    broker.eventually(
        lambda: described(broker, entity) == {PRODUCE: 2000.0, CONSUME: 3.0}, "the last value is described"
    )
    broker.expect_error(alter_one(broker, entity, {PRODUCE: None}), ErrorCode.NONE, what="a removal")
    broker.eventually(lambda: described(broker, entity) == {CONSUME: 3.0}, "one is removed")
    broker.expect_error(alter_one(broker, entity, {PRODUCE: None, CONSUME: None}), ErrorCode.NONE, what="both")
    broker.eventually(lambda: described(broker, entity) == {}, "none is left")


@requirement(
    "QTA-04",
    notices=TOOL,
    source="KIP-546; ControllerApis.handleAlterClientQuotas",
    sentence="With validate_only nothing is set.",
    accepted="error NONE(0), and no quota; " + INVALID + " for a wrong one",
    **SINCE,
)
def only_validated(broker: Broker) -> None:
    entity, other = {CLIENT_ID: broker.unused_name("client")}, {CLIENT_ID: broker.unused_name("client")}
    broker.expect_error(alter_one(broker, entity, {PRODUCE: 1000.0}, validate_only=True), ErrorCode.NONE)
    broker.expect_error(alter_one(broker, entity, {"nonsense": 1.0}, validate_only=True), ErrorCode.INVALID_REQUEST)
    with quota(broker, other, {PRODUCE: 1.0}):  # by now the broker has handled all earlier requests
        broker.expect_equal("the quotas", described(broker, entity), {})


@requirement(
    "QTA-05",
    notices=WRONG,
    source=SOURCE,
    sentence="A quota of an unknown name, or one that the entity cannot have, is refused.",
    accepted=INVALID + ", and nothing is set",
    **SINCE,
)
def unknown_quotas(broker: Broker) -> None:
    client_id = broker.unused_name("client")
    for entity, key in (
        ({CLIENT_ID: client_id}, "nonsense"),
        ({CLIENT_ID: client_id}, ""),
        ({CLIENT_ID: client_id}, CONNECTIONS),
        ({USER: client_id}, CONNECTIONS),
    ):
        with broker.case(f"{key or 'no name'} of {dict(entity)}"):
            broker.expect_error(alter_one(broker, entity, {key: 5.0}), ErrorCode.INVALID_REQUEST)
            broker.expect_equal("the quotas", described(broker, entity), {})


@requirement(
    "QTA-06",
    notices=WRONG,
    source=SOURCE,
    sentence="Byte rates and rates of connections are whole numbers: a fraction is refused.",
    accepted=INVALID + " for a byte rate of 0.5, and for 0.5 connections a second of an address (since 2.8)",
    **SINCE,
)
def fractions(broker: Broker) -> None:
    client, address = {CLIENT_ID: broker.unused_name("client")}, {IP: f"{LOOPBACK_BLOCK}6"}
    cases = [(client, PRODUCE), (client, CONSUME), *[(address, CONNECTIONS)] * broker.is_kafka("2.8")]
    for entity, key in cases:
        with broker.case(key):
            broker.expect_error(alter_one(broker, entity, {key: 0.5}), ErrorCode.INVALID_REQUEST)
            broker.expect_equal("the quotas", described(broker, entity), {})


@requirement(
    "QTA-07",
    notices=WRONG,
    source=SOURCE,
    sentence="An entity is refused that has no part, an empty name, or a part of an unknown type.",
    accepted=INVALID,
    **SINCE,
)
def wrong_entities(broker: Broker) -> None:
    name = broker.unused_name("client")
    entities: tuple[Entity, ...] = ({}, {USER: ""}, {CLIENT_ID: ""}, {"host": name}, {USER: name, "host": name})
    for entity in entities:
        with broker.case(str(dict(entity))):
            broker.expect_error(alter_one(broker, entity, {PRODUCE: 5.0}), ErrorCode.INVALID_REQUEST)


@requirement(
    "QTA-08",
    notices=WRONG,
    source="KIP-612; ClientQuotaControlManager.configKeysForEntityType",
    sentence="A quota for an address is refused where the entity also names a user or a client id, where it is no address, and "
    "where it is a byte rate.",
    accepted=INVALID,
    since="2.8",
    apis=APIS,
)
def wrong_addresses(broker: Broker) -> None:
    address, name = f"{LOOPBACK_BLOCK}2", broker.unused_name("client")
    cases: tuple[tuple[Entity, str], ...] = (
        ({IP: address, USER: name}, CONNECTIONS),
        ({IP: address, CLIENT_ID: name}, CONNECTIONS),
        ({IP: "no address"}, CONNECTIONS),
        ({IP: address}, PRODUCE),
    )
    for entity, key in cases:
        with broker.case(f"{key} of {dict(entity)}"):
            broker.expect_error(alter_one(broker, entity, {key: 5.0}), ErrorCode.INVALID_REQUEST)
    broker.expect_equal("the quotas", described(broker, {IP: address}), {})


@requirement(
    "QTA-09",
    notices=TOOL,
    source=SOURCE,
    sentence="Each entity of a request gets a result of its own: one that is refused does not hinder the others.",
    accepted=INVALID + " for the one, error NONE(0) for the other, whose quota is described",
    **SINCE,
)
def each_by_itself(broker: Broker) -> None:
    good, bad = {CLIENT_ID: broker.unused_name("client")}, {CLIENT_ID: broker.unused_name("client")}
    results = alter(broker, entry(bad, {"nonsense": 1.0}), entry(good, {PRODUCE: 1000.0}))
    codes = {only(each.entity, "part").entity_name: each.error_code for each in results}
    wanted = {bad[CLIENT_ID]: ErrorCode.INVALID_REQUEST, good[CLIENT_ID]: ErrorCode.NONE}
    broker.expect_equal("the errors", codes, wanted)
    broker.eventually(lambda: described(broker, good) == {PRODUCE: 1000.0}, "the other is described")
    broker.expect_error(alter_one(broker, good, {PRODUCE: None}), ErrorCode.NONE, what="its removal")


@requirement(
    "QTA-10",
    notices=TOOL,
    source=SOURCE,
    sentence="A request that names an entity twice, or one quota of an entity twice, is refused for this entity.",
    accepted=INVALID,
    since=WITHOUT_ZOOKEEPER,
    kraft=True,  # brokers with ZooKeeper accept more
    apis=APIS,
)
def twice(broker: Broker) -> None:
    entity = {CLIENT_ID: broker.unused_name("client")}
    double = entry(entity, {PRODUCE: 5.0})
    double.ops = [*double.ops, AlterClientQuotasRequest.OpData(key=PRODUCE, value=6.0)]
    with broker.case("a quota"):
        codes = {each.error_code for each in alter(broker, double)}
        broker.expect_equal("the errors", codes, {ErrorCode.INVALID_REQUEST})
    with broker.case("an entity"):
        results = alter(broker, entry(entity, {PRODUCE: 5.0}), entry(entity, {PRODUCE: 6.0}))
        broker.expect(ErrorCode.INVALID_REQUEST in {each.error_code for each in results}, "one of them is refused")
    alter(broker, entry(entity, {PRODUCE: None}))


def found(
    broker: Broker, components: dict[str, tuple[int, str | None]], *, strict: bool = False
) -> list[dict[str, Any]]:
    """The entities that a filter matches."""
    answer = describe(broker, components, strict=strict)
    broker.expect_error(answer.error_code, ErrorCode.NONE, what="DescribeClientQuotas")
    broker.expect(answer.entries is not None, "the entries are a list, as Java's Admin reads them, and not null")
    return [{part.entity_type: part.entity_name for part in each.entity} for each in answer.entries]


@requirement(
    "QTA-11",
    notices=TOOL,
    source=DESCRIBED,
    sentence="A filter by a name means the entities with this name, whatever else they have; a strict one those with "
    "nothing else.",
    accepted="both entities of the client id; the one without a user",
    **SINCE,
)
def filters(broker: Broker) -> None:
    user, client_id = broker.unused_name("user"), broker.unused_name("client")
    alone, together = {CLIENT_ID: client_id}, {USER: user, CLIENT_ID: client_id}
    with quota(broker, alone, {PRODUCE: 1000.0}), quota(broker, together, {PRODUCE: 1000.0}):
        by_name: dict[str, tuple[int, str | None]] = {CLIENT_ID: (EXACT, client_id)}
        broker.expect_equal("entities by the client id", sorted(found(broker, by_name), key=len), [alone, together])
        broker.expect_equal("entities by the client id, strict", found(broker, by_name, strict=True), [alone])
        with_user: dict[str, tuple[int, str | None]] = {**by_name, USER: (ANY, None)}
        broker.expect_equal("entities of any user", found(broker, with_user), [together])
        broker.expect_equal("entities of any user, strict", found(broker, with_user, strict=True), [together])
        broker.expect_equal("entities of the default user", found(broker, {**by_name, USER: (DEFAULT, None)}), [])
        broker.expect_equal("entities by an empty filter, strict", found(broker, {}, strict=True), [])
        everything = found(broker, {})
        broker.expect(alone in everything and together in everything, "a filter without parts matches all")


@requirement(
    "QTA-12",
    notices=TOOL,
    source=DESCRIBED,
    sentence="A filter for the default of a type means it, and no entity with a name.",
    accepted="the quota of the client ids of any user, and not that of a user",
    **SINCE,
)
def filter_of_defaults(broker: Broker) -> None:
    client_id = broker.unused_name("client")
    default, named = {USER: None, CLIENT_ID: client_id}, {USER: broker.unused_name("user"), CLIENT_ID: client_id}
    with quota(broker, default, {PRODUCE: 1000.0}), quota(broker, named, {PRODUCE: 1000.0}):
        wanted: dict[str, tuple[int, str | None]] = {CLIENT_ID: (EXACT, client_id), USER: (DEFAULT, None)}
        broker.expect_equal("the default", found(broker, wanted), [default])
        both = found(broker, {**wanted, USER: (ANY, None)})
        broker.expect(default in both and named in both, "a filter for any user matches both")


@requirement(
    "QTA-13",
    notices=TOOL,
    source=DESCRIBED,
    sentence="A filter is refused that names an unknown type, no type, no name where one is to match, a name where none is, "
    "or an unknown kind of match.",
    accepted="UNSUPPORTED_VERSION(35) for the unknown type, INVALID_REQUEST(42) for the others",
    since=WITHOUT_ZOOKEEPER,
    kraft=True,  # brokers with ZooKeeper accept more
    apis=APIS,
)
def wrong_filters(broker: Broker) -> None:
    wrong: tuple[tuple[str, tuple[str, int, str | None], ErrorCode], ...] = (
        ("unknown type", ("host", ANY, None), ErrorCode.UNSUPPORTED_VERSION),
        ("no type", ("", ANY, None), ErrorCode.INVALID_REQUEST),
        ("no name", (USER, EXACT, None), ErrorCode.INVALID_REQUEST),
        ("a name for the default", (USER, DEFAULT, "x"), ErrorCode.INVALID_REQUEST),
        ("a name for any", (USER, ANY, "x"), ErrorCode.INVALID_REQUEST),
        ("unknown match", (USER, 3, None), ErrorCode.INVALID_REQUEST),
    )
    for name, (kind, match, text), code in wrong:
        with broker.case(name):
            broker.expect_error(describe(broker, {kind: (match, text)}).error_code, code)


@requirement(
    "QTA-14",
    notices=WRONG,
    source="KIP-546; ClientQuotaControlManager.validateQuotaKeyValue; 3.3.2 takes 0, 3.6.2 does not",
    sentence="A quota must be greater than 0.",
    accepted=INVALID + " for 0 and for what is below",
    since="3.6",
    kraft=True,
    apis=APIS,
)
def not_positive(broker: Broker) -> None:
    entity = {CLIENT_ID: broker.unused_name("client")}
    for key in (PRODUCE, CONSUME, REQUESTS, MUTATIONS):
        for value in (0.0, -1.0):
            with broker.case(f"{key}={value:g}"):
                broker.expect_error(alter_one(broker, entity, {key: value}), ErrorCode.INVALID_REQUEST)
    broker.expect_equal("the quotas", described(broker, entity), {})
