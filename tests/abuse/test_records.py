"""A short campaign of mutated TLS records, a small crowd, and the stored counts of the large ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.abuse import crowd, records
from tests.targets.secured_kafka import SecuredReference

FLIGHTS = 1000
CONNECTIONS = 300


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory):
    folder: Path = tmp_path_factory.mktemp("broker")
    with SecuredReference(folder, folder) as opened:
        yield opened


def test_no_damaged_record_is_answered(secured: SecuredReference) -> None:
    results = records.Results()
    records.run(secured, FLIGHTS, results)
    assert results.failures == []
    assert {"served", "refused in the handshake", "refused with a request"} <= results.outcomes.keys()


def test_others_are_served_beside_a_crowd(secured: SecuredReference) -> None:
    with crowd.crowd(secured.ports, CONNECTIONS):
        found = crowd.served(secured, 0.5)
    assert found.requests > 0 and found.logins > 0
    assert "Traceback" not in secured.members[0].process.log.read_text()


def test_the_stored_crowd_kept_no_client_out() -> None:
    stored = json.loads(crowd.STORE.read_text())
    assert stored["connections"] >= 5000
    rounds = [each for spec in ("reference:1", "kafka:4.3.1") for each in stored[spec]["crowd"]]
    assert len(rounds) == 2 * crowd.ROUNDS and all(each["requests"] and each["logins"] for each in rounds)


def test_the_stored_campaign_found_nothing() -> None:
    stored = records.load()
    assert stored.flights >= 40_000 and stored.failures == []
