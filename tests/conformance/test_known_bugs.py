"""Kafka's own bugs are named where a release has them, and nowhere else."""

import re

import pytest

from conformance import runner
from conformance.known_bugs import KNOWN_BUGS, KnownBug, known_bugs
from conformance.requirement import catalogue, owed_by
from conformance.results import Judgement, Run, Verdict

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


def test_a_bug_of_kraft_excuses_nothing_beside_a_zookeeper():
    assert known_bugs("kafka:3.5.2:3")["ELE-03"].reference == "KAFKA-12670"
    assert known_bugs("kafka-zk:3.5.2:3").get("ELE-03") is None
    assert known_bugs("kafka-zk:3.5.2:3")["TXN-02"].reference == "KAFKA-14561"


def test_a_failure_is_the_bug_only_where_it_shows_it(monkeypatch, tmp_path):
    bug = KnownBug(("PRD-05",), "KAFKA-1", "an example", since="0.11.0", shows="NONE(0) instead of")
    monkeypatch.setattr(runner, "known_bugs", lambda spec: {"PRD-05": bug})
    entry = catalogue()["PRD-05"]
    report = Run.model_construct(judgements=[], unexpected_passes=[])
    collector = runner._Collector(runner.Plan(spec="kafka:1.0.2", entries=[entry], folder=tmp_path), report, None)
    for reason, expected in (("v3: NONE(0) instead of 47", True), ("not within 20 s", False)):
        judgement = Judgement(requirement=entry.requirement, verdict=Verdict.FAIL, reason=reason)
        collector.add(judgement)
        assert judgement.expected is expected
        assert judgement.reason.startswith("Kafka's own bug") is expected
    collector.add(Judgement(requirement=entry.requirement, verdict=Verdict.PASS))
    assert report.unexpected_passes == ["PRD-05"]
