"""A tunnel authenticates its connections again before the broker ends their sessions (KIP-368)."""

import random
import time

import pytest

from linearizability.targets.security import ClientSecurity, Tunnels, session
from linearizability.targets.security.session import Frames
from linearizability.targets.wire import Wire, WireError
from reference.protocol.messages.metadata import MetadataRequest
from tests.targets.secured_kafka import SecuredKafka

SESSION_MS = 3000


def test_frames_end_wherever_the_stream_is_cut():
    draw = random.Random(1)
    sizes = [0, 1, 4, 5, 900, 3]
    stream = b"".join(size.to_bytes(4) + bytes(size) for size in sizes)
    ends = [sum(4 + one for one in sizes[: count + 1]) for count in range(len(sizes))]
    for _ in range(200):
        frames, at, seen = Frames(), 0, []
        while at < len(stream):
            at += frames.take(stream[at : at + draw.randrange(1, 40)])
            if frames.are_complete:
                seen.append(at)
        assert seen == ends


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    folders = tmp_path_factory.mktemp("kafka"), tmp_path_factory.mktemp("secrets")
    with SecuredKafka(*folders, session_ms=SESSION_MS) as broker:
        yield broker


def ask_until(wire: Wire, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert wire.call(MetadataRequest(topics=None)).brokers
        time.sleep(0.05)


@pytest.mark.kafka
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_connection_outlives_its_sessions_busy_or_idle(kafka, mechanism):
    with Tunnels(ClientSecurity.of(kafka.client("SASL_SSL", mechanism))) as tunnels:
        address = tunnels.to("localhost", kafka.ports["SASL_SSL"])
        with Wire.connect(*address) as busy, Wire.connect(*address) as idle:
            ask_until(idle, 0)
            ask_until(busy, 2.5 * SESSION_MS / 1000)
            ask_until(idle, 0.2)


@pytest.mark.kafka
def test_without_that_the_broker_ends_the_connection(kafka, monkeypatch):
    monkeypatch.setattr(session, "RENEWED_AFTER", 100)
    with Tunnels(ClientSecurity.of(kafka.client("SASL_SSL", "PLAIN"))) as tunnels:
        address = tunnels.to("localhost", kafka.ports["SASL_SSL"])
        with Wire.connect(*address) as wire, pytest.raises(WireError):
            ask_until(wire, 5 * SESSION_MS / 1000)
