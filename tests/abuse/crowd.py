"""Response times of one client beside thousands of unauthenticated connections: `python -m tests.abuse.crowd 5000`.

The crowd, in a process of its own, holds this many connections that never authenticate: some send nothing, some send a TLS
handshake or their first frame byte by byte. One hostile login follows another: with huge tokens, with SCRAM names and nonces of
500 KB, and with wrong passwords. The measured client has authenticated on SASL_SSL and produces one record after the other; after
that new clients log in. The reference and Apache Kafka are measured in one run, in turn, without the crowd and with it;
`crowd.json` has the times.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import resource
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from linearizability.bench.brokers import DEFAULT_BROKER, DEFAULT_HEAP
from linearizability.bench.load import (
    PRODUCE,
    PRODUCE_VERSION,
    LoadConnection,
    check,
    drive_encoded,
    make_batch,
    make_topic,
    produce_body,
)
from linearizability.targets.security import ClientSecurity
from linearizability.targets.wire import Wire, WireError
from reference.protocol.frames import encode_request
from reference.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from reference.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.targets.secured_kafka import USER, Secured, SecuredKafka, SecuredReference

STORE = Path(__file__).with_name("crowd.json")
SECONDS, ROUNDS = 5.0, 3
LISTENERS = ("SASL_SSL", "SASL_PLAINTEXT")
MEASURED = "SASL_SSL"
HELLO = bytes.fromhex("16030100c8010000c40303")
"""How a handshake of TLS begins."""
FRAME = struct.pack(">ihhi", 100, 17, 1, 1)
HOSTILE = {
    "PLAIN": (b"\0" * 500_000, b"\0" + USER.encode() + b"\0guess"),
    "SCRAM-SHA-256": (b"n,,n=" + b"a" * 500_000 + b",r=x", b"n,,n=a,r=" + b"x" * 500_000, b"=" * 500_000),
}


@dataclass
class Served:
    """Response times of the authorized client's requests, and of new clients' logins."""

    requests: int
    p50_ms: float
    p99_ms: float
    logins: int
    slowest_login_ms: float


def attack(ports: dict[str, int], connections: int, ready: Event, stop: Event) -> None:
    """Open and hold the connections, and send hostile logins, until `stop` is set."""
    allow_files()
    with contextlib.ExitStack() as stack:
        crowd = [
            stack.enter_context(socket.create_connection(("127.0.0.1", ports[LISTENERS[at % 2]]), 20))
            for at in range(connections)
        ]
        ready.set()
        for turn in range(10**9):
            if stop.is_set():
                return
            dribble(crowd[turn % 100 :: 100], turn // 100)
            hostile_login(ports["SASL_PLAINTEXT"], turn)


def dribble(some: list[socket.socket], turn: int) -> None:
    """Send the next byte of a frame or of a TLS hello that two of three connections never complete."""
    for at, connection in enumerate(some):
        text = HELLO if at % 2 else FRAME
        if at % 3 and turn < len(text):
            with contextlib.suppress(OSError):
                connection.send(text[turn : turn + 1])


def hostile_login(port: int, turn: int) -> None:
    mechanism = [*HOSTILE][turn % len(HOSTILE)]
    token = HOSTILE[mechanism][turn // len(HOSTILE) % len(HOSTILE[mechanism])]
    with contextlib.suppress(WireError, OSError), Wire.connect("127.0.0.1", port, timeout_s=5) as wire:
        wire.call(SaslHandshakeRequest(mechanism=mechanism), 1)
        wire.call(SaslAuthenticateRequest(auth_bytes=token), 1)


@contextlib.contextmanager
def crowd(ports: dict[str, int], connections: int) -> Iterator[None]:
    context = multiprocessing.get_context("spawn")
    ready, stop = context.Event(), context.Event()
    process = context.Process(target=attack, args=(ports, connections, ready, stop), daemon=True)
    process.start()
    try:
        assert ready.wait(120), "the crowd does not come in"
        yield
        assert process.is_alive(), "the crowd has gone"
    finally:
        stop.set()
        process.join(60)
        process.kill()


def served(target: Secured, seconds: float) -> Served:
    """The response times of a producer on an authenticated connection, and of the logins that follow."""
    security = ClientSecurity.of(target.client(MEASURED, "SCRAM-SHA-256"))
    port = target.ports[MEASURED]
    connection = LoadConnection("localhost", port, security)
    topic = f"served-{time.monotonic_ns()}"
    make_topic(connection, topic)
    body = produce_body(topic, make_batch(1, 100))
    request = encode_request(PRODUCE, PRODUCE_VERSION, 1, "served", body)
    seen = lambda frame: check(PRODUCE, PRODUCE_VERSION, frame)  # noqa: E731
    drive_encoded(connection, request, 1, seen, seconds / 5)
    count, latencies = drive_encoded(connection, request, 1, seen, seconds)
    latencies.sort()
    logins: list[float] = []
    until = time.monotonic() + seconds / 2
    while not logins or time.monotonic() < until:
        began = time.monotonic()
        LoadConnection("localhost", port, security).socket.close()
        logins.append(time.monotonic() - began)
    at = [latencies[len(latencies) * share // 100] / 1e6 for share in (50, 99)]
    return Served(count, round(at[0], 2), round(at[1], 2), len(logins), round(max(logins) * 1000, 1))


def allow_files() -> None:
    """Raise the limit of open files to the hard limit; child processes inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def measure(connections: int) -> dict[str, Any]:
    """Both brokers, in turn: each round without the crowd, and with it."""
    allow_files()
    with contextlib.ExitStack() as stack:
        folders = iter([Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(4)])
        kafka = SecuredKafka(next(folders), next(folders))
        kafka.jvm, kafka.given = DEFAULT_HEAP, dict(DEFAULT_BROKER)
        targets: list[Secured] = [SecuredReference(next(folders), next(folders)), kafka]
        found: dict[str, Any] = {"connections": connections}
        for target in targets:
            stack.enter_context(target)
            found[target.spec] = {"quiet": [], "crowd": []}
        for _ in range(ROUNDS):
            for target in targets:
                found[target.spec]["quiet"].append(asdict(served(target, SECONDS)))
                with crowd(target.ports, connections):
                    found[target.spec]["crowd"].append(asdict(served(target, SECONDS)))
        return found


if __name__ == "__main__":
    results = measure(int(sys.argv[1]))
    STORE.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results))
