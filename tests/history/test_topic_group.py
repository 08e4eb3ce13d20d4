"""A group's offsets, read and committed while its coordinator moves."""

import subprocess
import sys
from pathlib import Path

import pytest

from linearizability.history.topic import HistoryTopic
from linearizability.history.topic_group import TopicGroup
from linearizability.targets import open_target
from linearizability.workload.cluster import create_topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.offset_commit import OffsetCommitRequest
from reference.protocol.messages.offset_fetch import OffsetFetchRequest
from tests.confusions.wire import Mishap, Wire

READ = """
import sys
from linearizability.history.topic import HistoryTopic
from linearizability.history.topic_group import TopicGroup
print(TopicGroup(HistoryTopic.parse(sys.argv[1]), "g").place())
"""


@pytest.mark.parametrize("error", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_a_coordinator_that_is_none_yet_is_asked_again(tmp_path: Path, error: ErrorCode) -> None:
    """In a process of its own: librdkafka's admin client dies of the first error."""
    with open_target("reference:1", folder=tmp_path) as target, Wire(target.nodes[0]) as wire:
        create_topic(target.nodes, "lines", partitions=2, replication_factor=1, configs={})
        topic = f"kafka:{wire.bootstrap}/lines"
        refused = wire.befall(OffsetCommitRequest, Mishap.REFUSED, error)
        TopicGroup(HistoryTopic.parse(topic), "g").commit({1: 0})
        asked = wire.befall(OffsetFetchRequest, Mishap.REFUSED, error)
        done = subprocess.run(
            [sys.executable, "-c", READ, topic], capture_output=True, text=True, timeout=120, check=False
        )
        assert (done.returncode, done.stdout) == (0, "{0: 0, 1: 0}\n"), done.stderr
        assert refused.met.is_set() and asked.met.is_set()
