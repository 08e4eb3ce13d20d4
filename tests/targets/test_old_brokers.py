"""Brokers that are older than ApiVersions (0.8.2): found ready, and asked in the versions that they serve."""

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from linearizability.targets.wire import BEFORE_VERSIONS, Wire, WireError, answers, known_brokers
from linearizability.workload.librdkafka import connection_settings, reports_versions
from reference.protocol.frames import encode_response
from reference.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.protocol.frame import frame_of

METADATA, NODE = MetadataRequest.KEY, 7


def serve(listener: socket.socket, *, metadata: bool) -> None:
    """Close the connection at every request; answer Metadata v0 if so."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            while size := connection.recv(4):
                request = connection.recv(struct.unpack(">i", size)[0])
                key, version, correlation = struct.unpack(">hhi", request[:8])
                if not (metadata and (key, version) == (METADATA, 0)):
                    break
                broker = MetadataResponse.MetadataResponseBroker(node_id=NODE, host="here", port=1)
                answer = encode_response(METADATA, 0, correlation, MetadataResponse(brokers=[broker]))
                connection.sendall(frame_of(answer))


@pytest.fixture(params=[True, False])
def broker(request: pytest.FixtureRequest) -> Iterator[tuple[str, int, bool]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), kwargs={"metadata": request.param}, daemon=True).start()
        yield *listener.getsockname()[:2], request.param
        listener.shutdown(socket.SHUT_RDWR)


def test_a_broker_that_closes_at_api_versions_is_old_if_it_answers_metadata(broker: tuple[str, int, bool]) -> None:
    host, port, is_old = broker
    assert answers(host, port) is is_old
    assert known_brokers(host, port) == ({NODE} if is_old else set())
    settings = connection_settings(f"{host}:{port}", "test")
    assert settings.get("broker.version.fallback") == ("0.8.2.2" if is_old else None)
    assert reports_versions(f"{host}:{port}") is not is_old
    with Wire.connect(host, port) as wire:
        if is_old:
            assert wire.versions() == BEFORE_VERSIONS
            assert not wire.reports_versions
        else:
            with pytest.raises(WireError):
                wire.versions()
