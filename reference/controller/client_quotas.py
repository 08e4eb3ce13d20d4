"""AlterClientQuotas and DescribeClientQuotas: the records of a change, and the quotas that match a filter (KIP-546).

Source: org.apache.kafka.controller.ClientQuotaControlManager, org.apache.kafka.image.ClientQuotasImage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from reference.protocol.addresses import host_of
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from reference.protocol.messages.client_quota_record import ClientQuotaRecord
from reference.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from reference.quotas.table import (
    CLIENT_ID,
    CONNECTIONS,
    CONSUME,
    IP,
    MUTATION,
    PRODUCE,
    REQUEST,
    USER,
    Entity,
    QuotaTable,
    entity_of,
)

TYPES = (USER, CLIENT_ID, IP)
OF_CLIENTS = (PRODUCE, CONSUME, REQUEST, MUTATION)
WHOLE = {PRODUCE: ("LONG", (1 << 63) - 1), CONSUME: ("LONG", (1 << 63) - 1), CONNECTIONS: ("INT", (1 << 31) - 1)}
"""Quotas with integer values -> the type that Kafka's error names, and its largest value."""
EXACT, DEFAULT, ANY = 0, 1, 2
"""The match type of a filter's component: this name, the default entity, or any name."""
EPSILON = 1e-6


def alter_client_quotas(
    table: QuotaTable, entry: AlterClientQuotasRequest.EntryData, seen: set[Entity]
) -> list[ClientQuotaRecord]:
    """The records of one entry; `seen` has the entities of earlier entries. Errors: KafkaError INVALID_REQUEST."""
    entity = entity_of_entry(entry)
    double = next((key for key, times in Counter(op.key for op in entry.ops).items() if times > 1), None)
    if entity in seen or double is not None:
        raise _invalid(f"Ignoring duplicate entity {_text(entity)}")
    seen.add(entity)
    allowed = _allowed(entity)
    return [record for op in entry.ops if (record := _record(table, entity, allowed, op)) is not None]


def _text(entity: Entity) -> str:
    return f"ClientQuotaEntity(entries={{{', '.join(f'{kind}={name}' for kind, name in entity)}}})"


def entity_of_entry(entry: AlterClientQuotasRequest.EntryData) -> Entity:
    """The entity of an entry. If a type occurs twice, the last name counts, as in Kafka."""
    return entity_of({each.entity_type: each.entity_name for each in entry.entity}.items())


def _allowed(entity: Entity) -> tuple[str, ...]:
    """The quotas that an entity may have. Errors: KafkaError."""
    kinds = dict(entity)
    if not kinds:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in TYPES:
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    if IP not in kinds:
        return OF_CLIENTS
    if len(kinds) > 1:
        raise _invalid("Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")
    address = kinds[IP]
    try:
        if address is not None:
            host_of(address)  # Kafka also accepts host names; this broker does not resolve any
    except ValueError:
        raise _invalid(f"{address} is not a valid IP or resolvable host.") from None
    return (CONNECTIONS,)


def _record(
    table: QuotaTable, entity: Entity, allowed: tuple[str, ...], op: AlterClientQuotasRequest.OpData
) -> ClientQuotaRecord | None:
    """The record of one operation; None if it changes nothing. Errors: KafkaError."""
    known = table.of(entity)
    if op.remove:
        if op.key not in known:
            return None
        return ClientQuotaRecord(entity=_as_data(entity), key=op.key, remove=True)
    _require_value(allowed, op.key, op.value)
    if known.get(op.key) == op.value:
        return None
    return ClientQuotaRecord(entity=_as_data(entity), key=op.key, value=op.value)


def _require_value(allowed: tuple[str, ...], key: str, value: float) -> None:
    """Errors: KafkaError."""
    if key not in allowed:
        raise _invalid(f"Invalid configuration key {key}")
    if not value > 0:  # also refuses NaN, which Kafka 4.3.1 accepts
        raise _invalid(f"Quota {key} must be greater than 0")
    if key in WHOLE:
        kind, most = WHOLE[key]
        if value > most:
            raise _invalid(f"Proposed value for {key} is too large for {'an' if kind == 'INT' else 'a'} {kind}.")
        if abs(int(value + EPSILON) - value) > EPSILON:
            raise _invalid(f"{key} cannot be a fractional value.")


def _as_data(entity: Entity) -> list[ClientQuotaRecord.EntityData]:
    return [ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


# ---- describing


def matching_quotas(
    table: QuotaTable, request: DescribeClientQuotasRequest
) -> Iterator[tuple[Entity, Mapping[str, float]]]:
    """The entities that match a filter, with their quotas. Errors: KafkaError."""
    wanted = _filter(request)
    if not wanted and request.strict:
        return
    for entity, values in table.values.items():
        names = dict(entity)
        if request.strict and len(names) != len(wanted):
            continue
        if all(kind in names and (match == ANY or names[kind] == name) for kind, (match, name) in wanted.items()):
            yield entity, values


def _filter(request: DescribeClientQuotasRequest) -> dict[str, tuple[int, str | None]]:
    wanted: dict[str, tuple[int, str | None]] = {}
    for each in request.components:
        if not each.entity_type:
            raise _invalid("Invalid empty entity type.")
        if each.entity_type in wanted:
            raise _invalid(f"Entity type {each.entity_type} cannot appear more than once in the filter.")
        if each.entity_type not in TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {each.entity_type}")
        _require_match(each)
        wanted[each.entity_type] = each.match_type, each.match
    if IP in wanted and len(wanted) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component."
        )
    return wanted


def _require_match(component: DescribeClientQuotasRequest.ComponentData) -> None:
    """Errors: KafkaError."""
    if component.match_type == EXACT:
        if component.match is None:
            raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
    elif component.match_type not in (DEFAULT, ANY):
        raise _invalid(f"Unknown match type {component.match_type}")
    elif component.match is not None:
        name = "MATCH_TYPE_DEFAULT" if component.match_type == DEFAULT else "MATCH_TYPE_SPECIFIED"
        raise _invalid(f"Request specified {name}, but also specified a match string.")
