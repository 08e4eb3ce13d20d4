"""TLS contexts by Kafka's properties: where keys come from, who must show a certificate, and what is refused by name."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from reference.runtime.tls import RenewedContext, client_auth, server_context
from reference.security.errors import WrongSecurity
from reference.security.tls_stores import stores_of

AUTHORITY = trustme.CA()
CERTIFICATE = AUTHORITY.issue_cert("localhost")
KEY = load_pem_private_key(CERTIFICATE.private_key_pem.bytes(), None)
CHAIN = b"".join(each.bytes() for each in CERTIFICATE.cert_chain_pems).decode()
PKCS8 = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
MAP = {"listener.security.protocol.map": "SSL:SSL,S:SASL_SSL"}
INLINE = {
    **MAP,
    "ssl.keystore.type": "PEM",
    "ssl.keystore.key": PKCS8.replace("\n", " "),
    "ssl.keystore.certificate.chain": CHAIN.replace("\n", " "),
}
"""A properties file has each in one line."""
NO_KEY = {"ssl.keystore.key": "", "ssl.keystore.certificate.chain": ""}


def shake_hands(context: ssl.SSLContext, client: ssl.SSLContext) -> str | None:
    """Let both sides shake hands in this process; the version of TLS that they agree on. Errors: ssl.SSLError."""
    one, other = ssl.MemoryBIO(), ssl.MemoryBIO()
    server, asker = (
        context.wrap_bio(one, other, server_side=True),
        client.wrap_bio(other, one, server_hostname="localhost"),
    )
    for _ in range(5):
        for side in (asker, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return server.version()


def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cadata=AUTHORITY.cert_pem.bytes().decode())


def test_keys_may_stand_in_the_file_and_old_versions_of_tls_are_not_spoken() -> None:
    context = server_context(INLINE, "SSL")
    assert shake_hands(context, trusting()) == "TLSv1.3"
    old = trusting()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    assert shake_hands(context, old) == "TLSv1.2"
    only = server_context({**INLINE, "ssl.enabled.protocols": "TLSv1.3"}, "SSL")
    with pytest.raises(ssl.SSLError):
        shake_hands(only, old)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2 and context.options & ssl.OP_NO_RENEGOTIATION


@pytest.mark.parametrize(
    ("given", "listener", "expected"),
    [
        ({}, "SSL", "none"),
        ({"ssl.client.auth": "required"}, "SSL", "required"),
        ({"ssl.client.auth": "required", "listener.name.ssl.ssl.client.auth": "requested"}, "SSL", "requested"),
        ({"ssl.client.auth": "required"}, "S", "none"),
        ({"listener.name.s.ssl.client.auth": "Required"}, "S", "required"),
    ],
)
def test_a_certificate_is_asked_for_as_kafka_does(given: dict[str, str], listener: str, expected: str) -> None:
    assert client_auth({**MAP, **given}, listener) == expected
    trusted = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": AUTHORITY.cert_pem.bytes().decode()}
    mode = server_context({**INLINE, **trusted, **given}, listener).verify_mode
    assert mode is {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}[expected]


def test_a_client_without_a_trusted_certificate_does_not_get_in() -> None:
    trusted = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": AUTHORITY.cert_pem.bytes().decode()}
    context = server_context({**INLINE, **trusted, "ssl.client.auth": "required"}, "SSL")
    for authority, good in ((AUTHORITY, True), (trustme.CA(), False), (None, False)):
        client = trusting()
        if authority is not None:
            authority.issue_cert("client").configure_cert(client)
        if good:
            assert shake_hands(context, client)
        else:
            with pytest.raises(ssl.SSLError):
                shake_hands(context, client)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({**NO_KEY}, "ssl.keystore.location is missing"),
        ({"ssl.keystore.key": ""}, "ssl.keystore.key and ssl.keystore.certificate.chain are needed together"),
        ({"ssl.keystore.location": "/nowhere.pem"}, "ssl.keystore.certificate.chain and ssl.keystore.location are both given"),
        ({"ssl.key.password": "x"}, "ssl.key.password is given, and the key is not encrypted"),
        ({"ssl.keystore.password": "x"}, "ssl.keystore.password is given, and a keystore of PEM has none"),
        ({"ssl.protocol": "SSLv3"}, "ssl.protocol=SSLv3 cannot be served"),
        ({"ssl.client.auth": "maybe"}, "ssl.client.auth=maybe is none of none, requested, required"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "ssl.enabled.protocols: TLSv1.1 cannot be served"),
        ({**NO_KEY, "ssl.keystore.location": "/nowhere.jks", "ssl.keystore.type": ""}, "ssl.keystore.type=JKS cannot"),
        ({**NO_KEY, "ssl.keystore.location": "/nowhere.pem"}, "ssl.keystore.location=/nowhere.pem"),
        ({"ssl.client.auth": "required", "ssl.truststore.location": "/nowhere.pem"}, "ssl.truststore.location=/nowhere.pem"),
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_named(change: dict[str, str], named: str) -> None:
    with pytest.raises(WrongSecurity) as refused:
        server_context({**INLINE, **change}, "SSL")
    assert named in str(refused.value) and "PRIVATE KEY" not in str(refused.value)


def test_changed_files_are_read_again_and_bad_ones_leave_the_former(tmp_path: Path) -> None:
    path = tmp_path / "broker.pem"
    path.write_text(PKCS8 + CHAIN)
    given = {**MAP, "ssl.keystore.location": str(path)}
    said: list[str] = []
    renewed = RenewedContext(
        lambda: server_context(given, "SSL"), stores_of(given), lambda level, text: said.append(level)
    )
    first = renewed.get()
    assert renewed.get() is first and said == []
    path.with_suffix(".new").write_text(PKCS8 + CHAIN)
    path.with_suffix(".new").replace(path)
    second = renewed.get()
    assert second is not first and said == ["info"]
    path.unlink()
    assert renewed.get() is second and renewed.get() is second and said == ["info", "error"]
