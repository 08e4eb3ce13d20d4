"""Mutated frames before and during authentication, many of them: `python -m tests.abuse.frames 1000000` goes on where it stopped.

Each trial is a client on a SASL listener: it may send ApiVersions, then SaslHandshake and the mechanism's messages with valid
credentials. Most trials damage one or two of these frames. The node must raise no exception, answer only SASL's APIs and
ApiVersions before authentication, and authenticate only a client whose messages still prove the right secret. Here the node is in
this process; `frames_over_tls` sends such frames to a broker's process, and `records` damages TLS records. A trial is drawn by
its number; `frames.json` has the counts, and each failure.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import json
import random
import sys
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from reference.controller.image import Endpoint
from reference.node.effects import Authenticated, Close, Respond
from reference.node.identity import Identity
from reference.node.node import Node
from reference.node.sasl_mechanisms import HASHES, NAMES, credential
from reference.protocol.frames import encode_request
from reference.protocol.messages.api_versions import ApiVersionsRequest
from reference.protocol.messages.delegation_token_record import DelegationTokenRecord
from reference.protocol.messages.metadata import MetadataRequest
from reference.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from reference.protocol.messages.sasl_handshake import SaslHandshakeRequest
from reference.protocol.primitives import NodeId, TimestampMs
from reference.security.signed_tokens import KeySet
from reference.storage.log_directory import LogDirectory
from reference.storage.log_manager import LogManager
from reference.storage.simulated_disk import SimulatedDisk
from tests.targets.secured_kafka import AUDIENCE, LOGIN, USER, Signer, key_set

STORE = Path(__file__).with_name("frames.json")
STORED_EVERY = 20_000
NOW = TimestampMs(1_800_000_000_000)
FAR = NOW + 10**9
PASSWORD, SALT, TOKEN_ID, SECRET = "of the abused", b"salt of the abused", "token-of-the-abused", "of the cluster"
LISTENER, CONNECTION = "SASL_PLAINTEXT", 1
METADATA = MetadataRequest(topics=[])
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "token", "OAUTHBEARER")
BEFORE_AUTHENTICATION = (SaslHandshakeRequest.KEY, ApiVersionsRequest.KEY, SaslAuthenticateRequest.KEY)
_OWN = f"listener.name.{LISTENER.lower()}."
PROPERTIES = {
    "listener.security.protocol.map": f"{LISTENER}:{LISTENER}",
    "delegation.token.secret.key": SECRET,
    "connection.failed.authentication.delay.ms": "0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    f"{_OWN}plain.sasl.jaas.config": f'{LOGIN}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
    **{f"{_OWN}{name.lower()}.sasl.jaas.config": f"{LOGIN}.scram.ScramLoginModule required;" for name in HASHES},
    f"{_OWN}oauthbearer.sasl.jaas.config": f"{LOGIN}.oauthbearer.OAuthBearerLoginModule required;",
    f"{_OWN}oauthbearer.sasl.server.callback.handler.class": f"{LOGIN}.oauthbearer.OAuthBearerValidatorCallbackHandler",
    f"{_OWN}oauthbearer.sasl.oauthbearer.jwks.endpoint.url": "http://localhost/",
    f"{_OWN}oauthbearer.sasl.oauthbearer.expected.audience": AUDIENCE,
}


@dataclass(frozen=True)
class Secrets:
    """The credentials of USER."""

    password: str
    token_id: str
    token_hmac: str
    """The delegation token's HMAC in base64."""
    signed_token: str


class Ground:
    """A node with a user, a delegation token and a key for signed tokens."""

    def __init__(self) -> None:
        disk = SimulatedDisk()
        disk.make_folder(Path("/data"))
        directory = LogDirectory(disk, Path("/data"), id=uuid.UUID(int=4711))
        identity = Identity(
            NodeId(1), "abused-cluster-id-0000", uuid.UUID(int=2), (Endpoint(LISTENER, "127.0.0.1", 9092),)
        )
        self.node = Node(identity, PROPERTIES, LogManager([directory]), random.Random(0), NOW)
        for number, name in NAMES.items():
            salted = salted_password(HASHES[name], PASSWORD, SALT)
            self.node.image.apply(credential(USER, number, SALT, 4096, salted))
        self.node.image.apply(
            DelegationTokenRecord(owner=f"User:{USER}", max_timestamp=FAR, expiration_timestamp=FAR, token_id=TOKEN_ID)
        )
        signer = Signer("1")
        self.node.take_keys(LISTENER, KeySet.read(key_set(signer)))
        hmac_of_token = base64.b64encode(hmac.digest(SECRET.encode(), TOKEN_ID.encode(), "sha512")).decode()
        self.secrets = Secrets(PASSWORD, TOKEN_ID, hmac_of_token, signer.token(iat=NOW // 1000 - 10, exp=FAR // 1000))


@functools.cache
def salted_password(hash_name: str, password: str, salt: bytes) -> bytes:
    return hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, 4096)


@dataclass
class Results:
    """The results of the trials so far."""

    trials: int = 0
    frames: int = 0
    outcomes: Counter[str] = field(default_factory=Counter[str])
    failures: list[str] = field(default_factory=list[str])

    @staticmethod
    def read(store: Path) -> Results:
        known = json.loads(store.read_text()) if store.exists() else {}
        return Results(
            known.get("trials", 0),
            known.get("frames", 0),
            Counter(known.get("outcomes", {})),
            known.get("failures", []),
        )

    def write(self, store: Path) -> None:
        store.write_text(json.dumps(self.to_json(), indent=1) + "\n")

    def to_json(self) -> dict[str, Any]:
        return {"trials": self.trials, "frames": self.frames, "outcomes": dict(sorted(self.outcomes.items())), "failures": self.failures}  # fmt: skip


class Client(ABC):
    """One trial's connection, with its requests and the node's responses."""

    def __init__(self, secrets: Secrets, number: int) -> None:
        self.secrets, self.chance = secrets, random.Random(number)
        self.damages = self.chance.choice((0, 1, 1, 1, 2))
        self.is_whole = True
        """Whether no frame was damaged."""
        self.frames, self.is_closed, self.is_in = 0, False, False
        self.proofs: list[tuple[bytes, bytes]] = []
        """(right message, sent message) for each message of the mechanism."""

    @abstractmethod
    def exchange(self, frame: bytes) -> bytes:
        """Send a frame; return the response's body, empty if there is none."""

    def ask(self, request: Any, version: int) -> bytes:
        """Send a request, perhaps damaged; return the response's body."""
        frame = bytearray(encode_request(request.KEY, version, self.frames, "abuse", request)[4:])
        right = bytes(getattr(request, "auth_bytes", b""))
        at_secret = frame.find(right) if right else 0
        if self.damages and self.chance.random() < 0.5:
            self.damages, self.is_whole = self.damages - 1, False
            damage(frame, self.chance, at_secret if self.chance.random() < 0.7 else 0)
        if right:
            self.proofs.append(
                (right, bytes(frame)[at_secret : at_secret + len(right)] if len(frame) >= at_secret else b"")
            )
        self.frames += 1
        return self.exchange(bytes(frame))

    def log_in(self, name: str) -> None:
        """Send ApiVersions (in half of the trials), SaslHandshake, and the messages of the mechanism."""
        if self.chance.random() < 0.5:
            self.ask(ApiVersionsRequest(), self.chance.choice((0, 2)))
        mechanism = "SCRAM-SHA-256" if name == "token" else name
        self.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
        if name == "PLAIN":
            self.authenticate(f"\0{USER}\0{self.secrets.password}".encode())
        elif name == "OAUTHBEARER":
            self.authenticate(f"n,,\x01auth=Bearer {self.secrets.signed_token}\x01\x01".encode())
            if not self.is_in and not self.is_closed:
                self.authenticate(b"\x01")
        else:
            self.scram(HASHES[mechanism], is_token=name == "token")

    def scram(self, hash_name: str, *, is_token: bool) -> None:
        user = self.secrets.token_id if is_token else USER
        bare = f"n={user},r=abused{',tokenauth=true' if is_token else ''}"
        answer = self.authenticate(f"n,,{bare}".encode())
        start, end = answer.find(b"r="), answer.find(b",i=4096")
        if start < 0 or end < 0 or self.is_closed:
            return
        first = answer[start : end + 7].decode(errors="replace")
        parts = dict(each.split("=", 1) for each in first.split(",") if "=" in each)
        password = self.secrets.token_hmac if is_token else self.secrets.password
        salted = salted_password(hash_name, password, base64.b64decode(parts.get("s", "")))
        key = hmac.digest(salted, b"Client Key", hash_name)
        unproved = f"c=biws,r={parts.get('r')}"
        signature = hmac.digest(hashlib.new(hash_name, key).digest(), f"{bare},{first},{unproved}".encode(), hash_name)
        proof = bytes(one ^ other for one, other in zip(key, signature, strict=True))
        self.authenticate(f"{unproved},p={base64.b64encode(proof).decode()}".encode())

    def authenticate(self, message: bytes) -> bytes:
        return (
            b"" if self.is_closed else self.ask(SaslAuthenticateRequest(auth_bytes=message), self.chance.choice((0, 1)))
        )


class InMemory(Client):
    """A client of the node in this process."""

    def __init__(self, ground: Ground, number: int) -> None:
        super().__init__(ground.secrets, number)
        self.node = ground.node
        self.node.connected(CONNECTION, "127.0.0.1", LISTENER)

    def exchange(self, frame: bytes) -> bytes:
        self.node.receive(CONNECTION, frame, NOW)
        answer = b""
        for effect in self.node.take_effects():
            if isinstance(effect, Close):
                self.is_closed = True
            elif isinstance(effect, Authenticated):
                self.is_in = True
            elif isinstance(effect, Respond) and effect.parts:
                answer = b"".join(bytes(cast(bytes, part)) for part in effect.parts)[8:]
                key = int.from_bytes(frame[:2])
                assert self.is_in or key in BEFORE_AUTHENTICATION, f"API {key} is answered before authentication"
        return answer


def damage(frame: bytearray, chance: random.Random, least: int) -> None:
    """A bit flipped, a byte changed, bytes cut, put in or written twice, at `least` or later; or noise."""
    at = chance.randrange(min(least, len(frame) - 1), len(frame))
    match chance.randrange(6):
        case 0:
            frame[at] ^= 1 << chance.randrange(8)
        case 1:
            frame[at] = chance.randrange(256)
        case 2:
            del frame[at : at + chance.randint(1, 8)]
        case 3:
            frame[at:at] = chance.randbytes(chance.randint(1, 64))
        case 4:
            frame[at:at] = frame[at : at + chance.randint(1, 32)]
        case _:
            frame[:] = chance.randbytes(chance.randint(0, 64))


def is_same_proof(right: bytes, sent: bytes) -> bool:
    """Whether a message proves the same as the right one: in base64 the last bits of some texts have no meaning."""
    if right == sent or len(right) != len(sent):
        return right == sent
    where = next(at for at in range(len(right)) if right[at] != sent[at])
    is_last_digit = right[where + 1 :].strip(b"=\x01") == b"" and right[where + 1 :] == sent[where + 1 :]
    is_case_of_scheme = (
        right[:where].startswith(b"n,,\x01auth=")
        and right.lower() == sent.lower()
        and where < len(b"n,,\x01auth=Bearer")
    )
    return is_last_digit or is_case_of_scheme


def trial(ground: Ground, number: int, results: Results) -> None:
    """Run one trial and count its outcome."""
    client = InMemory(ground, number)
    why = ""
    try:
        name = client.chance.choice(MECHANISMS)
        client.log_in(name)
        if client.is_in and not all(is_same_proof(*each) for each in client.proofs):
            why = f"{name} is let in by a changed message"
        before = client.is_in
        served = not client.is_closed and bool(client.ask(METADATA, 9))
        if served and not before:
            why = f"Metadata is answered before authentication by {name}"
        outcome = "in" if before else "closed" if client.is_closed else "waits"
    except Exception as error:
        name, outcome, why = "any", "error", f"{type(error).__name__}: {error}"
    finally:
        ground.node.disconnected(CONNECTION)
        ground.node.take_effects()
    results.trials, results.frames = number + 1, results.frames + client.frames
    results.outcomes[f"{name} {outcome}"] += 1
    if why:
        results.failures.append(f"{number}: {why}")


def run(frames: int, results: Results) -> None:
    ground = Ground()
    while results.frames < frames:
        trial(ground, results.trials, results)
        if results.trials % STORED_EVERY == 0:
            results.write(STORE)


if __name__ == "__main__":
    found = Results.read(STORE)
    run(int(sys.argv[1]), found)
    found.write(STORE)
    print(json.dumps(found.to_json()))
