"""Mutated records of TLS, many of them: `python -m tests.abuse.records 40000` goes on where it stopped.

Each trial is a client that makes a TLS handshake with a broker's process, logs in by PLAIN and requests Metadata. One of its
flights is damaged, and is the last: the broker must not answer it as if it were whole, and must serve others. Damaged frames in
whole records are tested by `frames`. A trial is drawn by its number; `records.json` has the counts, and each failure.
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
import ssl
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path

from linearizability.targets.security import ClientSecurity, Tunnels
from linearizability.targets.wire import listed_brokers
from reference.protocol.frames import encode_request
from reference.protocol.messages.metadata import MetadataRequest
from reference.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from reference.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.abuse.frames import damage
from tests.targets.secured_kafka import PASSWORD, USER, SecuredReference

STORE = Path(__file__).with_name("records.json")
STORED_EVERY = 2000
WITHIN_S = 20.0
LISTENER = "SASL_SSL"
REQUESTS = tuple(
    encode_request(request.KEY, version, number, "abuse", request)
    for number, (request, version) in enumerate(
        (
            (SaslHandshakeRequest(mechanism="PLAIN"), 1),
            (SaslAuthenticateRequest(auth_bytes=f"\0{USER}\0{PASSWORD}".encode()), 2),
            (MetadataRequest(topics=[]), 9),
        )
    )
)
FLIGHTS = 2 + len(REQUESTS)
"""The client's hello, the end of its handshake, and the requests."""


@dataclass
class Results:
    """The results of the trials so far."""

    trials: int = 0
    flights: int = 0
    outcomes: dict[str, int] = field(default_factory=dict[str, int])
    failures: list[str] = field(default_factory=list[str])


class Client:
    """One trial: TLS without a socket, so that the sent bytes can be changed."""

    def __init__(self, port: int, context: ssl.SSLContext, number: int) -> None:
        self.chance = random.Random(number)
        self.socket = socket.create_connection(("127.0.0.1", port), WITHIN_S)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self.damaged = self.chance.randrange(FLIGHTS + 1)
        """The number of the damaged flight; FLIGHTS if none is damaged."""
        self.flights, self.is_damaged, self.is_whole = 0, False, True

    def send(self) -> bool:
        """Send the next flight. Returns False if it was damaged: then it is the last one."""
        flight = self.outgoing.read()
        sent = bytearray(flight)
        if self.flights == self.damaged:
            damage(sent, self.chance, 0)
            self.is_damaged = bytes(sent) != flight
            self.is_whole = bytes(sent[: len(flight)]) == flight  # what follows may be damaged
        self.flights += 1
        self.socket.sendall(sent)
        if self.is_damaged:
            with contextlib.suppress(OSError):  # the broker has closed already
                self.socket.shutdown(socket.SHUT_WR)
        return not self.is_damaged

    def receive(self) -> bool:
        """Pass received bytes to TLS. Returns False at the end of the stream."""
        data = self.socket.recv(1 << 16)
        if data:
            self.incoming.write(data)
        return bool(data)

    def shake_hands(self) -> bool:
        while True:
            try:
                self.tls.do_handshake()
                return self.send()
            except ssl.SSLWantReadError:
                if self.outgoing.pending and not self.send():
                    return False
                if not self.receive():
                    return False

    def answer(self) -> bytes:
        """One answer of the broker; empty where none comes."""
        found = b""
        while len(found) < 4 or len(found) < 4 + int.from_bytes(found[:4], "big"):
            try:
                piece = self.tls.read(1 << 16)
                if not piece:  # the broker has said that it sends no more
                    return b""
                found += piece
            except ssl.SSLWantReadError:
                if not self.receive():
                    return b""
            except ssl.SSLError:
                return b""
        return found

    def run(self) -> str:
        """Run the trial, and return its outcome."""
        with self.socket, contextlib.suppress(ConnectionError, ssl.SSLError):
            if not self.shake_hands():
                while self.receive():
                    pass
                return "refused in the handshake"
            for request in REQUESTS:
                self.tls.write(request)
                goes_on, is_answered = self.send(), bool(self.answer())
                assert self.is_whole or not is_answered, "a damaged record is answered"
                if not goes_on:
                    return "refused with a request"
                if not is_answered:
                    break
            else:
                return "served"
        assert self.is_damaged, "a client that did nothing wrong is not served"
        return "reset"


def trial(target: SecuredReference, context: ssl.SSLContext, results: Results) -> None:
    """Run the next trial and count its outcome."""
    client = Client(target.ports[LISTENER], context, results.trials)
    try:
        outcome = client.run()
        results.outcomes[outcome] = results.outcomes.get(outcome, 0) + 1
    except (AssertionError, TimeoutError) as failure:
        results.failures.append(f"{results.trials}: {str(failure) or type(failure).__name__}")
    results.trials, results.flights = results.trials + 1, results.flights + client.flights


def run(target: SecuredReference, flights: int, results: Results) -> None:
    """Run trials up to this number of flights. Then another client must be served, and the log must have no traceback."""
    context = ssl.create_default_context(cafile=str(target.secrets / "ca.pem"))
    while results.flights < flights:
        trial(target, context, results)
        if results.trials % STORED_EVERY == 0:
            STORE.write_text(json.dumps(asdict(results), indent=1) + "\n")
    with Tunnels(ClientSecurity.of(target.client(LISTENER, "SCRAM-SHA-256"))) as tunnels:
        assert listed_brokers(*tunnels.to("localhost", target.ports[LISTENER]))
    assert "Traceback" not in target.members[0].process.log.read_text()


def load() -> Results:
    return Results(**json.loads(STORE.read_text())) if STORE.exists() else Results()


def main(flights: int) -> None:
    results = load()
    with tempfile.TemporaryDirectory() as folder, SecuredReference(Path(folder), Path(folder)) as target:
        run(target, flights, results)
    STORE.write_text(json.dumps(asdict(results), indent=1) + "\n")
    print(json.dumps(asdict(results)))


if __name__ == "__main__":
    main(int(sys.argv[1]))
