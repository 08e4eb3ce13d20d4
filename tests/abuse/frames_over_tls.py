"""Mutated frames over TLS before and during authentication.

`python -m tests.abuse.frames_over_tls 1000000` goes on where it stopped. The trials of `frames`, on a broker's process: each
client makes a TLS handshake or resumes a TLS session, logs in by one of the mechanisms, and requests Metadata in a whole frame.
Most trials damage one or two frames of the login. A client that damaged nothing must be served, and one that did not prove the
right secret must not. The broker answers each frame, or closes the connection. `frames_over_tls.json` has the counts, and each
failure.
"""

from __future__ import annotations

import base64
import json
import socket
import ssl
import sys
import tempfile
from pathlib import Path

from linearizability.targets.security import ClientSecurity, Tunnels
from linearizability.targets.wire import Wire, listed_brokers
from reference.protocol.frames import encode_request
from reference.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from tests.abuse.frames import MECHANISMS, METADATA, Client, Results, Secrets, is_same_proof
from tests.targets.secured_kafka import PASSWORD, SecuredReference

STORE = Path(__file__).with_name("frames_over_tls.json")
STORED_EVERY = 2000
WITHIN_S = 20.0
MESSAGES = {"PLAIN": 1, "OAUTHBEARER": 1}
"""Mechanism -> the number of the client's messages in a whole exchange; two if it is not listed."""
NO_ERROR = b"\0\0\xff\xff"
"""The begin of a SaslAuthenticate response without an error. The server's last message follows: empty, or SCRAM's signature."""
RESUMED = 0.95
"""The share of the clients that resume a session: a handshake in full costs most of a trial's time."""


class PromptReference(SecuredReference):
    """A broker that answers failed logins at once: a campaign has hundreds of thousands of them."""

    def properties(self, member):
        return super().properties(member) | {"connection.failed.authentication.delay.ms": "0"}


class Ground:
    """The broker's listeners, and a client's credentials."""

    def __init__(self, target: SecuredReference) -> None:
        self.target = target
        self.context = ssl.create_default_context(cafile=str(target.secrets / "ca.pem"))
        self.sessions: dict[int, ssl.SSLSession] = {}
        """Port -> a session of TLS that a client may resume."""
        with self.tunnels() as tunnels, Wire.connect(*tunnels.to("localhost", target.ports["SASL_SSL"])) as wire:
            made = wire.call(CreateDelegationTokenRequest(max_lifetime_ms=-1))
        assert made.error_code == 0, made
        self.secrets = Secrets(
            PASSWORD, made.token_id, base64.b64encode(made.hmac).decode(), target.signer.token(ends_in_s=86_400)
        )

    def tunnels(self) -> Tunnels:
        return Tunnels(ClientSecurity.of(self.target.client("SASL_SSL", "SCRAM-SHA-256")))

    def check(self) -> None:
        """Check that another client is served, and that the broker has logged no traceback."""
        with self.tunnels() as tunnels:
            assert listed_brokers(*tunnels.to("localhost", self.target.ports["SASL_SSL"]))
        assert "Traceback" not in self.target.members[0].process.log.read_text()


class OverTls(Client):
    """One trial; a context manager."""

    def __init__(self, ground: Ground, number: int) -> None:
        super().__init__(ground.secrets, number)
        self.name = self.chance.choice(MECHANISMS)
        self.ground = ground
        self.port = ground.target.ports["OAUTH" if self.name == "OAUTHBEARER" else "SASL_SSL"]
        plain = socket.create_connection(("127.0.0.1", self.port), WITHIN_S)
        session = ground.sessions.get(self.port) if self.chance.random() < RESUMED else None
        self.line = ground.context.wrap_socket(plain, server_hostname="localhost", session=session)

    def __enter__(self) -> OverTls:
        return self

    def __exit__(self, *_: object) -> None:
        self.line.close()

    def exchange(self, frame: bytes) -> bytes:
        answer = b""
        try:
            self.line.sendall(len(frame).to_bytes(4) + frame)
            while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4]):
                received = self.line.recv(1 << 16)
                if not received:
                    raise ConnectionError
                answer += received
        except (ConnectionError, ssl.SSLEOFError):
            self.is_closed = True
            return b""
        body = answer[8:]
        self.is_in |= body.startswith(NO_ERROR) and (body[4:8] == bytes(4) or body[8:].startswith(b"v="))
        return body

    def is_served(self) -> bool:
        """Whether a whole request for Metadata is answered."""
        frame = encode_request(METADATA.KEY, 9, self.frames, "abuse", METADATA)[4:]
        self.frames += 1
        served = bool(self.exchange(frame))
        if served and self.line.session is not None:
            self.ground.sessions[self.port] = self.line.session
        return served


def outcome(client: OverTls) -> tuple[str, str]:
    """(end of a client's trial, what is wrong with it or "")."""
    client.log_in(client.name)
    served = not client.is_closed and client.is_served()
    proved = len(client.proofs) >= MESSAGES.get(client.name, 2) and all(is_same_proof(*each) for each in client.proofs)
    if served and not proved:
        return "in", "is let in by a changed message"
    if client.is_whole and not served:
        return "closed", "is not served, and has damaged nothing"
    return ("in" if served else "closed"), ""


def trial(ground: Ground, results: Results) -> None:
    """Run the next trial and count its outcome."""
    number, frames = results.trials, 0
    try:
        with OverTls(ground, number) as client:
            how, why = outcome(client)
            name, frames = client.name, client.frames
    except OSError as error:
        name, how, why = "any", "error", f"{type(error).__name__}: {error}"
    results.trials, results.frames = number + 1, results.frames + frames
    results.outcomes[f"{name} {how}"] += 1
    if why:
        results.failures.append(f"{number}: {name} {why}")


def run(target: SecuredReference, frames: int, results: Results) -> None:
    ground = Ground(target)
    while results.frames < frames:
        trial(ground, results)
        if results.trials % STORED_EVERY == 0:
            ground.check()
            results.write(STORE)
    ground.check()


def main(frames: int) -> None:
    results = Results.read(STORE)
    with tempfile.TemporaryDirectory() as folder, PromptReference(Path(folder), Path(folder)) as target:
        run(target, frames, results)
    results.write(STORE)
    print(json.dumps(results.to_json()))


if __name__ == "__main__":
    main(int(sys.argv[1]))
