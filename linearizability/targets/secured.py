"""The listener, for clients and between brokers, of a cluster that the suite starts, secured by one of Kafka's protocols.

    open_target("kafka:4.3.1", folder=run_folder, protocol="SASL_SSL")

A cluster gets one certificate, which names the addresses of its hosts, and one user with a password for PLAIN, both new at each
start. The controller listener is unchanged: broker clients do not use it, and requirements secure it themselves.
"""

from __future__ import annotations

import datetime
import ipaddress
import secrets
from collections.abc import Collection, Mapping
from pathlib import Path

from linearizability.targets.errors import WrongTarget
from linearizability.targets.security import ClientSecurity
from linearizability.targets.security.client_config import PROTOCOLS

USER = "tidegauge"
NAME = "SECURED"
"""The listener's name; in a plaintext cluster it is PLAINTEXT."""
PLAIN_MAP = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_LASTS = datetime.timedelta(days=30)


class SecuredListener:
    """The listener's certificate and user. `properties` configures the brokers, `client` a client."""

    def __init__(self, protocol: str) -> None:
        """Errors: WrongTarget for an unknown protocol."""
        if protocol not in PROTOCOLS:
            raise WrongTarget(f"{protocol!r} is no security protocol: {', '.join(PROTOCOLS)}")
        self.protocol = protocol
        self.has_tls, self.has_sasl = PROTOCOLS[protocol]
        self._password = secrets.token_hex(16)
        self._certificate: Path | None = None
        self._store: Path | None = None

    def issue(self, folder: Path, addresses: Collection[str]) -> None:
        """Write the certificate, and the key into a file that only its owner can read, into this folder."""
        if self.has_tls:
            self._certificate = folder.resolve() / "trusted.pem"
            self._store = folder.resolve() / "listener.pem"
            certificate, key = _self_signed(addresses)
            self._certificate.write_bytes(certificate)
            self._store.touch(mode=0o600)
            self._store.write_bytes(key + certificate)

    def properties(self, plain: Mapping[str, str]) -> dict[str, str]:
        """The broker properties of a secured node, from those of a plaintext one."""
        given = dict(plain)
        for name in ("listeners", "advertised.listeners"):
            given[name] = given[name].replace("PLAINTEXT://", f"{NAME}://")
        protocols = given.get("listener.security.protocol.map", PLAIN_MAP)
        given["listener.security.protocol.map"] = protocols.replace("PLAINTEXT:PLAINTEXT", f"{NAME}:{self.protocol}", 1)
        given["inter.broker.listener.name"] = NAME
        own = f"listener.name.{NAME.lower()}."
        if self.has_tls:
            given |= {
                f"{own}ssl.{store}.{name}": value
                for store, path in (("keystore", self._store), ("truststore", self._certificate))
                for name, value in (("type", "PEM"), ("location", str(path)))
            }
        if self.has_sasl:
            given |= {
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                f"{own}sasl.enabled.mechanisms": "PLAIN",
                f"{own}plain.sasl.jaas.config": f'{self._login} user_{USER}="{self._password}";',
            }
        return given

    def delete_key(self) -> None:
        if self._store:
            self._store.unlink(missing_ok=True)

    def without_secrets(self, properties: Mapping[str, str]) -> dict[str, str]:
        return {name: value.replace(self._password, "[hidden]") for name, value in properties.items()}

    @property
    def client(self) -> dict[str, str]:
        """The properties of a client, by the names of Kafka's own clients."""
        given = {"security.protocol": self.protocol}
        if self.has_tls:
            given |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self._certificate)}
        if self.has_sasl:
            given |= {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{self._login};"}
        return given

    @property
    def client_security(self) -> ClientSecurity:
        return ClientSecurity.of(self.client)

    @property
    def _login(self) -> str:
        return f'{_MODULE} username="{USER}" password="{self._password}"'


def _self_signed(addresses: Collection[str]) -> tuple[bytes, bytes]:
    """A certificate for these addresses and its key, in PEM. Errors: WrongTarget where the library for it is missing."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    except ImportError:
        raise WrongTarget("certificates for TLS need the package cryptography: install tidegauge[check]") from None
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a cluster of tidegauge")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - _LASTS)
        .not_valid_after(now + _LASTS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.IPAddress(ipaddress.ip_address(address)) for address in sorted(addresses)]
            ),
            critical=False,
        )
        .sign(key, SHA256())
    )
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return certificate.public_bytes(Encoding.PEM), pem
