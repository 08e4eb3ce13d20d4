from __future__ import annotations

from collections.abc import Iterator

import pytest

from linearizability.targets import Target, open_target
from tests.abuse.broker import Broker


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    config = {"socket.request.max.bytes": "20000000", "socket.listen.backlog.size": "4096"}
    with open_target("reference:1", folder=tmp_path_factory.mktemp("abused"), config=config) as target:
        yield target


@pytest.fixture
def broker(target: Target) -> Iterator[Broker]:
    """A broker that the test abuses. After the test it must run, without a traceback in its log, and hold its earlier records."""
    broker = Broker(target)
    before = broker.produce("kept", 3)
    yield broker
    assert target.running(1), "the broker is gone"
    assert broker.values("kept", before[0])[: len(before)] == [f"kept {offset}" for offset in before]
    assert "Traceback" not in target.logs(1)[0].read_text(), "the broker logged a mistake of its own"
