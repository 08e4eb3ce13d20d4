"""What ZooKeeper refuses is named in the log, and tried again: the node waits for another connection, which may never come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.client import KazooState  # pyright: ignore[reportMissingTypeStubs]
from kazoo.exceptions import (  # pyright: ignore[reportMissingTypeStubs]
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NoNodeError,
)

from reference.runtime import zookeeper
from reference.runtime.zookeeper import KazooDriver
from reference.zookeeper.operations import (
    Answered,
    AskZooKeeper,
    Code,
    ConnectionLost,
    GetData,
    SessionConnected,
    SessionId,
    SetData,
    ZooKeeperEvent,
)


class Client:
    """Answers each operation with the same error; the session goes on."""

    state, client_id = KazooState.CONNECTED, (7, b"")

    def __init__(self, error: KazooException) -> None:
        self._error = error

    def get_async(self, path: str) -> Any:
        def answer(take: Callable[[Any], None]) -> None:
            take(SimpleNamespace(exception=self._error, value=None))

        return SimpleNamespace(rawlink=answer)

    def set_async(self, path: str, data: bytes, version: int) -> Any:
        return self.get_async(path)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (NoAuthError(), Code.CONNECTION_LOSS, "NoAuthError"),
        (NoNodeError(), Code.NO_NODE, ""),
        (ConnectionLoss(), Code.CONNECTION_LOSS, ""),
    ],
)
@pytest.mark.parametrize("operation", [GetData("/config/users/a"), SetData("/config/users/a", b"secret")])
def test_a_refusal_is_named_without_its_data(
    error: KazooException, code: Code, said: str, operation: GetData | SetData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper, "AGAIN_AFTER_S", 0.0)
    events: list[ZooKeeperEvent] = []
    lines: list[str] = []

    async def ask() -> None:
        driver = KazooDriver("127.0.0.1:1", 1000, events.append, lambda level, line: lines.append(f"{level} {line}"))
        driver._client = Client(error)
        driver.carry_out(AskZooKeeper(1, operation))
        await asyncio.sleep(0.1)

    asyncio.run(ask())
    assert [each.result.code for each in events if isinstance(each, Answered)] == [code]
    expected = f"error ZooKeeper does not carry out {type(operation).__name__} /config/users/a: {said}"
    assert lines == ([expected] if said else [])
    assert events[1:] == ([ConnectionLost(), SessionConnected(SessionId(7))] if said else [])
