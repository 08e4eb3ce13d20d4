"""A broker of the ELR is started and stopped cleanly before the controller has registered it: is it eligible still?

Found by the simulation (tests/simulation/found/clean-end-before-registration.json). Replicas are on nodes 1, which leads,
and 2; the controller is node 3, and node 2's requests to be registered in its second run are lost on the way. The note of
a clean end has the broker epoch that the controller compares with the one that it knows (KIP-966).
`python -m pytest -m slow -s tests/targets/test_clean_end_before_registration.py` reports what was seen.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conformance.batches import batch
from conformance.broker import Broker
from conformance.cluster import JudgedCluster
from conformance.levels import MUST
from conformance.requirement import Requirement
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.broker_registration import BrokerRegistrationRequest
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
NO_ID = -1
STOP_WITHIN_S = 120.0
CONFIG = {
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "500",
    "controller.quorum.request.timeout.ms": "60000",
    "controller.quorum.fetch.timeout.ms": "60000",
    "auto.leader.rebalance.enable": "false",
}
RECORD = Requirement(id="ELE-00", level=MUST, sentence="Who is eligible stays so.", source="KIP-966", deadline_s=240)


def notes(target: OneController) -> list[Path]:
    """The follower's note of a clean end, if there is one."""
    return [*target.member(FOLLOWER).data.rglob(".kafka_cleanshutdown")]


def noted_epoch(target: OneController) -> int | None:
    """The broker epoch in the follower's note; None where there is none."""
    return next((int(json.loads(note.read_text())["brokerEpoch"]) for note in notes(target)), None)


def play(broker: Broker, target: OneController) -> tuple[int | None, int | None, int]:
    """The epochs in the note after the first end and after the second, and who leads when only the follower is back."""
    nodes = JudgedCluster(broker)
    topic = nodes.topic(LEADER, FOLLOWER, in_sync=2)
    written = broker.produce(topic, batch(b"committed"), to=broker.connection(nodes.address(LEADER)))
    broker.expect_error(written.error_code, ErrorCode.NONE, what="Produce")
    broker.entrance = nodes.address(CONTROLLER)

    def reported(text: str) -> None:
        print(text)
        broker.saw(text)

    def state() -> tuple[int, list[int], list[int]]:
        partition = nodes.described(topic)
        return partition.leader_id, sorted(partition.isr_nodes), sorted(partition.eligible_leader_replicas or [])

    target.stop(FOLLOWER)
    first = noted_epoch(target)
    broker.eventually(lambda: state() == (LEADER, [LEADER], [FOLLOWER]), f"node {FOLLOWER} in the ELR", within_s=20)
    target.line.loses = BrokerRegistrationRequest.KEY
    target.restart(FOLLOWER, wait=False)
    broker.eventually(lambda: target.line.lost > 0 and not notes(target), "it asked and took its note", within_s=30)
    assert target.member(FOLLOWER).process.stop(STOP_WITHIN_S), "SIGTERM did not end it"
    second = noted_epoch(target)
    reported(f"the note after a registered run: {first}; after one that the controller never learned of: {second}")
    target.line.loses = None
    target.kill(LEADER)
    broker.eventually(lambda: state()[0] == NO_ID, "no replica leads", within_s=30)
    reported(f"leader, ISR, ELR with both gone: {state()}")
    target.restart(FOLLOWER, wait=False)
    broker.eventually(lambda: state() != (NO_ID, [], [LEADER, FOLLOWER]), "the controller knows of it", within_s=30)
    reported(f"leader, ISR, ELR with node {FOLLOWER} back: {state()}")
    return first, second, state()[0]


def played(target: OneController) -> tuple[int | None, int | None, int]:
    with judged(target, RECORD) as broker:
        return play(broker, target)


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.parametrize("version", RELEASES)
def test_kafka_forgets_that_it_was_eligible(version: str, tmp_path: Path) -> None:
    with Line(FOLLOWER) as line:
        target = KafkaWithOneController(f"kafka:{version}", version=version, nodes=3, folder=tmp_path, config=CONFIG)
        target.line = line
        first, second, leader = played(target)
    assert first is not None and first >= 0
    assert (second, leader) == (None, NO_ID)


@pytest.mark.slow
def test_the_reference_does_not(tmp_path: Path) -> None:
    with Line(FOLLOWER) as line:
        target = ReferenceWithOneController("reference", nodes=3, folder=tmp_path, config=CONFIG)
        target.line = line
        first, second, leader = played(target)
    assert first is not None and first >= 0
    assert (second, leader) == (first, FOLLOWER)
