"""Several nodes in one world: real replicas, clients that find the leader, and bugs that the partition oracle must find."""

from collections.abc import Callable
from typing import Any

import pytest

from linearizability.simulation import machine
from linearizability.simulation.drawing import draw
from linearizability.simulation.judging import Outcome, run_schedule
from linearizability.simulation.schedule import Fault, Producer, Schedule
from reference.protocol.errors import ErrorCode
from reference.replication import leader as leading
from reference.replication import partition as partitions
from reference.replication.partition import Partition
from tests.simulation.fair_cluster import fair_nodes

NOT_FOR_FAIR_NODES = {
    "reassign",
    "config",
    "elect-preferred",
    "lead",
    "disk-full",
    "read-only",
    "flush-fails",
    "clock-jump",
    "directory-fails",
    "move",
}
MIN_ISR = {"min.insync.replicas": "2"}


def fair(seed: int, nodes: int = 3) -> Schedule:
    """The schedule of a seed without what the fair controller does not know."""
    drawn = draw(seed, None, nodes)
    clients = tuple(
        client.model_copy(update={"batches": min(60, client.batches), "records": 3})
        if isinstance(client, Producer)
        else client
        for client in drawn.clients
        if client.kind != "seeker"
    )
    topics = tuple(topic.model_copy(update={"configs": MIN_ISR, "deletes": False}) for topic in drawn.topics)
    faults = tuple(fault for fault in drawn.faults if fault.kind not in NOT_FOR_FAIR_NODES)
    return drawn.model_copy(update={"clients": clients, "topics": topics, "faults": faults})


def live_fairly(schedule: Schedule, monkeypatch, **planted: bool) -> Outcome:
    monkeypatch.setattr(machine, "Node", fair_nodes(2, **planted))
    return run_schedule(schedule)[0]


@pytest.mark.parametrize("nodes", [3, 5])
def test_runs_in_which_leaders_change_keep_every_promise(nodes: int, monkeypatch):
    outcomes = [live_fairly(fair(seed, nodes), monkeypatch) for seed in range(8)]
    assert not [(each.schedule.seed, each.rule, each.text) for each in outcomes if each.verdict == "invalid"]
    assert sum(each.leader_changes for each in outcomes) >= 5
    assert sum(each.acknowledged_by_all for each in outcomes) >= 500
    counts = sum((each.counts for each in outcomes), type(outcomes[0].counts)())
    assert counts["action ExpandIsr"] and counts["action CommitIsr"]


def test_the_same_schedule_gives_the_same_trace(monkeypatch):
    digests = [[live_fairly(fair(seed), monkeypatch).digest for seed in (1, 2, 3)] for _ in range(2)]
    assert digests[0] == digests[1]
    assert len({*digests[0]}) == 3


def quiet(*faults: Fault) -> Schedule:
    drawn = fair(0)
    producer = Producer(batches=80, pause_ms=20)
    return drawn.model_copy(update={"duration_ms": 2_000, "clients": (producer,), "faults": faults})


@pytest.mark.parametrize("kind", ["cut", "cut-out", "cut-in", "isolate", "pause", "crash", "power-loss"])
def test_a_leader_that_fails_is_replaced_and_nothing_is_lost(kind: str, monkeypatch):
    topic = quiet().topics[0].name
    fault = Fault(at_ms=500, kind=kind, role="leader", topic=topic, node=1, for_ms=900)
    outcome = live_fairly(quiet(fault), monkeypatch)
    assert (outcome.verdict, outcome.rule, outcome.text) == ("valid", "", "")
    assert outcome.acknowledged > 100
    if kind in ("pause", "crash", "power-loss"):
        assert outcome.leader_changes >= 1
    assert outcome.judgement is not None and not outcome.judgement.permitted


def test_the_fault_is_injected_into_the_leader_of_then(monkeypatch):
    topic = quiet().topics[0].name
    first = Fault(at_ms=300, kind="crash", role="leader", topic=topic, node=1, for_ms=5_000)
    second = first.model_copy(update={"at_ms": 1_500, "for_ms": 100})
    outcome = live_fairly(quiet(first, second), monkeypatch)
    assert outcome.verdict == "valid"
    assert outcome.counts["action Crash"] == 2, "the second fault found another leader than the first, which is down"


# ---- planted bugs


def _ack_before_commit(monkeypatch) -> None:
    monkeypatch.setattr(Partition, "answer_to_produce", lambda self, end: ErrorCode.NONE)


def _high_watermark_is_the_log_end(monkeypatch) -> None:
    monkeypatch.setattr(leading, "next_high_watermark", lambda now, end, ends: end)


def _proposed_members_do_not_count(monkeypatch) -> None:
    monkeypatch.setattr(Partition, "is_in_maximal_isr", lambda self, broker: broker in self.state.isr)
    monkeypatch.setattr(Partition, "_is_about_to_join", lambda self, follower, progress, now: False)


def _min_isr_is_ignored_by_the_high_watermark(monkeypatch) -> None:
    monkeypatch.setattr(Partition, "is_under_min_isr", property(lambda self: False))


def _truncation_by_high_watermark(monkeypatch) -> None:
    original = partitions.Partition.__init__

    def init(self: Any, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        self.truncation = "high-watermark"

    monkeypatch.setattr(Partition, "__init__", init)


def _nothing_is_truncated(monkeypatch) -> None:
    monkeypatch.setattr(Partition, "truncate", lambda self, leader, epoch, end: self.log.log_end_offset)


BUGS: dict[str, tuple[Callable[..., None], str]] = {
    "acknowledged before it is committed": (_ack_before_commit, "acknowledged-before-commit"),
    "the leader's end is the high watermark": (_high_watermark_is_the_log_end, "high-watermark-too-high|eligible-incomplete"),
    "min.insync.replicas is not looked at": (_min_isr_is_ignored_by_the_high_watermark, "high-watermark-under-min-isr"),
    "truncation by high watermark (KIP-101)": (_truncation_by_high_watermark, "incomplete|differ|lost"),
}  # fmt: skip
MOST_SCHEDULES = 60


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str, monkeypatch):
    plant, rules = BUGS[name]
    plant(monkeypatch)
    for seed in range(MOST_SCHEDULES):
        outcome = live_fairly(fair(seed), monkeypatch)
        if outcome.verdict == "invalid":
            assert any(rule in outcome.rule for rule in rules.split("|")), (seed, outcome.rule, outcome.text)
            return
    pytest.fail(f"{name}: not found in {MOST_SCHEDULES} schedules")


def test_members_that_ended_uncleanly_and_stay_in_the_isr_are_found(monkeypatch):
    for seed in range(MOST_SCHEDULES):
        outcome = live_fairly(fair(seed), monkeypatch, keeps_unclean_members=True)
        if outcome.verdict == "invalid":
            reported = outcome.rule, outcome.text
            assert any(rule in outcome.rule for rule in ("incomplete", "lost", "differ", "out-of-range")), reported
            return
    pytest.fail("not found")


# ---- nodes of the reference


@pytest.mark.parametrize("seed", (0, 2, 3))
def test_runs_of_three_nodes_keep_every_promise(seed: int):
    drawn = draw(seed, None, 3)
    outcome, _ = run_schedule(drawn)
    assert (outcome.verdict, outcome.rule, outcome.text) == ("valid", "", "")
    assert outcome.acknowledged > 50 and outcome.leader_changes


def test_the_reference_gives_the_same_trace_again():
    schedule = draw(2, None, 3)
    assert run_schedule(schedule)[0].digest == run_schedule(schedule)[0].digest
