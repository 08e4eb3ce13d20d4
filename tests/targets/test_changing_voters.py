"""Controllers of Apache Kafka and of the reference in one quorum whose voters change, by Kafka's own tools (KIP-853)."""

from __future__ import annotations

import base64
import re
import subprocess
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from linearizability.targets import open_target
from linearizability.targets.cluster import ClusterTarget, Member
from linearizability.targets.kafka import KafkaCluster
from linearizability.targets.mixed import MixedCluster, Role
from linearizability.targets.reference import TIDEGAUGE
from linearizability.targets.wire import Wire
from reference.protocol.errors import name_of
from reference.protocol.messages.add_raft_voter import AddRaftVoterRequest
from reference.protocol.messages.describe_quorum import DescribeQuorumRequest
from reference.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from reference.protocol.messages.update_raft_voter import UpdateRaftVoterRequest
from tests.targets.numbers import QUIET, consumed, produce
from tests.waiting import await_true

WITHIN_S = 90
FIRST, JOINING = 1, 2


class ChangingCluster(MixedCluster):
    """The first node is the first voter; the others ask it who votes."""

    def __init__(self, kinds: list[str], folder: Path) -> None:
        opened = [open_target(kind, folder=folder / "unused") for kind in kinds]
        clusters = [each for each in opened if isinstance(each, ClusterTarget)]
        super().__init__("mixed:" + ",".join(kinds), clusters, [Role.BOTH] * len(kinds), folder=folder)

    def properties(self, member: Member) -> dict[str, str]:
        given = super().properties(member)
        del given["controller.quorum.voters"]
        servers = ",".join(f"{each.node.host}:{each.controller_port}" for each in self.members)
        return given | {"controller.quorum.bootstrap.servers": servers}

    def format(self, member: Member) -> None:
        option = "--standalone" if member.node.id == FIRST else "--no-initial-controllers"
        kind = self._kind(member)
        if isinstance(kind, KafkaCluster):
            arguments = "format", "-t", self.cluster_id, "-c", member.properties_file, option
            command = kind.java_command(["-XX:TieredStopAtLevel=1"], "kafka.tools.StorageTool", *arguments)
        else:
            command = [*TIDEGAUGE, "format", member.properties_file, "--cluster-id", self.cluster_id, option]
        subprocess.run(command, check=True, capture_output=True, timeout=WITHIN_S)

    def tool(self, *arguments: str | Path) -> str:
        """The output of kafka-metadata-quorum 4.3.1, which asks the second node."""
        kafka = next(kind for kind in self.kinds if isinstance(kind, KafkaCluster))
        node = self.member(JOINING).node
        servers = "--bootstrap-server", f"{node.host}:{node.port}"
        command = kafka.java_command(
            ["-XX:TieredStopAtLevel=1"], "org.apache.kafka.tools.MetadataQuorumCommand", *servers, *arguments
        )
        done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
        return done.stdout + done.stderr

    def add(self, node: int) -> str:
        return self.tool("--command-config", self.member(node).properties_file, "add-controller")

    def remove(self, node: int) -> str:
        options = "--controller-id", str(node), "--controller-directory-id", self.directory(node)
        return self.tool("remove-controller", *options)

    def directory(self, node: int) -> str:
        """The id of a node's data directory."""
        meta = (self.member(node).data / "meta.properties").read_text()
        found = re.search(r"^directory\.id=(.*)$", meta, re.M)
        assert found is not None
        return found[1]

    def quorum(self) -> tuple[int, list[int]]:
        """The leader and the voters, as the tool describes them."""
        said = self.tool("describe", "--status")
        leader, voters = re.search(r"LeaderId: +(\d+)", said), re.search(r"CurrentVoters: +(.*)", said)
        if leader is None or voters is None:
            return -1, []
        return int(leader[1]), sorted(int(id) for id in re.findall(r'"id": (\d+)', voters[1]))

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{node.host}:{node.port}" for node in self.nodes)


def has_joined(said: str, id: int) -> bool:
    """Whether a controller is a voter now, by the tool's output when it adds the controller.

    On a busy machine a leader may lose its place before the other controller has the new voters' record: the tool does
    not try again, as an operator would, and finds it added where the next leader had the record.
    """
    return f"Added controller {id}" in said or "already part of the set of voters" in said


@pytest.mark.sampled(days=5)
@pytest.mark.kafka
@pytest.mark.parametrize(
    "kinds",
    [
        ["kafka:4.3.1", "reference"],
        pytest.param(["reference", "kafka:4.3.1"], marks=pytest.mark.slow),
    ],
)
def test_a_controller_of_the_other_kind_joins_leads_and_the_first_leaves(kinds: list[str], tmp_path: Path) -> None:
    with ChangingCluster(kinds, tmp_path) as target:
        assert target.quorum() == (FIRST, [FIRST])
        admin = AdminClient({"bootstrap.servers": target.bootstrap, **QUIET})
        admin.create_topics([NewTopic("t", 1, 2, config={"min.insync.replicas": "2"})])["t"].result(WITHIN_S)
        produce(target.bootstrap, range(500))
        assert "Added controller 2" in target.add(JOINING)
        assert target.quorum() == (FIRST, [FIRST, JOINING])
        assert "already part of the set of voters" in target.add(JOINING)
        produce(target.bootstrap, range(500, 1000))
        assert "Removed " in target.remove(FIRST)
        await_true(lambda: target.quorum() == (JOINING, [JOINING]), "the second controller does not lead alone")
        produce(target.bootstrap, range(1000, 1500))
        await_true(lambda: has_joined(target.add(FIRST), FIRST), "the first controller cannot join again")
        await_true(lambda: target.quorum()[1] == [FIRST, JOINING], "not both controllers are voters")
        target.kill(FIRST)
        target.restart(FIRST)
        await_true(lambda: target.quorum()[1] == [FIRST, JOINING], "no leader has both voters again")
        produce(target.bootstrap, range(1500, 2000))
        assert consumed(target.bootstrap, 2000) == [*range(2000)]


UNKNOWN, NO_SUCH_DIRECTORY = 9, UUID(int=77)
"""A node that there is not; it has port 1."""


def additions(target: ChangingCluster) -> dict[str, dict[str, Any]]:
    """What is wrong with a request to add `UNKNOWN`."""
    second = target.member(JOINING)
    reached = AddRaftVoterRequest.Listener(name="CONTROLLER", host=second.node.host, port=second.controller_port)
    return {
        "unreachable": {},
        "another cluster": {"cluster_id": "another"},
        "no cluster": {"cluster_id": None, "voter_id": FIRST},
        "no id": {"voter_id": -1},
        "no directory": {"voter_directory_id": UUID(int=0)},
        "no listener": {"listeners": []},
        "another listener": {"listeners": listeners(AddRaftVoterRequest, "PLAINTEXT")},
        "small letters": {"listeners": listeners(AddRaftVoterRequest, "controller")},
        "a voter": {"voter_id": FIRST, "voter_directory_id": uuid_of(target, FIRST)},
        "a voter's id": {"voter_id": FIRST},
        "an observer's id": {"voter_id": JOINING, "listeners": [reached]},
    }


def removals(target: ChangingCluster) -> dict[str, dict[str, Any]]:
    return {
        "unknown": {},
        "another cluster": {"cluster_id": "another"},
        "no cluster": {"cluster_id": None},
        "no id": {"voter_id": -1},
        "no directory": {"voter_directory_id": UUID(int=0)},
        "a voter's id": {"voter_id": FIRST},
        "an observer": {"voter_id": JOINING, "voter_directory_id": uuid_of(target, JOINING)},
        "the last voter": {"voter_id": FIRST, "voter_directory_id": uuid_of(target, FIRST)},
    }


def updates(target: ChangingCluster, epoch: int) -> dict[str, dict[str, Any]]:
    return {
        "unknown": {},
        "another cluster": {"cluster_id": "another"},
        "no cluster": {"cluster_id": None},
        "no epoch": {"current_leader_epoch": -1},
        "an earlier epoch": {"current_leader_epoch": epoch - 1},
        "a later epoch": {"current_leader_epoch": epoch + 1},
        "no id": {"voter_id": -1},
        "no directory": {"voter_directory_id": UUID(int=0)},
        "no listener": {"listeners": []},
        "another listener": {"listeners": listeners(UpdateRaftVoterRequest, "PLAINTEXT")},
        "small letters": {"listeners": listeners(UpdateRaftVoterRequest, "controller")},
        "an observer": {"voter_id": JOINING, "voter_directory_id": uuid_of(target, JOINING)},
        "levels below 0": {"k_raft_version_feature": levels(-1, 1)},
        "levels in reverse": {"k_raft_version_feature": levels(1, 0)},
        "level 0 alone": {"k_raft_version_feature": levels(0, 0)},
        "levels that are newer": {"k_raft_version_feature": levels(2, 3)},
    }


DESCRIBED = {
    "its log": {"__cluster_metadata": [0]},
    "nothing": {},
    "no partition": {"__cluster_metadata": []},
    "another topic": {"t": [0]},
    "another partition": {"__cluster_metadata": [1]},
    "two partitions": {"__cluster_metadata": [0, 1]},
    "two topics": {"__cluster_metadata": [0], "t": [0, 1]},
}
"""What a description of the quorum may be asked of: topic -> partitions."""


def described(wire: Wire, asked: dict[str, list[int]]) -> list[str]:
    """The errors and the leader in the answer to DescribeQuorum."""
    request = DescribeQuorumRequest
    topics = [
        request.TopicData(topic_name=name, partitions=[request.PartitionData(partition_index=each) for each in indexes])
        for name, indexes in asked.items()
    ]
    answer = wire.call(request(topics=topics))
    return [
        f"{name_of(answer.error_code)}, {len(answer.nodes)} nodes",
        *(
            f"{topic.topic_name}-{each.partition_index}: {name_of(each.error_code)}, leader {each.leader_id}"
            for topic in answer.topics
            for each in topic.partitions
        ),
    ]


def listeners(form: type[AddRaftVoterRequest | UpdateRaftVoterRequest], name: str) -> list[Any]:
    return [form.Listener(name=name, host="127.0.0.1", port=1)]


def levels(lowest: int, highest: int) -> UpdateRaftVoterRequest.KRaftVersionFeature:
    return UpdateRaftVoterRequest.KRaftVersionFeature(min_supported_version=lowest, max_supported_version=highest)


def uuid_of(target: ChangingCluster, node: int) -> UUID:
    return UUID(bytes=base64.urlsafe_b64decode(target.directory(node) + "=="))


def refusals(kind: str, folder: Path) -> dict[str, Any]:
    """How the leader and an observer of one kind refuse each request."""
    found: dict[str, Any] = {}
    with ChangingCluster([kind, kind], folder) as target:
        given = {"cluster_id": target.cluster_id, "voter_id": UNKNOWN, "voter_directory_id": NO_SUCH_DIRECTORY}
        for node in (FIRST, JOINING):
            member = target.member(node)
            with Wire.connect(member.node.host, member.controller_port, timeout_s=WITHIN_S) as wire:

                def ask(what: str, request: Any, wire: Wire = wire, node: int = node) -> Any:
                    answer = wire.call(request)
                    found[f"node {node}, {what}"] = name_of(answer.error_code)
                    return answer

                add, update = AddRaftVoterRequest, UpdateRaftVoterRequest
                for what, changed in additions(target).items():
                    ask(f"add, {what}", add(**{**given, "listeners": listeners(add, "CONTROLLER"), **changed}))
                for what, changed in removals(target).items():
                    ask(f"remove, {what}", RemoveRaftVoterRequest(**{**given, **changed}))
                more = {**given, "listeners": listeners(update, "CONTROLLER"), "k_raft_version_feature": levels(0, 1)}
                epoch = wire.call(update(**more)).current_leader.leader_epoch
                for what, changed in updates(target, epoch).items():
                    answer = ask(f"update, {what}", update(**{**more, "current_leader_epoch": epoch, **changed}))
                    assert answer.current_leader.leader_id == FIRST
                for what, asked in DESCRIBED.items():
                    found[f"node {node}, describe, {what}"] = described(wire, asked)
    return found


@pytest.mark.sampled(days=5)
@pytest.mark.kafka
def test_requests_are_refused_as_by_kafka(tmp_path: Path) -> None:
    kafkas, ours = refusals("kafka:4.3.1", tmp_path / "kafka"), refusals("reference", tmp_path / "reference")
    assert ours == kafkas
    assert len(kafkas) == 70 + 2 * len(DESCRIBED) and len(set(map(str, kafkas.values()))) > 7, kafkas
