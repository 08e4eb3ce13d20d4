"""Fixtures of the tests of the quorum."""

from __future__ import annotations

import pytest

from tests.controller.quorum_members import Members


@pytest.fixture
def three() -> Members:
    """Member 0 leads 1 and 2 in epoch 1."""
    members = Members()
    members.start(0, 1, 2)
    members.elect(0)
    return members
