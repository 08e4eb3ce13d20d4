"""Two log directories as Kafka's tools see them: the reference and Apache Kafka behave alike in the same steps."""

from __future__ import annotations

import json
import re
import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from linearizability.targets import TargetError, open_target
from linearizability.targets.cluster import ClusterTarget
from reference.protocol.primitives import NodeId
from reference.storage.checkpoints import META_PROPERTIES, MetaProperties, write_meta_properties
from reference.storage.posix_disk import PosixDisk
from tests.tools.conftest import Admin
from tests.tools.jvm import Tools

CONFIG = {"offsets.topic.num.partitions": "1"}
WITHIN_S = 30.0


class TwoDirectories:
    """A node of two log directories, `data` with the metadata log and `other`."""

    def __init__(self, target: ClusterTarget, tools: Tools, folder: Path) -> None:
        self.target = target
        self.admin = Admin(tools, target)
        self.data, self.other = target.members[0].data, target.members[0].folder / "other"
        self._plan = folder / "plan.json"
        self.format()
        target.config(1, {"log.dirs": f"{self.data},{self.other}"})

    def format(self) -> None:
        self.other.mkdir()
        self.other_id = uuid.uuid4()
        write_meta_properties(PosixDisk(), self.other, MetaProperties(self.target.cluster_id, NodeId(1), self.other_id))

    def names_of_other(self) -> int:
        """How often records of the metadata name the second directory: one of the broker's registration does first."""
        (log,) = self.data.glob("__cluster_metadata-0/*.log")
        return log.read_bytes().count(self.other_id.bytes)

    def leaders(self, topic: str = "t") -> list[str]:
        return re.findall(r"Leader: (\S+)", self.admin("kafka-topics", "--describe", "--topic", topic).well())

    def described(self) -> dict[str, Any]:
        """Directory -> its partitions of `t`, or the class of its error."""
        out = self.admin("kafka-log-dirs", "--describe", "--topic-list", "t").well()
        (broker,) = json.loads(out[out.index('{"brokers"') :])["brokers"]
        return {
            Path(each["logDir"]).name: (each["error"] or "").rpartition(".")[2]
            or sorted(partition["partition"] for partition in each["partitions"])
            for each in broker["logDirs"]
        }

    def reassign(self, action: str, directory: Path, partition: int = 0) -> str:
        row = {"topic": "t", "partition": partition, "replicas": [1], "log_dirs": [str(directory)]}
        self._plan.write_text(json.dumps({"version": 1, "partitions": [row]}))
        ran = self.admin("kafka-reassign-partitions", f"--{action}", "--reassignment-json-file", self._plan)
        return ran.out + ran.errors

    def restart(self) -> str:
        """Restart the node; return the error if it does not start, else an empty text."""
        if self.target.running(1):
            self.target.stop(1)
        try:
            self.target.restart(1)
        except TargetError as error:
            return str(error)
        return ""


def until(ask: Callable[[], Any], wanted: Any) -> Any:
    """The result, once it is the wanted one or the time is over."""
    end = time.monotonic() + WITHIN_S
    while (found := ask()) != wanted and time.monotonic() < end:
        time.sleep(0.2)
    return found


@pytest.mark.parametrize("spec", ["reference:1", pytest.param("kafka:4.3.1:1", marks=pytest.mark.kafka)])
@pytest.mark.slow
def test_two_directories(spec: str, tools: Tools, tmp_path: Path) -> None:
    with open_target(spec, folder=tmp_path, config=CONFIG) as target:
        assert isinstance(target, ClusterTarget)
        node = TwoDirectories(target, tools, tmp_path)
        admin = node.admin
        admin.topic("t", partitions=4)
        assert until(lambda: sorted(map(len, node.described().values())), [2, 2]) == [2, 2], "where the fewest are"
        described = node.described()
        (here, there) = (node.data, node.other) if "t-0" in described["data"] else (node.other, node.data)
        admin.produce("t", *"abcdefgh")
        assert "moving log directory" in node.reassign("execute", there)
        assert "completed successfully" in until(
            lambda: "completed successfully" if "completed successfully" in node.reassign("verify", there) else "",
            "completed successfully",
        )
        assert "t-0" in node.described()[there.name] and len(node.described()[here.name]) == 1
        assert sum(admin.offsets("t").values()) == 8
        assert "LogDirNotFound" in node.reassign("execute", Path("/nowhere")) or "not find" in node.reassign(
            "execute", Path("/nowhere")
        )
        _offline(node, sorted(node.described()["other"]))
        _refused(node)
        _replaced(node)


def _offline(node: TwoDirectories, moved: list[str]) -> None:
    """`meta.properties` of the second directory cannot be read: the node starts without it."""
    meta, kept = node.other / META_PROPERTIES, node.other / "kept"
    node.target.stop(1)
    meta.rename(kept)
    meta.mkdir()
    assert node.restart() == ""
    assert node.described() == {
        "data": sorted({*map("t-{}".format, range(4))} - {*moved}),
        "other": "KafkaStorageException",
    }
    wanted = ["none" if f"t-{index}" in moved else "1" for index in range(4)]
    assert until(node.leaders, wanted) == wanted
    node.admin.topic("late", partitions=3)
    assert until(lambda: node.leaders("late"), ["1"] * 3) == ["1"] * 3
    assert "KafkaStorageException" in node.reassign(
        "execute", node.other, min({*range(4)} - {int(each[2:]) for each in moved})
    )
    node.target.stop(1)
    meta.rmdir()
    kept.rename(meta)


def _refused(node: TwoDirectories) -> None:
    """A partition that is in both, a metadata log in the wrong one, one that is not formatted."""
    name = next(path.name for path in node.data.glob("t-*") if not path.name.endswith("-delete"))
    shutil.copytree(node.data / name, node.other / name)
    refusal = node.restart()
    assert refusal and (is_kafka(node) or name in refusal)  # Kafka's log ends with what its loading threads say
    shutil.rmtree(node.other / name)
    (node.other / "__cluster_metadata-0").mkdir()
    assert "other/__cluster_metadata-0" in node.restart()
    (node.other / "__cluster_metadata-0").rmdir()
    meta = (node.other / META_PROPERTIES).read_bytes()
    shutil.copyfile(node.data / META_PROPERTIES, node.other / META_PROPERTIES)
    assert "directory" in node.restart()
    (node.other / META_PROPERTIES).write_bytes(meta)


def is_kafka(node: TwoDirectories) -> bool:
    return node.target.spec.startswith("kafka")


def _replaced(node: TwoDirectories) -> None:
    """The second disk is gone, and then a new one is in its place: its partitions begin empty, and are led again."""
    shutil.rmtree(node.other)
    assert "format" in node.restart()
    shutil.rmtree(node.other, ignore_errors=True)
    node.format()
    assert node.restart() == ""
    if is_kafka(node):
        # Kafka 4.3.1 unfences the broker, which elects last leaders, before it reports the new directory (100 ms later). Until
        # then the controller does not elect a replica there, and no election follows the report: the next start elects it.
        assert until(lambda: node.names_of_other() > 1, True), "the report"
        assert node.restart() == ""
    assert until(node.leaders, ["1"] * 4) == ["1"] * 4
    assert sorted(name for names in node.described().values() for name in names) == [f"t-{index}" for index in range(4)]
