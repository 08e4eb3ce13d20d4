from __future__ import annotations

import pytest

from reference.storage.simulated_disk import SimulatedDisk


@pytest.fixture
def disk() -> SimulatedDisk:
    """A disk without files, which forgets at a loss of power what was not flushed."""
    return SimulatedDisk()
