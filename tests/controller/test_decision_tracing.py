"""Trace events of a controller's decisions: reassignments, their cancellation and end, and changed min.insync.replicas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from reference.controller.decision_tracing import DecisionTracing
from reference.controller.elections import change_min_isr
from reference.controller.image import BROKER_RESOURCE, NO_LEADER, TOPIC_RESOURCE
from reference.protocol.messages.config_record import ConfigRecord
from reference.protocol.messages.partition_change_record import PartitionChangeRecord
from reference.protocol.primitives import LeaderEpoch, NodeId
from reference.protocol.schema import Message
from tests.controller.cluster import TOPIC, ControlledCluster, nodes, topic_id_of
from tests.controller.test_reassignments import move

MIN_ISR = "min.insync.replicas"
AnswerParts = tuple[str, Mapping[str, Any]]


class TracingCluster(ControlledCluster):
    """A cluster of five brokers and one partition, whose controller traces its decisions."""

    def __init__(self, **settings: str) -> None:
        self.reported: list[AnswerParts] = []
        self._tracing: DecisionTracing | None = None
        super().__init__(settings={MIN_ISR: "2", **settings})
        self.start(0, 1, 2, 3, 4)
        self.create(TOPIC, [0, 1, 2])
        self._tracing = DecisionTracing(
            NodeId(0), self.image, self.configuration, lambda action, row: self.reported.append((action, row))
        )

    def write(self, records: Sequence[Message]) -> None:
        if self._tracing is not None:
            self._tracing.trace_step(records, LeaderEpoch(1), self.offset + len(records))
        super().write(records)

    def configure(self, resource_type: int, name: str, value: str | None) -> None:
        record = ConfigRecord(resource_type=resource_type, resource_name=name, name=MIN_ISR, value=value)
        self.write([record, *change_min_isr(self.image, [record])])

    @property
    def steps(self) -> list[tuple[str, Any]]:
        return [(action, row["args"]) for action, row in self.reported]

    @property
    def last(self) -> Any:
        return self.reported[-1][1]["partitions"][f"{TOPIC}-0"]


def test_a_reassignment_is_traced_and_its_end_is_the_proposal_that_adds_the_last_replica() -> None:
    cluster = TracingCluster()
    move(cluster, [3, 1, 2])
    assert (cluster.last["replicas"], cluster.last["adding"], cluster.last["removing"]) == ([3, 1, 2, 0], [3], [0])
    cluster.alter_isr([0, 1, 2, 3])
    assert cluster.steps == [("Reassign", {"replicas": [1, 2, 3]}), ("AlterPartition", {"leader": 0})]
    assert (cluster.last["replicas"], cluster.last["adding"], cluster.last["leader"]) == ([3, 1, 2], [], 3)


def test_one_that_is_done_at_once_is_traced_as_one() -> None:
    cluster = TracingCluster()
    move(cluster, [0, 1])
    move(cluster, [1, 0])
    assert cluster.steps == [("Reassign", {"replicas": [0, 1]})] * 2
    assert cluster.last["leaderEpoch"] == 1


@pytest.mark.step("replication", "CallOffReassignment")
def test_a_cancelled_reassignment_is_traced_also_where_it_is_an_unclean_election() -> None:
    cluster = TracingCluster(**{"unclean.leader.election.enable": "true"})
    move(cluster, [0, 1, 3])
    move(cluster, None)
    move(cluster, [3, 4])
    cluster.write([PartitionChangeRecord(topic_id=topic_id_of(TOPIC), partition_id=0, isr=nodes(3), leader=NodeId(3))])
    move(cluster, None)
    reported = [step for step in cluster.steps if step[0] == "CallOffReassignment"]
    assert reported == [("CallOffReassignment", {"replicas": [0, 1, 2]})] * 2
    assert (cluster.last["isr"], cluster.last["leader"]) == ([0], 0)


@pytest.mark.step("replication", "ChangeMinIsr")
def test_min_insync_replicas_is_traced_with_the_partitions_whose_elr_is_cleared() -> None:
    cluster = TracingCluster()
    cluster.fence(1)
    cluster.fence(2)
    assert cluster.last["elr"] == [2]
    epoch = cluster.last["partitionEpoch"]
    cluster.configure(TOPIC_RESOURCE, TOPIC, "1")
    assert cluster.steps[-1] == ("ChangeMinIsr", {"minIsr": 1})
    assert (cluster.last["minIsr"], cluster.last["elr"], cluster.last["partitionEpoch"]) == (1, [], epoch + 1)
    assert cluster.partition().partition_epoch == epoch + 1
    cluster.configure(BROKER_RESOURCE, "", "3")
    assert cluster.steps[-1] == ("ChangeMinIsr", {"minIsr": 1})
    cluster.configure(TOPIC_RESOURCE, TOPIC, None)
    assert cluster.steps[-1] == ("ChangeMinIsr", {"minIsr": 3})
    assert cluster.last["partitionEpoch"] == epoch + 1


def test_the_failure_of_a_log_directory_is_traced_as_no_step_of_the_specification() -> None:
    """No broker is fenced, and no replica elected. Found by a simulated run: copies, three nodes, seed 41600003."""
    cluster = TracingCluster()
    lost = PartitionChangeRecord(
        topic_id=topic_id_of(TOPIC), partition_id=0, leader=NO_LEADER, isr=[], eligible_leader_replicas=[NodeId(0)]
    )
    cluster.write([lost])
    assert [action for action, _ in cluster.reported] == ["End"], cluster.reported
