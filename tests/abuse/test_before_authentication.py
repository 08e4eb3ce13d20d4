"""Requests before authentication: only SASL's APIs and ApiVersions are answered, and the broker goes on to serve others."""

from __future__ import annotations

import contextlib
import random
import shutil
import socket
import ssl
import struct
import subprocess
from collections.abc import Iterator

import pytest

from linearizability.targets.security import ClientSecurity, Tunnels
from linearizability.targets.wire import Wire, WireClosed, listed_brokers
from reference.protocol.frames import encode_request
from reference.protocol.messages.api_versions import ApiVersionsRequest
from reference.protocol.messages.metadata import MetadataRequest
from reference.protocol.messages.produce import ProduceRequest
from reference.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from reference.protocol.messages.sasl_handshake import SaslHandshakeRequest
from reference.protocol.schema import Message
from tests.abuse.broker import Broker
from tests.targets.secured_kafka import PASSWORD, USER, SecuredReference

SEED = 20261125
CONVERSATIONS = 1000
MAX_RECEIVE_BYTES = 524_288
MIB = 1 << 20
WITHIN_S = 20.0

GOOD: tuple[tuple[Message, int], ...] = (
    (ApiVersionsRequest(), 0),
    (ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4),
    (SaslHandshakeRequest(mechanism="PLAIN"), 0),
    (SaslHandshakeRequest(mechanism="PLAIN"), 1),
    (SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1),
    (SaslAuthenticateRequest(auth_bytes=b"\0stranger\0guess"), 2),
    (SaslAuthenticateRequest(auth_bytes=f"n,,n={USER},r=stranger".encode()), 1),
    (SaslAuthenticateRequest(auth_bytes=b"c=biws,r=stranger,p=AAAA"), 0),
    (MetadataRequest(topics=[]), 12),
    (ProduceRequest(acks=0, timeout_ms=1), 9),
)
FORBIDDEN = frozenset({MetadataRequest.KEY, ProduceRequest.KEY})


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredReference]:
    with SecuredReference(tmp_path_factory.mktemp("broker"), tmp_path_factory.mktemp("secrets")) as opened:
        yield opened
        log = (opened.members[0].folder / "node.log").read_text()
        assert "Traceback" not in log, log[log.index("Traceback") :][:3000]
        assert PASSWORD not in log


def well_behaved(secured: SecuredReference) -> None:
    """Another client authenticates and is served."""
    with Tunnels(ClientSecurity.of(secured.client("SASL_SSL", "SCRAM-SHA-256"))) as tunnels:
        assert listed_brokers(*tunnels.to("localhost", secured.ports["SASL_SSL"]))


def connect(secured: SecuredReference, listener: str) -> socket.socket:
    raw = socket.create_connection(("127.0.0.1", secured.ports[listener]), WITHIN_S)
    if listener == "SASL_PLAINTEXT":
        return raw
    context = ssl.create_default_context(cafile=str(secured.secrets / "ca.pem"))
    return context.wrap_socket(raw, server_hostname="localhost")


def damaged_requests(chance: random.Random) -> list[bytes]:
    """A few requests, most of them damaged."""
    rows: list[bytes] = []
    for number in range(chance.randint(1, 4)):
        request, version = chance.choice(GOOD)
        data = bytearray(encode_request(request.KEY, version, number, "stranger", request))
        for _ in range(chance.choice((0, 0, 1, 3))):
            data[chance.randrange(4, len(data))] = chance.randrange(256)
        if chance.random() < 0.1:
            data[: chance.randint(1, 4)] = chance.randbytes(chance.randint(0, 4))
        rows.append(bytes(data))
    return rows


def answers(connection: socket.socket, *, may_stay_open: bool = False) -> bytes:
    """All bytes that the broker sends until it closes. A connection that may stay open is read until its timeout.

    Errors: TimeoutError where the broker neither sends nor closes.
    """
    found = bytearray()
    try:
        while data := connection.recv(1 << 16):
            found += data
    except TimeoutError:
        if not may_stay_open:
            raise
    except (ConnectionError, ssl.SSLError):
        pass
    return bytes(found)


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_no_request_of_a_stranger_is_served(secured: SecuredReference, listener: str) -> None:
    """No response has the correlation id of a Metadata or Produce request."""
    chance = random.Random(f"{SEED} {listener}")
    count = CONVERSATIONS if listener == "SASL_PLAINTEXT" else CONVERSATIONS // 10
    for _ in range(count):
        with connect(secured, listener) as connection:
            sent = damaged_requests(chance)
            for data in sent:
                try:
                    connection.sendall(data)
                except (ConnectionError, ssl.SSLError):
                    break
            if isinstance(connection, ssl.SSLSocket):
                connection.settimeout(0.2)
            else:
                with contextlib.suppress(OSError):  # it may be closed already
                    connection.shutdown(socket.SHUT_WR)
            received = answers(connection, may_stay_open=True)  # an incomplete frame waits for its rest
        served = forbidden_answers(received, sent)
        assert not served, (served, sent)
    well_behaved(secured)


def forbidden_answers(received: bytes, sent: list[bytes]) -> set[int]:
    """The correlation ids of responses to requests that only an authenticated client may send."""
    numbers: dict[bool, set[int]] = {True: set(), False: set()}
    for data in sent:
        key, _, number = struct.unpack_from(">hhi", data.ljust(12, b"\0"), 4)
        numbers[key in FORBIDDEN].add(number)
    found: set[int] = set()
    at = 0
    while at + 8 <= len(received):
        size, number = struct.unpack_from(">ii", received, at)
        if size < 4:
            break
        found.add(number)
        at += 4 + size
    return found & (numbers[True] - numbers[False])


def test_a_frame_before_authentication_is_bounded_and_one_after_it_is_not(secured: SecuredReference) -> None:
    with connect(secured, "SASL_PLAINTEXT") as connection:
        connection.sendall(struct.pack(">i", MAX_RECEIVE_BYTES + 1))
        assert answers(connection) == b""
    with Wire.connect("127.0.0.1", secured.ports["SASL_PLAINTEXT"]) as wire:
        assert wire.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
        token = f"\0{USER}\0{PASSWORD}".encode()
        assert wire.call(SaslAuthenticateRequest(auth_bytes=token), 2).error_code == 0
        names = [MetadataRequest.MetadataRequestTopic(name=f"{'n' * 200}{number}") for number in range(4000)]
        assert len(wire.call(MetadataRequest(topics=names, allow_auto_topic_creation=False), 9).topics) == 4000


def test_many_who_do_not_authenticate_cost_little(secured: SecuredReference) -> None:
    node = Broker(secured)
    before = node.rss_bytes()
    connections = [connect(secured, "SASL_PLAINTEXT") for _ in range(400)]
    connections += [socket.create_connection(("127.0.0.1", secured.ports["SSL"]), WITHIN_S) for _ in range(400)]
    try:
        for connection in connections:
            connection.sendall(b"\x16\x03\x01\x02")  # the beginning of TLS, and of a frame that is too large
        well_behaved(secured)
        assert node.rss_bytes() - before < 100 * MIB
    finally:
        for connection in connections:
            connection.close()
    well_behaved(secured)


def test_a_huge_token_and_a_bomb_are_refused(secured: SecuredReference) -> None:
    for token in (b"n,,n=" + b"a" * 500_000 + b",r=x", b"n,,n=a,r=" + b"x" * 500_000, b"\0" * 500_000, b"=" * 500_000):
        with Wire.connect("127.0.0.1", secured.ports["SASL_PLAINTEXT"], timeout_s=WITHIN_S) as wire:
            assert wire.call(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1).error_code == 0
            assert wire.call(SaslAuthenticateRequest(auth_bytes=token), 2).error_code == 58
            with pytest.raises((WireClosed, OSError)):
                wire.call(MetadataRequest(topics=[]), 9)
    well_behaved(secured)


def test_a_message_behind_a_failed_one_is_not_read(secured: SecuredReference) -> None:
    """The right password behind a wrong one, and Metadata behind it, get no response: only the ids 0 and 1 are answered."""
    with connect(secured, "SASL_PLAINTEXT") as connection:
        rows = [(SaslHandshakeRequest(mechanism="PLAIN"), 1), (SaslAuthenticateRequest(auth_bytes=b"\0a\0b"), 2)]
        rows += [
            (SaslAuthenticateRequest(auth_bytes=f"\0{USER}\0{PASSWORD}".encode()), 2),
            (MetadataRequest(topics=[]), 9),
        ]
        connection.sendall(
            b"".join(encode_request(each.KEY, version, at, "s", each) for at, (each, version) in enumerate(rows))
        )
        received = answers(connection)
    answered: list[int] = []
    while received:
        size, correlation_id = struct.unpack_from(">ii", received)
        answered.append(correlation_id)
        received = received[4 + size :]
    assert answered in ([0, 1], [0])  # the close resets the connection, which may lose the refusal


@pytest.mark.skipif(shutil.which("openssl") is None, reason="Python's own TLS cannot ask for a renegotiation")
def test_a_renegotiation_ends_the_connection(secured: SecuredReference) -> None:
    where, authority = f"localhost:{secured.ports['SASL_SSL']}", str(secured.secrets / "ca.pem")
    command = ["openssl", "s_client", "-tls1_2", "-connect", where, "-CAfile", authority, "-verify_return_error"]
    done = subprocess.run(command, input="R\n", capture_output=True, text=True, timeout=WITHIN_S, check=False)
    said = done.stdout + done.stderr
    assert "RENEGOTIATING" in said and "Verify return code: 0 (ok)" in said
    assert done.returncode and "no renegotiation" in said, said
    well_behaved(secured)
