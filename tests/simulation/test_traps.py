"""Faults that wait for a step of the specification."""

import pytest

from linearizability.simulation.judging import Outcome, run_schedule
from linearizability.simulation.schedule import METADATA_TOPIC, Fault, Producer, Schedule, Topic

ORDERS = Topic(name="orders", configs={"min.insync.replicas": "2"})


def with_faults(*faults: Fault) -> Schedule:
    clients = (Producer(batches=20, pause_ms=20),)
    return Schedule(seed=5, nodes=3, duration_ms=700, topics=(ORDERS,), clients=clients, faults=faults)


def outcome_of(*faults: Fault) -> Outcome:
    outcome, _ = run_schedule(with_faults(*faults))
    assert (outcome.verdict, outcome.rule, outcome.text) == ("valid", "", "")
    return outcome


def test_a_fault_is_injected_once_when_the_step_happens():
    fault = Fault(at_ms=100, after="AppendFetched", wait_ms=3, kind="crash", role="actor", for_ms=50)
    counts = outcome_of(fault).counts
    assert counts["fault crash"] == 1 and counts["action Crash"] == 1 + 1  # each run kills a node at its end


def test_a_fault_whose_step_never_happens_is_never_injected():
    assert not outcome_of(Fault(at_ms=100, after="BecomeCandidate", topic=METADATA_TOPIC, kind="crash")).counts[
        "fault crash"
    ]


def test_steps_of_partitions_and_of_the_quorum_are_distinguished():
    of_partition = Fault(at_ms=100, after="BecomeLeader", kind="pause", for_ms=10)
    assert not outcome_of(of_partition).counts["fault pause"], "nobody came to lead after the topics were made"
    of_quorum = Fault(at_ms=100, after="ApplyFetch", topic=METADATA_TOPIC, kind="pause", role="actor", for_ms=10)
    assert outcome_of(of_quorum).counts["fault pause"] == 1


def test_the_fault_is_injected_into_the_other_node_of_a_step(monkeypatch):
    from linearizability.simulation import faults

    seen: list[int] = []
    monkeypatch.setitem(faults.ACTIONS, "pause", (lambda cluster, fault: seen.append(fault.node), None))
    leading: list[int] = []
    monkeypatch.setitem(faults.ACTIONS, "stop", (lambda cluster, fault: leading.append(fault.node), None))
    outcome_of(
        Fault(at_ms=200, after="AppendFetched", kind="pause", role="other"),
        Fault(at_ms=200, kind="stop", role="leader", topic="orders"),
    )
    assert seen and seen == leading, "the node that a follower's append names is its leader"


@pytest.mark.parametrize("after", ["Nonsense", "Crash"])
def test_only_steps_that_are_known_can_be_waited_for(after: str):
    with pytest.raises(ValueError, match="no step"):
        with_faults(Fault.model_validate({"at_ms": 1, "after": after, "kind": "crash"})).model_validate_json(
            with_faults(Fault.model_validate({"at_ms": 1, "after": after, "kind": "crash"})).to_json()
        )
