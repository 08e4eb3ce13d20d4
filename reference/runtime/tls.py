"""TLS of a node: contexts of its listeners and of its connections to other nodes, made again when their files change."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from reference.node.listeners import of_listener, protocols_of
from reference.security.errors import WrongSecurity
from reference.security.tls_stores import identify, limit_versions, stores_of, trust

CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}

Stamp = tuple[tuple[int, int], ...]


def server_context(properties: Mapping[str, str], listener: str) -> ssl.SSLContext:
    """The context of a listener. Errors: WrongSecurity."""
    own = of_listener(properties, listener)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    limit_versions(context, own)
    if not identify(context, own):
        raise WrongSecurity("ssl.keystore.location is missing: TLS needs a key with a certificate")
    asked = client_auth(properties, listener)
    if asked not in CLIENT_AUTH:
        raise WrongSecurity(f"ssl.client.auth={asked} is none of {', '.join(CLIENT_AUTH)}")
    context.verify_mode = CLIENT_AUTH[asked]
    if asked != "none" or any(name.startswith("ssl.truststore.") for name in own):
        trust(context, own)
    return context


def client_auth(properties: Mapping[str, str], listener: str) -> str:
    """ssl.client.auth of a listener: where clients authenticate by SASL, only its own setting counts (KIP-684)."""
    own = f"listener.name.{listener.lower()}.ssl.client.auth"
    if own in properties or protocols_of(properties)[listener].startswith("SASL_"):
        return properties.get(own, "none").lower()
    return properties.get("ssl.client.auth", "none").lower()


def client_context(properties: Mapping[str, str], listener: str) -> ssl.SSLContext:
    """The context for connections to other nodes' listener of this name. Errors: WrongSecurity."""
    own = of_listener(properties, listener)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    identified = own.get("ssl.endpoint.identification.algorithm", "https").lower()
    if identified not in ("https", ""):
        raise WrongSecurity(f"ssl.endpoint.identification.algorithm={identified} is neither https nor empty")
    context.check_hostname = identified == "https"
    limit_versions(context, own)
    trust(context, own)
    identify(context, own)
    return context


class RenewedContext:
    """A context that is made again when one of its files has changed: new connections get the new certificate."""

    def __init__(
        self, make: Callable[[], ssl.SSLContext], stores: Sequence[Path], log: Callable[[str, str], None]
    ) -> None:
        """Errors: WrongSecurity."""
        self._make = make
        self._stores = stores
        self._log = log
        self._stamp = self._look()
        self._context = make()

    def get(self) -> ssl.SSLContext:
        """The context of the current files; the previous one where they cannot be used."""
        stamp = self._look()
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._context = self._make()
                self._log("info", f"certificates read again: {', '.join(map(str, self._stores))}")
            except WrongSecurity as error:
                self._log("error", f"certificates have changed and cannot be used, the former ones stay: {error}")
        return self._context

    def _look(self) -> Stamp:
        try:
            return tuple((found.st_mtime_ns, found.st_ino) for found in (path.stat() for path in self._stores))
        except OSError:
            return ()


def listener_context(
    properties: Mapping[str, str], listener: str, log: Callable[[str, str], None], *, as_client: bool = False
) -> RenewedContext | None:
    """The TLS context of a listener, or of clients of one; None for a listener without TLS. Errors: WrongSecurity."""
    if not protocols_of(properties)[listener].endswith("SSL"):
        return None
    make = client_context if as_client else server_context
    stores = stores_of(of_listener(properties, listener))
    return RenewedContext(lambda: make(properties, listener), stores, log)
