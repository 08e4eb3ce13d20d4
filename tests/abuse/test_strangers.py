"""Nodes that do not belong to a cluster, and requests that no member sends: refused with one clear line or the protocol's error.

The cluster is three real processes. After every test all three are registered, and the acknowledged record can be read.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from linearizability.targets import open_target
from linearizability.targets.cluster import ClusterTarget, Member
from linearizability.targets.wire import Wire, WireError, known_brokers
from reference.controller.quorum_messages import Asker, vote_request
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.alter_partition import AlterPartitionRequest
from reference.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from reference.protocol.messages.broker_registration import BrokerRegistrationRequest
from reference.protocol.messages.describe_quorum import DescribeQuorumRequest
from reference.protocol.primitives import FIRST_EPOCH, FIRST_OFFSET, NO_UUID, LeaderEpoch, NodeId, Offset
from reference.protocol.schema import Message
from tests.targets.numbers import WITHIN_S, consumed, produce
from tests.waiting import await_true

BOUNDS = {
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "200",
    "num.partitions": "1",
    "initial.broker.registration.timeout.ms": "4000",
}
HIGHEST = LeaderEpoch(2**31 - 1)
STRANGER = NodeId(77)
FAR = Offset(10**9)
HOST = "127.0.0.1"


class House:
    """The cluster, and the processes of strangers beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # The members themselves may need longer than a stranger is given.
        config = BOUNDS | {"initial.broker.registration.timeout.ms": "60000"}
        target = open_target("reference:3", folder=folder, config=config)
        assert isinstance(target, ClusterTarget)
        self.cluster = target
        self.strangers: list[subprocess.Popen[bytes]] = []

    @property
    def members(self) -> list[Member]:
        return self.cluster.members

    @property
    def cluster_id(self) -> str:
        return self.cluster.cluster_id

    def stranger(self, name: str, node: int, cluster_id: str) -> tuple[subprocess.Popen[bytes], Path]:
        """A broker process that knows the voters' addresses, and its log."""
        home = self.folder / name
        home.mkdir()
        lines = self.members[0].properties_file.read_text().splitlines()
        properties = dict(line.split("=", 1) for line in lines if "=" in line) | BOUNDS
        del properties["advertised.listeners"]
        properties |= {
            "node.id": str(node),
            "process.roles": "broker",
            "listeners": f"PLAINTEXT://{HOST}:0",
            "log.dirs": str(home / "data"),
        }
        file = home / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        tidegauge = [sys.executable, "-m", "tidegauge"]
        subprocess.run([*tidegauge, "format", str(file), "--cluster-id", cluster_id], check=True, capture_output=True)
        with (home / "log").open("wb") as log:
            self.strangers.append(subprocess.Popen([*tidegauge, "serve", str(file)], stderr=log))
        return self.strangers[-1], home / "log"

    def ids(self) -> list[int]:
        return sorted(known_brokers(HOST, self.members[0].node.port))

    def ask(self, member: Member, request: Message, version: int, *, controller: bool = True) -> Any:
        port = member.controller_port if controller else member.node.port
        with Wire.connect(HOST, port, timeout_s=10) as wire:
            return wire.call(request, version, timeout_s=10)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    house = House(tmp_path_factory.mktemp("house"))
    with house.cluster:
        produce(house.cluster.bootstrap, [7])
        yield house


@pytest.fixture
def house(made: House) -> Iterator[House]:
    yield made
    for stranger in made.strangers:
        stranger.terminate()
        stranger.wait(WITHIN_S)
    made.strangers.clear()
    await_true(lambda: made.ids() == [1, 2, 3])
    assert consumed(made.cluster.bootstrap, 1) == [7]
    for member in made.members:
        assert "Traceback" not in member.process.log.read_text()


def logs(log: Path, sentence: str) -> Callable[[], bool]:
    return lambda: sentence in log.read_text()


@pytest.mark.timeout(300)
def test_a_node_of_another_cluster_gets_an_error_and_ends(house: House) -> None:
    process, log = house.stranger("elsewhere", 5, "AAAAAAAAAAAAAAAAAAAAAA")
    assert process.wait(WITHIN_S) == 1
    text = log.read_text()
    assert "refuses this node with INCONSISTENT_CLUSTER_ID(104): it belongs to another cluster" in text
    assert "no controller has registered this broker within 4000 ms" in text.splitlines()[-1]
    assert len(text.splitlines()) <= 8, text


@pytest.mark.timeout(300)
def test_of_two_nodes_with_one_id_the_second_waits_for_the_first_to_end(house: House) -> None:
    first, log = house.stranger("one", 4, house.cluster_id)
    await_true(logs(log, "unfenced"))
    second, other = house.stranger("two", 4, house.cluster_id)
    await_true(
        logs(other, "DUPLICATE_BROKER_REGISTRATION(101): a broker with this id is registered and not yet fenced")
    )
    assert house.ids() == [1, 2, 3, 4]
    assert second.wait(WITHIN_S) == 1 and first.poll() is None
    assert other.read_text().count("DUPLICATE_BROKER_REGISTRATION") == 1


def test_a_voters_id_without_its_role_is_refused_at_once(house: House) -> None:
    process, log = house.stranger("voter", 4, house.cluster_id)
    process.terminate()
    process.wait(WITHIN_S)
    file = log.parent / "server.properties"
    file.write_text(file.read_text().replace("node.id=4", "node.id=2"))
    done = subprocess.run(
        [sys.executable, "-m", "tidegauge", "serve", str(file)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 3
    assert done.stderr.splitlines() == [
        f"{file}: node.id 2 is among controller.quorum.voters, but does not have the role controller"
    ]


def active(house: House) -> tuple[Member, LeaderEpoch]:
    """The active controller and its epoch, as it reports itself."""
    partition = DescribeQuorumRequest.PartitionData(partition_index=0)
    topic = DescribeQuorumRequest.TopicData(topic_name="__cluster_metadata", partitions=[partition])
    until = time.monotonic() + WITHIN_S
    while time.monotonic() < until:
        for member in house.members:
            answer = house.ask(member, DescribeQuorumRequest(topics=[topic]), 0)
            reported = answer.topics[0].partitions[0] if answer.topics else None
            if reported is not None and reported.leader_id == member.node.id:
                return member, LeaderEpoch(reported.leader_epoch)
        time.sleep(0.1)
    raise AssertionError("no member is the active controller")


def test_absurd_epochs_and_unknown_voters_change_nothing(house: House) -> None:
    leader, epoch = active(house)
    voter = NodeId(leader.node.id)
    asks = {
        ErrorCode.INCONSISTENT_VOTER_SET: vote_request(
            Asker(house.cluster_id, STRANGER, NO_UUID, epoch + 1), voter, (epoch, FAR), pre_vote=False
        ),
        ErrorCode.INVALID_REQUEST: vote_request(
            Asker(house.cluster_id, NodeId(voter % 3 + 1), NO_UUID, HIGHEST),
            voter,
            (HIGHEST, FAR),
            pre_vote=False,
        ),
    }
    for expected, request in asks.items():
        answer = house.ask(leader, request, 2)
        assert answer.topics[0].partitions[0].error_code == expected
    asker = Asker("AAAA", STRANGER, NO_UUID, epoch + 1)
    stranger = vote_request(asker, voter, (FIRST_EPOCH, FIRST_OFFSET), pre_vote=False)
    assert house.ask(leader, stranger, 2).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert active(house) == (leader, epoch)


def test_what_only_brokers_say_is_refused_from_who_is_none(house: House) -> None:
    leader, _ = active(house)
    beat = BrokerHeartbeatRequest(broker_id=88, broker_epoch=5)
    assert house.ask(leader, beat, 1).error_code == ErrorCode.STALE_BROKER_EPOCH
    stale = BrokerHeartbeatRequest(broker_id=1, broker_epoch=0)
    assert house.ask(leader, stale, 1).error_code == ErrorCode.STALE_BROKER_EPOCH
    proposal = AlterPartitionRequest(broker_id=1, broker_epoch=0, topics=[])
    assert house.ask(leader, proposal, 3).error_code == ErrorCode.STALE_BROKER_EPOCH
    other = BrokerRegistrationRequest(broker_id=9, cluster_id="AAAA", incarnation_id=NO_UUID)
    assert house.ask(leader, other, 3).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    with pytest.raises(WireError):
        house.ask(leader, beat, 1, controller=False)


@pytest.mark.timeout(300)
def test_a_damaged_metadata_log_is_cut_said_and_fetched_again(house: House) -> None:
    leader, _ = active(house)
    member = next(member for member in house.members if member is not leader)
    member.process.kill()
    file = member.folder / "data" / "__cluster_metadata-0" / f"{0:020}.log"
    damaged = bytearray(file.read_bytes())
    damaged[len(damaged) // 2] ^= 0x55
    file.write_bytes(damaged)
    said = len(member.process.log.read_text())
    member.process.start()
    await_true(lambda: "unfenced" in member.process.log.read_text()[said:])
    assert "__cluster_metadata-0: recovered" in member.process.log.read_text()[said:]
    await_true(lambda: file.stat().st_size >= len(damaged))
