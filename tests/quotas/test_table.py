"""The quota of a client, in the documented order, and the meter that counts toward it."""

from __future__ import annotations

import itertools

import pytest

from reference.protocol.messages.client_quota_record import ClientQuotaRecord
from reference.quotas.table import CLIENT_ID, CONNECTIONS, IP, PRODUCE, USER, Meter, QuotaTable

ORDER: list[dict[str, str | None]] = [
    {USER: "u", CLIENT_ID: "c"},
    {USER: "u", CLIENT_ID: None},
    {USER: "u"},
    {USER: None, CLIENT_ID: "c"},
    {USER: None, CLIENT_ID: None},
    {USER: None},
    {CLIENT_ID: "c"},
    {CLIENT_ID: None},
]
"""Kafka's documentation, "Setting quotas": the first that is set counts."""


def record(
    entity: dict[str, str | None], value: float = 1.0, key: str = PRODUCE, remove: bool = False
) -> ClientQuotaRecord:
    data = [ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    return ClientQuotaRecord(entity=data, key=key, value=value, remove=remove)


@pytest.mark.parametrize(("stronger", "weaker"), [*itertools.combinations(range(len(ORDER)), 2)])
def test_the_more_specific_quota_counts(stronger: int, weaker: int) -> None:
    table = QuotaTable()
    table.apply(record(ORDER[weaker], 2.0))
    table.apply(record(ORDER[stronger], 1.0))
    found = table.limit_of_client(PRODUCE, "u", "c")
    assert found is not None
    entity = ORDER[stronger]
    meter = Meter(PRODUCE, "u" if USER in entity else None, "c" if CLIENT_ID in entity else None)
    assert found == (meter, 1.0)
    table.apply(record(ORDER[stronger], remove=True))
    assert (left := table.limit_of_client(PRODUCE, "u", "c")) is not None and left[1] == 2.0


def test_a_quota_of_others_is_not_a_clients() -> None:
    table = QuotaTable()
    for user, client in (("v", None), (None, "d"), ("u", "d"), ("v", "c")):
        table.apply(record({key: name for key, name in ((USER, user), (CLIENT_ID, client)) if name is not None}))
    assert table.limit_of_client(PRODUCE, "u", "c") is None
    assert table.set_names.keys() == {PRODUCE}
    table.clear()
    assert not table.set_names


@pytest.mark.parametrize(
    ("others", "meter"),
    [
        ([{USER: "v"}], Meter(PRODUCE, "u", None)),
        ([{CLIENT_ID: "d"}], Meter(PRODUCE, None, "c")),
        ([{USER: "v", CLIENT_ID: "d"}, {USER: "v", CLIENT_ID: None}], Meter(PRODUCE, "u", "c")),
        ([{USER: "v"}, {USER: "v", CLIENT_ID: "d"}], Meter(PRODUCE, None, "c")),
    ],
)
def test_usage_is_counted_before_a_client_has_a_quota(others: list[dict[str, str | None]], meter: Meter) -> None:
    """As seen of Kafka 4.3.1: while others have quotas of one type, the meter is that of a quota of this type."""
    table = QuotaTable()
    for entity in others:
        table.apply(record(entity))
    assert table.meter_without_limit(PRODUCE, "u", "c") == meter


def test_an_address_has_its_own_quota_or_that_of_all() -> None:
    table = QuotaTable()
    assert table.limit_of_address("192.0.2.1") is None
    table.apply(record({IP: None}, 5.0, CONNECTIONS))
    table.apply(record({IP: "192.0.2.1"}, 1.0, CONNECTIONS))
    assert table.limit_of_address("192.0.2.1") == 1.0 and table.limit_of_address("192.0.2.2") == 5.0
