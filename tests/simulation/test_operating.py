"""The operator changes min.insync.replicas without breaking a promise: a partition that a change leaves without a leader gets an
unclean election, and no other partition."""

from pathlib import Path

from linearizability.simulation.cluster import SimulatedCluster
from linearizability.simulation.judging import run_schedule
from linearizability.simulation.operating import farthest_first
from linearizability.simulation.schedule import Fault, Producer, Schedule, Topic, read_schedule
from reference.protocol.primitives import LeaderEpoch, NodeId, Offset

FOUND = Path(__file__).parent / "found" / "min-isr-changed-while-the-isr-empties.json"
TWO = {"min.insync.replicas": "2"}
ORDERS, PAYMENTS = Topic(name="orders", configs=TWO), Topic(name="payments", configs=TWO)


def test_the_last_epoch_counts_before_the_end_of_a_log():
    reached = [(1, 2, 9), (2, 3, 5), (3, 3, 7)]
    logs = {NodeId(node): (LeaderEpoch(epoch), Offset(end)) for node, epoch, end in reached}
    assert farthest_first(logs) == (3, 2, 1)


def test_partitions_that_a_change_left_without_an_eligible_replica_are_led_again():
    schedule = read_schedule(FOUND)
    outcome, _ = run_schedule(schedule)
    assert outcome.counts["answer operator elect-unclean NONE"] == schedule.topics[0].partitions


def test_only_topics_whose_min_isr_was_changed_are_looked_after(monkeypatch):
    looked_at: set[str] = set()
    unelectable = SimulatedCluster.unelectable

    def look(cluster: SimulatedCluster, topic: str) -> dict[int, dict[NodeId, tuple[LeaderEpoch, Offset]]]:
        looked_at.add(topic)
        return unelectable(cluster, topic)

    monkeypatch.setattr(SimulatedCluster, "unelectable", look)
    faults = (
        Fault(at_ms=100, kind="config", topic="orders", configs={"min.insync.replicas": "1"}),
        Fault(at_ms=200, kind="config", topic="payments", configs={"internal.segment.bytes": "3000"}),
    )
    schedule = Schedule(
        nodes=3, duration_ms=500, topics=(ORDERS, PAYMENTS), clients=(Producer(batches=10),), faults=faults
    )
    outcome, _ = run_schedule(schedule)
    assert outcome.verdict == "valid" and outcome.counts["answer operator config NONE"] == len(faults)
    assert looked_at == {"orders"}
    assert not outcome.counts["answer operator elect-unclean NONE"]
