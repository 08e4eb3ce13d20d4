"""New logs after the last log directory has failed."""

import pytest

from reference.storage.errors import StorageError
from tests.storage.test_log_manager import World, place


def test_no_log_is_made_once_the_last_directory_has_failed() -> None:
    """One request may name several new partitions. Found by a simulated run: groups, ZooKeeper, five nodes, seed 41750002."""
    world = World(count=1)
    logs = world.start()
    world.disks[0].failure = OSError(30, "read-only")
    logs.take_failed()
    for index in (0, 1):
        with pytest.raises(StorageError, match=f"t-{index}"):
            place(logs, index)
