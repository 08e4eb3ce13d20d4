"""min.insync.replicas is raised while a leader's proposal to shrink the ISR is on its way, and the leader learns of the ISR
first: the specification's switch CommitBeforeMinIsr, tried on Apache Kafka and on the reference.

Replicas are on nodes 1, which leads, and 2, which is frozen; the controller is node 3. What node 1 learns about the metadata is
held up, its AlterPartition and heartbeats are not. `python -m pytest -m slow -s tests/targets/test_raised_min_isr.py`
reports what was seen.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.answers import error_name
from conformance.batches import batch, values
from conformance.broker import Broker
from conformance.cluster import JudgedCluster
from conformance.levels import MUST
from conformance.requirement import Requirement
from conformance.requirements.config_changes import alter_topic
from reference.protocol.errors import ErrorCode
from tests.targets.controller_line import (
    CONTROLLER,
    RELEASES,
    KafkaWithOneController,
    Line,
    OneController,
    ReferenceWithOneController,
    judged,
)

LEADER, FOLLOWER = 1, 2
SET = 0
CONFIG = {
    "replica.lag.time.max.ms": "3000",
    "broker.session.timeout.ms": "12000",
    "broker.heartbeat.interval.ms": "500",
    "controller.quorum.request.timeout.ms": "60000",
    "controller.quorum.fetch.timeout.ms": "60000",
    "auto.leader.rebalance.enable": "false",
}
"""A frozen replica leaves the ISR long before it is fenced; metadata that come late end no wait."""
RECORD = Requirement(id="REP-00", level=MUST, sentence="What was acknowledged stays.", source="KIP-966", deadline_s=240)


class Story:
    """What happens to one partition, step by step."""

    def __init__(self, broker: Broker, nodes: JudgedCluster, line: Line) -> None:
        self.broker = broker
        self.nodes = nodes
        self.line = line
        self.topic = nodes.topic(LEADER, FOLLOWER)

    def report(self, text: str) -> None:
        print(text)
        self.broker.saw(text)

    def write(self, value: bytes) -> int:
        """The leader's answer to acks=all."""
        connection = self.broker.connection(self.nodes.address(LEADER))
        result = self.broker.produce(self.topic, batch(value), to=connection, timeout_ms=9_000)
        self.report(f"acks=all for {value.decode()!r}: {error_name(result.error_code)}, offset {result.base_offset}")
        return result.error_code

    def raise_min_isr(self) -> None:
        """min.insync.replicas=2, confirmed by the controller; the leader does not learn of it."""
        self.line.hold()
        answer = alter_topic(self.broker, self.topic, ("min.insync.replicas", SET, "2"))
        self.broker.expect_error(answer.error_code, ErrorCode.NONE, what="IncrementalAlterConfigs")

    def await_eligible(self) -> None:
        """The controller has put the follower into the ELR."""

        def eligible() -> bool:
            partition = self.nodes.described(self.topic)
            return (partition.isr_nodes, partition.eligible_leader_replicas) == ([LEADER], [FOLLOWER])

        self.broker.eventually(eligible, f"ISR [{LEADER}] and ELR [{FOLLOWER}]", within_s=20)
        self.report(f"DescribeTopicPartitions: ISR [{LEADER}], ELR [{FOLLOWER}]")

    def fail_over(self) -> list[bytes]:
        """Kill the leader: the eligible replica leads, and the former leader becomes a follower. The values in the log then."""
        self.nodes.kill(LEADER)
        self.nodes.resume(FOLLOWER)
        self.line.release()
        state = self.nodes.await_state(self.topic, lambda state: state.leader == FOLLOWER, f"node {FOLLOWER} leads")
        self.report(f"node {state.leader} leads in epoch {state.epoch}, with the ISR {sorted(state.isr)}")
        self.nodes.restart(LEADER)
        self.nodes.await_isr(self.topic, LEADER, FOLLOWER)
        self.nodes.await_served(self.topic)
        return [value for value in values(self.broker.log(self.topic)) if value is not None]

    def play(self) -> tuple[list[int], int, list[bytes]]:
        """The error codes of two Produce requests with acks=all, the high watermark then, and the values in the log at the end.

        The follower may have the first of the two: a fetch that waited at the leader when the follower froze is answered by it.
        """
        assert self.write(b"base") == ErrorCode.NONE
        self.nodes.pause(FOLLOWER)
        self.broker.entrance = self.nodes.address(CONTROLLER)
        self.raise_min_isr()
        answers = [self.write(b"waits for the ISR"), self.write(b"comes later")]
        self.await_eligible()
        end = self.broker.end_offset(self.topic)
        self.report(f"the leader's high watermark: {end}; answers with metadata that were held up: {self.line.held}")
        kept = self.fail_over()
        self.report(f"both in sync again, the log holds {[value.decode() for value in kept]}")
        return answers, end, kept


def played(target: OneController) -> tuple[list[int], int, list[bytes]]:
    with judged(target, RECORD) as broker:
        return Story(broker, JudgedCluster(broker), target.line).play()


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.parametrize("version", RELEASES)
def test_kafka_loses_what_it_acknowledged(version: str, tmp_path: Path) -> None:
    with Line(LEADER) as line:
        target = KafkaWithOneController(f"kafka:{version}", version=version, nodes=3, folder=tmp_path, config=CONFIG)
        target.line = line
        answers, end, kept = played(target)
    assert (answers, end) == ([ErrorCode.NONE, ErrorCode.NONE], 3)
    assert b"comes later" not in kept


@pytest.mark.slow
def test_the_reference_does_not(tmp_path: Path) -> None:
    with Line(LEADER) as line:
        target = ReferenceWithOneController("reference", nodes=3, folder=tmp_path, config=CONFIG)
        target.line = line
        answers, end, kept = played(target)
    assert ErrorCode.NONE not in answers and end == 1
    assert kept[0] == b"base"
