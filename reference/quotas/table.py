"""The quotas that are set, by entity.

Source: KIP-13, KIP-55, KIP-546; org.apache.kafka.server.quota.ClientQuotaManager (DefaultQuotaCallback).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from reference.protocol.messages.client_quota_record import ClientQuotaRecord

USER, CLIENT_ID, IP = "user", "client-id", "ip"

PRODUCE, CONSUME, REQUEST, MUTATION = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)
CONNECTIONS = "connection_creation_rate"

Entity = tuple[tuple[str, str | None], ...]
"""Types and names, sorted by type; the name None is the default entity."""


def entity_of(parts: Iterable[tuple[str, str | None]]) -> Entity:
    return tuple(sorted(parts, key=lambda part: part[0]))


class Meter(NamedTuple):
    """The clients that share one measurement: by the quota's entity all of a user, all of a client id, or all with both."""

    quota: str
    user: str | None
    client_id: str | None


@dataclass(slots=True)
class QuotaTable:
    """Entity -> quota's name -> its value."""

    values: dict[Entity, dict[str, float]] = field(default_factory=dict[Entity, dict[str, float]])
    changes: int = field(default=0, compare=False)
    """Grows with each change."""
    set_names: Mapping[str, Set[tuple[str, ...]]] = field(default_factory=dict[str, Set[tuple[str, ...]]])
    """The names of the quotas that any entity has, with the types of these entities."""

    def apply(self, record: ClientQuotaRecord) -> None:
        """Replay a record."""
        entity = entity_of((each.entity_type, each.entity_name) for each in record.entity)
        values = self.values.setdefault(entity, {})
        if record.remove:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
        if not values:
            del self.values[entity]
        self._changed()

    def clear(self) -> None:
        self.values.clear()
        self._changed()

    def _changed(self) -> None:
        self.changes += 1
        found: dict[str, set[tuple[str, ...]]] = {}
        for entity, values in self.values.items():
            for name in values:
                found.setdefault(name, set()).add(tuple(type for type, _ in entity))
        self.set_names = found

    def of(self, entity: Entity) -> Mapping[str, float]:
        return self.values.get(entity, {})

    def limit_of_client(self, quota: str, user: str, client_id: str) -> tuple[Meter, float] | None:
        """The most specific quota of a client, and its meter; None without a quota."""
        for who in (user, None):
            for which in (client_id, None):
                found = self.of(((CLIENT_ID, which), (USER, who))).get(quota)
                if found is not None:
                    return Meter(quota, user, client_id), found
            if (found := self.of(((USER, who),)).get(quota)) is not None:
                return Meter(quota, user, None), found
        for which in (client_id, None):
            if (found := self.of(((CLIENT_ID, which),)).get(quota)) is not None:
                return Meter(quota, None, client_id), found
        return None

    def meter_without_limit(self, quota: str, user: str, client_id: str) -> Meter:
        """The meter of a client without a quota while others have one. By entities of one type its usage counts as soon as it
        gets such a quota, too."""
        match [*self.set_names[quota]]:
            case [("user",)]:
                return Meter(quota, user, None)
            case [("client-id", "user")]:
                return Meter(quota, user, client_id)
            case _:
                return Meter(quota, None, client_id)

    def limit_of_address(self, address: str) -> float | None:
        """The connection creation rate of an address, per second (KIP-612); None without a quota."""
        own = self.of(((IP, address),)).get(CONNECTIONS)
        return own if own is not None else self.of(((IP, None),)).get(CONNECTIONS)
