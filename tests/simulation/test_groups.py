"""Groups in the simulated world: owners, commits and resumption through rebalances, faults and coordinators that fail."""

from collections import Counter

import pytest

from linearizability.client.group_member import decode_assignment, encode_assignment, encode_subscription
from linearizability.simulation.drawing import draw
from linearizability.simulation.drawing_rare import EVERY, FROM
from linearizability.simulation.grouping import shares
from linearizability.simulation.judging import Outcome, run_schedule
from linearizability.simulation.schedule import Fault, Member, Producer, Schedule, Topic
from reference.coordinator.classic_group import ClassicGroup
from reference.coordinator.classic_rebalances import Rebalances
from reference.node.coordination import Coordination
from reference.protocol.messages.join_group import JoinGroupResponse
from reference.protocol.primitives import TimestampMs

ORDERS = Topic(name="orders", partitions=3)
WRITER = Producer(batches=60, pause_ms=20)
CUT_OFF = Fault(at_ms=400, kind="cut", role="coordinator", node=1, for_ms=1_500)
"""A cut of the coordinator from the other nodes; clients still reach it."""


def outcome_of(*members: Member, faults: tuple[Fault, ...] = (), nodes: int = 1, duration_ms: int = 1_200) -> Outcome:
    schedule = Schedule(
        seed=3, nodes=nodes, duration_ms=duration_ms, topics=(ORDERS,), clients=(WRITER, *members), faults=faults
    )
    return run_schedule(schedule)[0]


def counts_of(
    *members: Member, faults: tuple[Fault, ...] = (), nodes: int = 1, duration_ms: int = 1_200
) -> Counter[str]:
    outcome = outcome_of(*members, faults=faults, nodes=nodes, duration_ms=duration_ms)
    assert (outcome.verdict, outcome.rule, outcome.text) == ("valid", "", "")
    assert outcome.counts["answer OffsetCommit NONE"] >= 10
    return outcome.counts


def quiet(**changes: int) -> Member:
    return Member(faults_percent=0, pause_ms=10).model_copy(update=changes)


def test_the_leaders_assignor_gets_what_members_want_and_had():
    had = {"a": [("t", 1)], "b": [("t", 0), ("t", 2)], "c": []}
    members = [
        JoinGroupResponse.JoinGroupResponseMember(
            member_id=id, metadata=encode_subscription(["t"], owned, generation=4)
        )
        for id, owned in had.items()
    ]
    assert shares("sticky", members, {"t": 3}) == {"a": [("t", 1)], "b": [("t", 0)], "c": [("t", 2)]}
    assert shares("cooperative-sticky", members, {"t": 3}) == {"a": [("t", 1)], "b": [("t", 0)], "c": []}
    assert shares("range", members, {"t": 3}) == {"a": [("t", 0)], "b": [("t", 1)], "c": [("t", 2)]}
    assert decode_assignment(encode_assignment([("t", 0), ("u", 2)])) == [("t", 0), ("u", 2)]
    assert decode_assignment(b"") == []


def test_a_group_shares_the_partitions_and_reads_them_to_the_end():
    assert counts_of(quiet(), quiet())["assignments"] >= 2


def test_members_that_die_leave_and_stall_are_replaced():
    unlucky = Member(faults_percent=20, session_timeout_ms=200, pause_ms=5)
    counts = counts_of(unlucky, unlucky, unlucky, duration_ms=3_000)
    assert counts["member's death"] and counts["member's departure"] and counts["member's stall"]
    assert counts["answer OffsetCommit UNKNOWN_MEMBER_ID"], (
        "a stalled member was removed, and commits before it learns so"
    )
    assert counts["assignments"] > 6


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_each_assignor_shares_out_what_comes_and_goes(assignor: str):
    unlucky = Member(assignors=(assignor,), faults_percent=15, session_timeout_ms=200, pause_ms=5)  # type: ignore[arg-type]
    counts = counts_of(unlucky, unlucky, unlucky, duration_ms=2_000)
    assert counts[f"assignments by {assignor}"] > 6
    assert bool(counts["incremental revocations"]) == (assignor == "cooperative-sticky")


def test_members_vote_for_the_assignor():
    wants = [("sticky", "range"), ("range", "roundrobin"), ("range",)]
    counts = counts_of(*(quiet().model_copy(update={"assignors": each}) for each in wants))
    assert counts["assignments by range"] and not counts["assignments by roundrobin"]


def test_others_take_over_what_a_member_had_that_is_dead_for_good():
    counts = counts_of(quiet(), quiet(dies_after_ms=600))
    assert counts["members dead for good"] == 1


def test_a_static_member_that_stands_still_is_replaced_and_the_one_that_was_fenced_ends():
    static = Member(faults_percent=25, session_timeout_ms=1_000, rebalance_timeout_ms=250, pause_ms=5)
    members = [static.model_copy(update={"instance": name}) for name in ("one", "two", "three")]
    outcome = outcome_of(*members, duration_ms=4_000)
    assert (outcome.verdict, outcome.rule, outcome.text) == ("valid", "", "")
    assert outcome.counts["member's replacement"] and outcome.counts["answer OffsetCommit FENCED_INSTANCE_ID"]
    assert outcome.counts["members dead for good"]


def test_a_killed_coordinator_knows_generations_and_offsets_again():
    crash = Fault(at_ms=400, kind="crash", for_ms=100)
    assert counts_of(quiet(), quiet(), faults=(crash,))["answer OffsetFetch NONE"] >= 2


def test_another_coordinator_takes_over_with_all_that_was_committed():
    counts = counts_of(quiet(), quiet(), faults=(CUT_OFF,), nodes=3)
    assert counts["fault cut"] and counts["answer FindCoordinator NONE"] > 2


def test_a_lone_node_loses_power_in_rare_schedules_only():
    """Most schedules with groups kill it instead, since it may forget generations."""
    kinds = [fault.kind for seed in range(100) if seed % EVERY < FROM for fault in draw(seed, None, 1, "groups").faults]
    assert "crash" in kinds and "power-loss" not in kinds


def test_a_drawn_run():
    drawn = draw(7, None, 1, "groups")
    assert drawn.has_groups and not drawn.always_flushed
    outcome, _ = run_schedule(drawn)
    assert (outcome.verdict, outcome.rule, outcome.text) == ("valid", "", "")


def test_drawn_clusters_inject_faults_into_the_coordinator():
    assert any(fault.role == "coordinator" for seed in range(20) for fault in draw(seed, None, 3, "groups").faults)


def test_a_generation_given_out_twice_has_two_owners(monkeypatch: pytest.MonkeyPatch):
    begin_generation = ClassicGroup.begin_generation

    def begin_no_generation(group: ClassicGroup, now: TimestampMs) -> None:
        begin_generation(group, now)
        group.generation = 1

    monkeypatch.setattr(ClassicGroup, "begin_generation", begin_no_generation)
    outcome = outcome_of(*(Member(faults_percent=20, session_timeout_ms=200) for _ in range(3)))
    assert "two-owners" in outcome.rule


def test_a_commit_acknowledged_before_it_is_committed_is_missed(monkeypatch: pytest.MonkeyPatch):
    def answer(coordination: Coordination, index: int, request, response, now: int, fail) -> None:
        coordination._context.responder.respond(request, response)

    monkeypatch.setattr(Coordination, "answer", answer)
    outcome = outcome_of(quiet(), quiet(), faults=(CUT_OFF,), nodes=3)
    assert "committed-offset" in outcome.rule


def test_a_group_that_waits_for_the_dead_is_not_settled(monkeypatch: pytest.MonkeyPatch):
    for patience_ends in ("_member_expired", "_join_time_is_over"):
        monkeypatch.setattr(Rebalances, patience_ends, lambda *_: None)
    outcome = outcome_of(*(Member(faults_percent=20, pause_ms=5) for _ in range(3)))
    assert outcome.rule == "group-not-settled" and "is not stable" in outcome.text
