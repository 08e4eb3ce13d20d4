"""Brokers with a listener of each security protocol, their certificates and users; made for tests."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import jwt
import trustme
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import load_pem_x509_certificate
from jwt.algorithms import RSAAlgorithm

from linearizability.targets.cluster import ClusterTarget
from linearizability.targets.kafka import KafkaCluster
from linearizability.targets.ports import free_ports
from linearizability.targets.reference import ReferenceCluster
from linearizability.targets.wire import Wire
from reference.node.listeners import VALIDATORS
from reference.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest

USER, PASSWORD = "alice", 'a "secret" \\ of hers'
STORE_PASSWORD = "of the store"
LOGIN = "org.apache.kafka.common.security"
LISTENERS = ("SSL", "SASL_SSL", "SASL_PLAINTEXT", "MUTUAL", "OAUTH")
SCRAM = {1: "sha256", 2: "sha512"}
"""A mechanism's number in AlterUserScramCredentials -> its hash."""
AUDIENCE = "kafka of the tests"
KEYS_URL = "listener.name.oauth.oauthbearer.sasl.oauthbearer.jwks.endpoint.url"
SALT = b"salt of alice"
ITERATIONS = 4096


class Signer:
    """Signs tokens with a key of its own."""

    def __init__(self, id: str) -> None:
        self.id = id
        self._key = rsa.generate_private_key(65537, 2048)

    @property
    def public(self) -> dict[str, Any]:
        """The key that checks its tokens (RFC 7517)."""
        return {
            **RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True),
            "kid": self.id,
            "use": "sig",
            "alg": "RS256",
        }

    def token(self, ends_in_s: float = 3600, **claims: Any) -> str:
        """A token of USER; a claim that is None is left out."""
        now = time.time()
        given = {"sub": USER, "aud": AUDIENCE, "iat": now - 60, "exp": now + ends_in_s, **claims}
        given = {name: value for name, value in given.items() if value is not None}
        return jwt.encode(given, self._key, "RS256", headers={"kid": self.id})


def key_set(*signers: Signer) -> str:
    return json.dumps({"keys": [each.public for each in signers]})


class Secured(ClusterTarget):
    """One broker: PLAINTEXT for its own needs, and the listeners above; `client(LISTENER)` is a client's properties."""

    def secure(self, secrets: Path, session_ms: int = 0) -> None:
        """Make certificates and keys in a folder."""
        self.secrets, self.session_ms = secrets, session_ms
        self.ports = dict[str, int](zip(LISTENERS, free_ports(len(LISTENERS)), strict=True))
        self.authority = trustme.CA()
        self.authority.cert_pem.write_to_path(str(secrets / "ca.pem"))
        self._store("broker", self.authority.issue_cert("localhost"))
        self._store("client", self.authority.issue_cert("client.example", organization_name="Ö, Ltd"))
        trustme.CA().cert_pem.write_to_path(str(secrets / "stranger.pem"))
        self.signer = Signer("1")
        (secrets / "keys.json").write_text(key_set(self.signer))
        (secrets / "token").write_text(self.signer.token())

    def _store(self, name: str, issued: trustme.LeafCert) -> None:
        """A PEM file with PKCS8 key and chain, and the same as PKCS12."""
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey)
        chain = b"".join(one.bytes() for one in issued.cert_chain_pems)
        own = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (self.secrets / f"{name}.pem").write_bytes(own + chain)
        authority = [load_pem_x509_certificate(self.authority.cert_pem.bytes())]
        certificate = load_pem_x509_certificate(issued.cert_chain_pems[0].bytes())
        hidden = BestAvailableEncryption(STORE_PASSWORD.encode())
        store = pkcs12.serialize_key_and_certificates(name.encode(), key, certificate, authority, hidden)
        (self.secrets / f"{name}.p12").write_bytes(store)

    def properties(self, member):
        given = super().properties(member)
        quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
        users = f'username="{USER}" password="{quoted}" user_{USER}="{quoted}"'
        logins = {
            "PLAIN": f"{LOGIN}.plain.PlainLoginModule required {users};",
            "SCRAM-SHA-256": f"{LOGIN}.scram.ScramLoginModule required;",
            "SCRAM-SHA-512": f"{LOGIN}.scram.ScramLoginModule required;",
        }
        per_listener = {
            f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config": text.replace("\\", "\\\\")
            for listener in ("sasl_ssl", "sasl_plaintext")
            for mechanism, text in logins.items()
        }
        return given | {
            "listeners": ",".join(
                [given["listeners"], *(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items())]
            ),
            "advertised.listeners": ",".join(
                [given["advertised.listeners"], *(f"{name}://localhost:{port}" for name, port in self.ports.items())]
            ),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL,"
            "SASL_PLAINTEXT:SASL_PLAINTEXT,MUTUAL:SSL,OAUTH:SASL_SSL",
            "inter.broker.listener.name": "PLAINTEXT",
            "delegation.token.secret.key": "of the cluster",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.secrets / "broker.pem"),
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.truststore.type": "PEM",
            "listener.name.mutual.ssl.truststore.location": str(self.secrets / "ca.pem"),
            "sasl.enabled.mechanisms": ",".join(logins),
            "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.oauth.oauthbearer.sasl.jaas.config": f"{LOGIN}.oauthbearer.OAuthBearerLoginModule required;",
            "listener.name.oauth.oauthbearer.sasl.server.callback.handler.class": VALIDATORS[0],
            KEYS_URL: (self.secrets / "keys.json").as_uri(),
            "listener.name.oauth.oauthbearer.sasl.oauthbearer.expected.audience": AUDIENCE,
            **({"connections.max.reauth.ms": str(self.session_ms)} if self.session_ms else {}),
            **per_listener,
        }

    def open(self) -> None:
        super().open()
        with Wire.connect(self.nodes[0].host, self.nodes[0].port) as wire:
            for mechanism, name in SCRAM.items():
                salted = hashlib.pbkdf2_hmac(name, PASSWORD.encode(), SALT, ITERATIONS)
                upsert = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
                    name=USER, mechanism=mechanism, iterations=ITERATIONS, salt=SALT, salted_password=salted
                )
                answer = wire.call(AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsert]))
                assert answer.results[0].error_code == 0, answer

    def address(self, listener: str) -> str:
        return f"addr:localhost:{self.ports[listener]}"

    def client(self, listener: str, mechanism: str = "", password: str = PASSWORD, **changes: str) -> dict[str, str]:
        """The properties of a client of that listener."""
        protocol = {"MUTUAL": "SSL", "OAUTH": "SASL_SSL"}.get(listener, listener)
        given = {"security.protocol": protocol}
        if protocol.endswith("SSL"):
            given |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.secrets / "ca.pem")}
        if listener == "OAUTH":
            url = (self.secrets / "token").as_uri()
            given |= {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": url}
        if mechanism:
            quoted = password.replace("\\", "\\\\").replace('"', '\\"')
            module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
            given |= {
                "sasl.mechanism": mechanism,
                "sasl.jaas.config": f'{LOGIN}.{module} required username="{USER}" password="{quoted}";',
            }
        return given | {name.replace("_", "."): value for name, value in changes.items()}


class SecuredKafka(Secured, KafkaCluster):
    """Apache Kafka."""

    def __init__(self, folder: Path, secrets: Path, *, version: str = "4.3.1", session_ms: int = 0) -> None:
        super().__init__(f"kafka:{version}", version=version, nodes=1, folder=folder)
        self.secure(secrets, session_ms)

    def prepare(self):
        plain = KafkaCluster(self.spec, version=self.version, nodes=1, folder=self.secrets / "plain")
        plain.prepare()  # writes the release's start archive where this machine has none, which takes no listeners
        super().prepare()


class SecuredReference(Secured, ReferenceCluster):
    """The reference."""

    def __init__(self, folder: Path, secrets: Path, *, session_ms: int = 0) -> None:
        super().__init__("reference:1", nodes=1, folder=folder)
        self.secure(secrets, session_ms)
