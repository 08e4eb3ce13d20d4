"""Kafka's own bugs are named where a release has them, and nowhere else."""

import re

import pytest

from conformance.known_bugs import KNOWN_BUGS, KnownBug, known_bugs
from conformance.requirement import catalogue, owed_by

BUG = KnownBug(("PRD-05",), "KAFKA-1", "an example", since="0.11.0", mended=("1.0.2", "1.1.1", "2.0"))


@pytest.mark.parametrize(
    ("version", "affected"),
    [
        ("0.10.2.2", False),
        ("0.11.0.0", True),
        ("0.11.0.3", True),
        ("1.0.1", True),
        ("1.0.2", False),
        ("1.1.0", True),
        ("1.1.1", False),
        ("2.0.0", False),
        ("4.3.1", False),
    ],
)
def test_a_bug_has_its_releases(version, affected):
    assert BUG.affects(version) is affected


def test_every_bug_has_a_reference_and_fails_what_is_owed():
    for bug in KNOWN_BUGS:
        assert re.fullmatch(r"KAFKA-\d+|.*README.md.*", bug.reference), bug
        for id in bug.ids:
            assert owed_by(catalogue()[id].requirement, bug.since), f"{id} is not owed by {bug.since}"


def test_only_apache_kafka_has_kafkas_bugs():
    assert known_bugs("kafka:0.11.0.0:3")["TOP-20"].reference == "KAFKA-5163"
    assert known_bugs("kafka:4.3.1").get("TOP-20") is None
    assert known_bugs("reference:1") == known_bugs("addr:127.0.0.1:9092") == {}
