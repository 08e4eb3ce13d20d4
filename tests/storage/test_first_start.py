"""A process that is killed at its first start leaves the quorum's folder without a log: the next start goes on."""

from pathlib import Path

import pytest

from reference.protocol.primitives import TimestampMs
from reference.storage.checkpoints import write_topic_id
from reference.storage.errors import CorruptFile
from reference.storage.log_directory import METADATA_TOPIC_ID, LogDirectory
from reference.storage.simulated_disk import SimulatedDisk

HOME = Path("/data/__cluster_metadata-0")
NOW = TimestampMs(1)


def directory() -> LogDirectory:
    disk = SimulatedDisk()
    for folder in (HOME.parent, HOME):
        disk.make_folder(folder)
    write_topic_id(disk, HOME, METADATA_TOPIC_ID)
    logs = LogDirectory(disk, HOME.parent)
    logs.load(NOW)
    return logs


def test_a_folder_with_the_topics_id_alone_gets_its_log() -> None:
    assert directory().metadata_log(NOW).log_end_offset == 0


def test_a_folder_in_which_a_node_has_voted_must_have_its_log() -> None:
    logs = directory()
    logs.disk.write_file(HOME / "quorum-state", b"{}")
    with pytest.raises(CorruptFile, match="has no log, and __cluster_metadata-0 is there"):
        logs.metadata_log(NOW)
