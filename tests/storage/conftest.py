from __future__ import annotations

import pytest

from reference.storage.simulated_disk import SimulatedDisk


@pytest.fixture
def disk() -> SimulatedDisk:
    """An empty simulated disk, which loses data that was not flushed when it loses power."""
    return SimulatedDisk()
