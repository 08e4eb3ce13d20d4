"""HIS: each requirement fails on a history that breaks it, and passes on none that shows too little."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.broker import Broker
from conformance.hunting import Hunt
from conformance.judging import judge
from conformance.requirement import Entry, catalogue
from conformance.results import Judgement, Verdict
from conformance.subject import Subject
from conformance.unmarked import Unmarked
from linearizability.history.notation import history
from linearizability.pipeline.engine import judge_history
from linearizability.rules import RULES
from linearizability.workload.cluster import TopicNotMade
from linearizability.workload.drain import Unread
from reference.protocol.messages.create_topics import CreateTopicsRequest

BREAKS = {
    "HIS-01": ("lost-write",),
    "HIS-02": ("unseen", "not-delivered"),
    "HIS-03": ("inconsistent-offsets", "offset-reuse", "replica-divergence", "phantom-read", "nonlinearizable"),
    "HIS-04": ("duplicate",),
    "HIS-05": ("nonmonotonic-poll", "int-nonmonotonic-poll", "poll-skip", "int-poll-skip"),
    "HIS-06": ("nonmonotonic-send", "int-nonmonotonic-send"),
    "HIS-07": ("realtime-order", "future-read"),
    "HIS-08": ("G1a", "G1b"),
    "HIS-09": ("torn-transaction", "zombie-producer"),
    "HIS-10": ("committed-offset-regression", "committed-offset-loss", "commit-past-undelivered"),
    "HIS-11": ("two-owners",),
    "HIS-12": ("no-progress",),
}
CLEAN = """
    0 send t-0:1@0
    1 poll t-0:1@0
"""
PLENTY = {"acknowledged": 9, "read": 9, "committed": 9, "aborted": 9, "faults": {"kill": 1}}
NOTHING = {"acknowledged": 0, "read": 0, "committed": 0, "aborted": 0, "faults": {}}


def judged(entry: Entry, notation: str, unmarked: Sequence[Unmarked] = (), **result: Any) -> Judgement:
    """The requirement's judgement on a hunt with this history. The first operation of each anomaly is of transaction "open"."""
    judgement = judge_history(history(notation, {}, "t"))
    reported = (
        PLENTY | {"verdict": judgement.verdict, "reasons": [], "unread": [], "stuck": [], "folder": "folder"} | result
    )
    writers = {anomaly.operations[0]: "open" for each in judgement.findings for anomaly in each.anomalies[:1]}
    hunt = Hunt(SimpleNamespace(**reported), judgement, writers, unmarked)
    return judge(entry, subject(hunt))


def subject(hunt: Hunt | None = None) -> Subject:
    """A target that makes topics."""
    return Subject([("127.0.0.1", 1)], "4.3.1", {CreateTopicsRequest.KEY: (2, 7)}, hunt=hunt)


ENTRIES = [entry for entry in catalogue().values() if entry.requirement.area == "HIS"]
BROKEN = [(id, rule) for id, rules in BREAKS.items() for rule in rules]


@pytest.mark.parametrize(("id", "rule"), BROKEN, ids=[f"{id} {rule}" for id, rule in BROKEN])
def test_fails_where_its_rule_is_broken(id: str, rule: str) -> None:
    judgement = judged(catalogue()[id], RULES[rule].example)
    assert judgement.verdict is Verdict.FAIL, judgement.reason
    assert judgement.reason.startswith(rule) or f"; {rule}" in judgement.reason


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.requirement.id)
def test_is_skipped_where_the_hunt_shows_nothing(entry: Entry) -> None:
    judgement = judged(entry, CLEAN, **NOTHING)
    assert judgement.verdict is Verdict.NOT_JUDGED
    assert "shows too little" in judgement.reason


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.requirement.id)
def test_is_no_pass_where_the_history_is_unknown(entry: Entry) -> None:
    judgement = judged(entry, CLEAN, verdict="unknown", reasons=["t-0: read up to 3 of 4"])
    assert judgement.verdict in (Verdict.NOT_JUDGED, Verdict.FAIL), judgement.reason


def test_a_topic_that_cannot_be_made_is_waited_for_once_and_is_no_fault_of_the_suite(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries: list[Broker] = []

    def cannot_be_made(broker: Broker) -> Hunt:
        tries.append(broker)
        raise TopicNotMade("the topic could not be made within 60 s: CreateTopicsResponse v1: ends too early")

    monkeypatch.setattr("conformance.hunting._carry_out", cannot_be_made)
    target = subject()
    judgements = [judge(catalogue()[id], target) for id in ("HIS-01", "HIS-02")]
    assert {judgement.verdict for judgement in judgements} == {Verdict.NOT_JUDGED}, judgements
    assert len(tries) == 1


OPEN = Unmarked(partition=0, transaction="open", first_offset=0, producer_id=7, hides=False)
OTHER = Unmarked(partition=0, transaction="other", first_offset=0, producer_id=7, hides=False)
HIDES = Unmarked(partition=0, transaction="other", first_offset=1, producer_id=7, hides=True)


@pytest.mark.parametrize(
    ("id", "rule"), [("HIS-01", "lost-write"), ("HIS-08", "G1a"), ("HIS-08", "G1b"), ("HIS-09", "torn-transaction")]
)
def test_a_transaction_without_a_marker_is_what_kafka_does(id: str, rule: str) -> None:
    assert judged(catalogue()[id], RULES[rule].example, [OPEN]).verdict is Verdict.TOLERATED
    assert judged(catalogue()[id], RULES[rule].example, [OTHER]).verdict is Verdict.FAIL


@pytest.mark.parametrize("rule", ["unseen", "not-delivered"])
def test_what_lies_behind_such_a_transaction_is_hidden(rule: str) -> None:
    assert judged(catalogue()["HIS-02"], RULES[rule].example, [HIDES]).verdict is Verdict.TOLERATED
    for other in (replace(HIDES, first_offset=2), replace(HIDES, partition=1), OTHER):
        assert judged(catalogue()["HIS-02"], RULES[rule].example, [other]).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("id", "rule"), [(id, rule) for id, rule in BROKEN if not catalogue()[id].requirement.tolerated]
)
def test_nothing_else_is_excused_by_it(id: str, rule: str) -> None:
    assert judged(catalogue()[id], RULES[rule].example, [OPEN, HIDES]).verdict is Verdict.FAIL


STOPPED = Unread(0, "t-0: read up to 1 of 4", position=1)


def stopped(*unread: Unread, **result: Any) -> dict[str, Any]:
    """The results of a hunt whose final read did not reach the ends of these partitions."""
    return {"verdict": "unknown", "reasons": [str(each) for each in unread], "unread": [*unread]} | result


def test_a_final_read_that_it_stops_is_excused() -> None:
    assert judged(catalogue()["HIS-12"], CLEAN, [HIDES], **stopped(STOPPED)).verdict is Verdict.TOLERATED


def test_a_client_that_hangs_is_no_proof_that_the_target_does() -> None:
    hangs = "client 4 did not end in time and was killed"
    judgement = judged(catalogue()["HIS-12"], CLEAN, verdict="unknown", reasons=[hangs], stuck=[hangs])
    assert (judgement.verdict, judgement.reason) == (Verdict.NOT_JUDGED, hangs)
    others = RULES["no-progress"].example
    assert judged(catalogue()["HIS-12"], others, reasons=[hangs], stuck=[hangs]).verdict is Verdict.FAIL


def test_what_the_history_does_not_show_of_another_rule_is_no_lack_of_progress() -> None:
    """As on noida-db, which reports no leader epochs: its high watermark may have begun lower under another leader."""
    judgement = judge_history(history(CLEAN, {}, "t"))
    reason = "2 × high-watermark-regression: the leader epoch; a new leader or a restarted node may begin lower"
    finding = SimpleNamespace(rule="high-watermark-regression", permitted="unproven", anomalies=[], count=2)
    unsure: Any = SimpleNamespace(findings=[finding], reasons=[reason], history=judgement.history)
    result = SimpleNamespace(**PLENTY, verdict="invalid", reasons=[reason], unread=[], stuck=[], folder="folder")
    found = judge(catalogue()["HIS-12"], subject(Hunt(result, unsure, {}, ())))
    assert found.verdict is Verdict.PASS, found.reason


@pytest.mark.parametrize(
    ("unmarked", "result"),
    [
        ([OPEN], stopped(STOPPED)),
        ([], stopped(STOPPED)),
        ([replace(HIDES, partition=1)], stopped(STOPPED)),
        ([HIDES], stopped(replace(STOPPED, position=3))),
        ([HIDES], stopped(replace(STOPPED, position=None))),
        ([HIDES], stopped(STOPPED, Unread(1, "t-1: no leader said where the log ends"))),
        ([HIDES], stopped(STOPPED, reasons=[str(STOPPED), "node 1 of reference:1 ended with code 1"])),
    ],
)
def test_no_other_lack_of_progress_is(unmarked: Sequence[Unmarked], result: Mapping[str, Any]) -> None:
    assert judged(catalogue()["HIS-12"], CLEAN, unmarked, **result).verdict is Verdict.FAIL


def test_every_requirement_is_here() -> None:
    assert [entry.requirement.id for entry in ENTRIES] == list(BREAKS)
