from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from linearizability.targets import Target, open_target
from tests.clients.aio import Aiokafka
from tests.clients.client import CannotDo, Client, StreamingClient
from tests.clients.confluent import Confluent
from tests.clients.java_console import JavaConsole
from tests.clients.kafka_python import KafkaPython
from tests.clients.kcat import Kcat, find_kcat
from tests.tools.jvm import Tools, shared_tools

STREAMING = ["confluent-kafka", "kafka-python", "aiokafka", "kcat"]
CLIENTS = [*STREAMING, pytest.param("java", marks=pytest.mark.java)]

_numbers = itertools.count(1)


def can_stream() -> list[str]:
    """The clients on this machine whose producers keep working while faults hit a cluster."""
    try:
        find_kcat()
    except CannotDo:
        return [*(name for name in STREAMING if name != "kcat"), "java"]
    return [*STREAMING, "java"]


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """CLIENTS_TARGET=reference-zk:3 runs the same clients on another target."""
    spec = os.environ.get("CLIENTS_TARGET", "reference:1")
    with open_target(spec, folder=tmp_path_factory.mktemp("clients")) as target:
        yield target


@pytest.fixture(scope="session")
def tools() -> Tools:
    return shared_tools()


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest, broker: Target) -> Client:
    return new_client(request.param, broker.bootstrap)


@pytest.fixture(params=STREAMING)
def streaming_client(request: pytest.FixtureRequest, broker: Target) -> StreamingClient:
    client = new_client(request.param, broker.bootstrap)
    assert isinstance(client, StreamingClient)
    return client


@pytest.fixture
def topic() -> str:
    """A name that no other test has; the first request for the topic creates it."""
    return f"topic-{next(_numbers)}"


def new_client(name: str, bootstrap: str) -> Client:
    """The client of that name; the test is skipped where it is not on this machine."""
    match name:
        case "confluent-kafka":
            return Confluent(bootstrap)
        case "kafka-python":
            return KafkaPython(bootstrap)
        case "aiokafka":
            return Aiokafka(bootstrap)
        case "kcat":
            try:
                return Kcat(bootstrap, find_kcat())
            except CannotDo as error:
                pytest.skip(str(error))
        case _:
            return JavaConsole(bootstrap, shared_tools())
