from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from linearizability.targets import Target, open_target
from tests.confusions.applications import Applications
from tests.confusions.wire import Wire

TARGET = os.environ.get("CONFUSIONS_TARGET", "reference:1")
"""The broker under the examples: of one node, so that the wire knows every address that a client may learn."""


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with open_target(TARGET, folder=tmp_path_factory.mktemp("confusions")) as target:
        yield target


@pytest.fixture(scope="package")
def applications(broker: Target) -> Applications:
    return Applications(broker.bootstrap)


@pytest.fixture
def topic(applications: Applications) -> str:
    """A topic of one partition that no other test has."""
    return applications.new_topic()


@pytest.fixture
def wire(broker: Target) -> Iterator[Wire]:
    with Wire(broker.nodes[0]) as wire:
        yield wire


@pytest.fixture
def unlucky(wire: Wire) -> Applications:
    """Applications that reach the broker over the wire on which mishaps happen."""
    return Applications(wire.bootstrap)
