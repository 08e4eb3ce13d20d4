"""Huge client certificates and long or deep chains: the handshake refuses them at little cost, and others are served."""

from __future__ import annotations

import datetime
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import NameOID, ObjectIdentifier

from linearizability.targets.security import ClientSecurity, Tunnels
from linearizability.targets.wire import listed_brokers
from tests.targets.secured_kafka import SecuredReference

WITHIN_S = 20.0
ATTEMPTS = 5
MOST_CPU_S = 5.0
"""The CPU time that the broker may use for all bombs together; a quiet machine needs a twentieth of it."""
MOST_BYTES = 64 << 20
"""How much larger the broker may become."""
BEGINS = datetime.datetime(2020, 1, 1)
ENDS = datetime.datetime(2049, 1, 1)
LIMIT_OF_DEPTH = 100
"""OpenSSL's limit of issuers between a client and a trusted authority."""


def name_of(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


@dataclass(frozen=True)
class Issuer:
    """A certificate authority."""

    name: x509.Name
    key: ec.EllipticCurvePrivateKey

    @staticmethod
    def stranger() -> Issuer:
        return Issuer(name_of("stranger"), ec.generate_private_key(ec.SECP256R1()))

    def certificate(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, *extensions: x509.ExtensionType
    ) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder(self.name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(BEGINS)
            .not_valid_after(ENDS)
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(self.key, SHA256())

    def below(self, count: int) -> tuple[Issuer, list[x509.Certificate]]:
        """The last of `count` authorities, each signed by the one before it, and their certificates, the last one first."""
        issuer, chain = self, list[x509.Certificate]()
        for number in range(count):
            key = ec.generate_private_key(ec.SECP256R1())
            name = name_of(f"authority {number}")
            chain.insert(0, issuer.certificate(name, key, x509.BasicConstraints(ca=True, path_length=None)))
            issuer = Issuer(name, key)
        return issuer, chain


Chain = list[x509.Certificate]
Bomb = Callable[[Issuer, ec.EllipticCurvePrivateKey], Chain]
"""From a trusted authority and the client's key to the client's certificate and those that it sends with it."""


def many(trusted: Issuer, key: ec.EllipticCurvePrivateKey) -> Chain:
    """A trusted client certificate, with a megabyte of unrelated authorities behind it."""
    _, others = Issuer.stranger().below(1)
    return [trusted.certificate(name_of("client"), key), *others * 3000]


def deep(trusted: Issuer, key: ec.EllipticCurvePrivateKey) -> Chain:
    """More authorities between the client and the trusted one than OpenSSL follows, in less than its limit of 100 KB."""
    issuer, chain = trusted.below(LIMIT_OF_DEPTH + 50)
    return [issuer.certificate(name_of("client"), key), *chain]


def names(trusted: Issuer, key: ec.EllipticCurvePrivateKey) -> Chain:
    """A client certificate of the trusted authority with 20,000 alternative names."""
    extension = x509.SubjectAlternativeName([x509.DNSName(f"host-{number}.example") for number in range(20_000)])
    return [trusted.certificate(name_of("client"), key, extension)]


def nested(trusted: Issuer, key: ec.EllipticCurvePrivateKey) -> Chain:
    """A stranger's certificate with an extension of 15,000 nested sequences."""
    data = b""
    for _ in range(15_000):
        size = len(data)
        length = bytes([size]) if size < 128 else bytes([0x83]) + size.to_bytes(3, "big")
        data = b"\x30" + length + data
    extension = x509.UnrecognizedExtension(ObjectIdentifier("1.3.6.1.4.1.55555.1"), data)
    return [Issuer.stranger().certificate(name_of("client"), key, extension)]


def subject(trusted: Issuer, key: ec.EllipticCurvePrivateKey) -> Chain:
    """A stranger's certificate whose subject has 2,000 parts."""
    parts = [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, f"unit {number}") for number in range(2000)]
    return [Issuer.stranger().certificate(x509.Name(parts), key)]


BOMBS: tuple[Bomb, ...] = (many, deep, names, nested, subject)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredReference]:
    with SecuredReference(tmp_path_factory.mktemp("broker"), tmp_path_factory.mktemp("secrets")) as opened:
        yield opened
        assert "Traceback" not in opened.members[0].process.log.read_text()


def trusted_by(secured: SecuredReference) -> Issuer:
    """The authority whose clients the listener MUTUAL lets in."""
    key = load_pem_private_key(secured.authority.private_key_pem.bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return Issuer(x509.load_pem_x509_certificate(secured.authority.cert_pem.bytes()).subject, key)


def client(secured: SecuredReference, chain: Chain, key: ec.EllipticCurvePrivateKey, folder: Path) -> ssl.SSLContext:
    """A client that shows this chain."""
    stored = folder / "client.pem"
    own = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    stored.write_bytes(own + b"".join(each.public_bytes(Encoding.PEM) for each in chain))
    context = ssl.create_default_context(cadata=secured.authority.cert_pem.bytes().decode())
    context.load_cert_chain(stored)
    return context


def gets_in(secured: SecuredReference, context: ssl.SSLContext) -> bool:
    """Whether ApiVersions is answered: a client of TLS 1.3 learns of a refusal when it reads."""
    try:
        with (
            socket.create_connection(("127.0.0.1", secured.ports["MUTUAL"]), WITHIN_S) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as tls,
        ):
            tls.sendall(bytes.fromhex("0000000c 0012 0000 00000007 0002 6162"))
            return tls.recv(4) != b""
    except (ssl.SSLError, ConnectionError):
        return False


def process_of(secured: SecuredReference) -> int:
    process = secured.members[0].process.pid
    assert process is not None
    return process


def used_s(pid: int) -> float:
    """The CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_client_of_the_trusted_authority_gets_in(secured: SecuredReference, tmp_path: Path) -> None:
    """Without this the refusals of the other test would prove nothing. Also a client with five authorities between gets in."""
    key = ec.generate_private_key(ec.SECP256R1())
    for count in (0, 5):
        issuer, chain = trusted_by(secured).below(count)
        shown = [issuer.certificate(name_of("client"), key), *chain]
        assert gets_in(secured, client(secured, shown, key, tmp_path))


def test_bombs_are_refused_at_little_cost(secured: SecuredReference, tmp_path: Path) -> None:
    key, process = ec.generate_private_key(ec.SECP256R1()), process_of(secured)
    trusted = trusted_by(secured)
    contexts = {bomb.__name__: client(secured, bomb(trusted, key), key, tmp_path) for bomb in BOMBS}
    used, size = used_s(process), resident_bytes(process)
    let_in = [name for name, context in contexts.items() for _ in range(ATTEMPTS) if gets_in(secured, context)]
    assert let_in == []
    assert used_s(process) - used < MOST_CPU_S
    assert resident_bytes(process) - size < MOST_BYTES
    with Tunnels(ClientSecurity.of(secured.client("SSL"))) as tunnels:
        assert listed_brokers(*tunnels.to("localhost", secured.ports["SSL"]))
