"""TLS by Kafka's `ssl.*` properties: trusted certificates, the own certificate, protocol versions."""

from __future__ import annotations

import contextlib
import re
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from reference.security.errors import WrongSecurity

if TYPE_CHECKING:  # only PKCS12 needs it, and it is larger than everything else that a test of a broker imports
    from cryptography.hazmat.primitives.serialization import pkcs12

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
PEM_BLOCK = re.compile(r"-----BEGIN ([A-Z ]+)-----\s*([^-]*?)\s*-----END \1-----")


def stores_of(properties: Mapping[str, str]) -> list[Path]:
    """The keystore and truststore files."""
    given = (properties.get(f"ssl.{store}.location") for store in ("keystore", "truststore"))
    return [Path(location) for location in given if location]


def limit_versions(context: ssl.SSLContext, properties: Mapping[str, str]) -> None:
    """Apply ssl.enabled.protocols; the library chooses ciphers. Errors: WrongSecurity."""
    if suites := properties.get("ssl.cipher.suites"):
        raise WrongSecurity(f"ssl.cipher.suites={suites} cannot be served: leave it to the library")
    text = properties.get("ssl.enabled.protocols") or "TLSv1.2,TLSv1.3"
    names = [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in VERSIONS]:
        raise WrongSecurity(f"ssl.enabled.protocols: {unknown[0]} cannot be served; these can: {', '.join(VERSIONS)}")
    allowed = sorted(VERSIONS[name] for name in names)
    if (protocol := properties.get("ssl.protocol") or "TLS") not in ("TLS", *VERSIONS):
        raise WrongSecurity(f"ssl.protocol={protocol} cannot be served; these can: TLS, {', '.join(VERSIONS)}")
    context.minimum_version, context.maximum_version = allowed[0], allowed[-1]


def trust(context: ssl.SSLContext, properties: Mapping[str, str]) -> None:
    """Trust the truststore's certificates, or without a truststore those of this machine. Errors: WrongSecurity."""
    kind = _store_type(properties, "truststore")
    location = properties.get("ssl.truststore.location")
    if properties.get("ssl.truststore.certificates"):
        _check_alone(properties, "truststore", "certificates")
    try:
        if pem := properties.get("ssl.truststore.certificates"):
            context.load_verify_locations(cadata=_lines(pem))
        elif not location:
            context.load_default_certs()
        elif kind == "PEM":
            context.load_verify_locations(cafile=location)
        else:
            from cryptography.hazmat.primitives.serialization import Encoding

            store = _pkcs12(properties, "truststore", location)
            trusted = [one.certificate for one in store.additional_certs]
            context.load_verify_locations(cadata="".join(one.public_bytes(Encoding.PEM).decode() for one in trusted))
    except WrongSecurity:
        raise
    except (OSError, ValueError) as error:
        given = f"ssl.truststore.location={location}" if location else "ssl.truststore.certificates"
        raise WrongSecurity(f"{given}: {error}") from error


def identify(context: ssl.SSLContext, properties: Mapping[str, str]) -> bool:
    """Load the keystore's certificate and key; return whether there are any. Errors: WrongSecurity."""
    location = properties.get("ssl.keystore.location")
    chain, key = properties.get("ssl.keystore.certificate.chain"), properties.get("ssl.keystore.key")
    password = properties.get("ssl.key.password")
    if chain or key:
        _check_alone(properties, "keystore", "certificate.chain" if chain else "key")
        if not (chain and key):
            raise WrongSecurity("ssl.keystore.key and ssl.keystore.certificate.chain are needed together")
    kind = _store_type(properties, "keystore")
    try:
        if chain and key:
            _check_encrypted(key, password)
            _load(context, f"{_lines(key)}\n{_lines(chain)}\n".encode(), password)
        elif location and kind == "PEM":
            _check_encrypted(Path(location).read_text(encoding="utf-8"), password)
            context.load_cert_chain(location, password=_given(password))
        elif location:
            from cryptography.hazmat.primitives.serialization import (
                BestAvailableEncryption,
                Encoding,
                NoEncryption,
                PrivateFormat,
            )

            store = _pkcs12(properties, "keystore", location)
            if store.key is None or store.cert is None:
                raise WrongSecurity(f"ssl.keystore.location={location} has no key with a certificate")
            store_password = properties.get("ssl.keystore.password")
            if password not in (None, store_password):
                raise WrongSecurity("ssl.key.password is not ssl.keystore.password: a store of PKCS12 has one password")
            password = store_password
            secret = password.encode() if password else b""
            hidden = BestAvailableEncryption(secret) if secret else NoEncryption()
            own = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, hidden)
            certificates = [store.cert, *store.additional_certs]
            _load(context, own + b"".join(one.certificate.public_bytes(Encoding.PEM) for one in certificates), password)
        else:
            return False
    except WrongSecurity:
        raise
    except (OSError, ValueError) as error:
        given = f"ssl.keystore.location={location}" if location else "ssl.keystore.key"
        raise WrongSecurity(f"{given}: {error}") from error
    return True


def _load(context: ssl.SSLContext, pem: bytes, password: str | None) -> None:
    """Load a certificate and its key through a temporary file, which only its owner can read: Python loads keys from
    files alone."""
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name, password=_given(password))


def _check_encrypted(key: str, password: str | None) -> None:
    """Errors: WrongSecurity for a password of an unencrypted key: its owner believes that the key is protected."""
    if password and "ENCRYPTED" not in key:
        raise WrongSecurity("ssl.key.password is given, and the key is not encrypted")


def _given(password: str | None) -> str:
    """The password, or an empty one, so that OpenSSL fails instead of asking on the terminal."""
    return password or ""


def _check_alone(properties: Mapping[str, str], store: str, what: str) -> None:
    """Errors: WrongSecurity if a store is also given as a file: one of the two would be ignored."""
    if properties.get(f"ssl.{store}.location"):
        raise WrongSecurity(f"ssl.{store}.{what} and ssl.{store}.location are both given: one is enough")


def _store_type(properties: Mapping[str, str], store: str) -> str:
    location = Path(properties.get(f"ssl.{store}.location", ""))
    named = properties.get(f"ssl.{store}.type", "").upper()
    if not named and location.suffix.lower() in (".p12", ".pfx", ".pem", ".crt"):
        named = "PEM" if location.suffix.lower() in (".pem", ".crt") else "PKCS12"
    if named not in ("PEM", "PKCS12", "") or (not named and location.name):
        raise WrongSecurity(
            f"ssl.{store}.type={named or 'JKS'} cannot be served: PEM and PKCS12 can; "
            "keytool -importkeystore -deststoretype pkcs12 converts a store"
        )
    if named != "PKCS12" and properties.get(f"ssl.{store}.password"):
        raise WrongSecurity(
            f"ssl.{store}.password is given, and a {store} of PEM has none: ssl.key.password is the key's"
        )
    return named or "PEM"


def _pkcs12(properties: Mapping[str, str], store: str, location: str) -> pkcs12.PKCS12KeyAndCertificates:
    from cryptography.hazmat.primitives.serialization import pkcs12

    password = properties.get(f"ssl.{store}.password")
    with contextlib.suppress(ValueError):
        return pkcs12.load_pkcs12(Path(location).read_bytes(), password.encode() if password else None)
    raise WrongSecurity(f"ssl.{store}.location={location} is no PKCS12 store, or ssl.{store}.password is wrong")


def _lines(pem: str) -> str:
    """PEM with the line breaks that OpenSSL requires; in a properties file it may be one line."""
    blocks = PEM_BLOCK.findall(pem)
    return "\n".join(f"-----BEGIN {name}-----\n{''.join(body.split())}\n-----END {name}-----" for name, body in blocks)
