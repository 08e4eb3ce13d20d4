"""A client's TLS, configured by Kafka's `ssl.*` properties."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

from linearizability.targets.security.errors import SecurityError
from reference.security.errors import WrongSecurity
from reference.security.tls_stores import identify, limit_versions, trust


def tls_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    """The TLS context of a client. Errors: SecurityError, which names the property."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    identified = properties.get("ssl.endpoint.identification.algorithm", "https").lower()
    if identified not in ("https", ""):
        raise SecurityError(f"ssl.endpoint.identification.algorithm={identified} is neither https nor empty")
    context.check_hostname = identified == "https"
    try:
        limit_versions(context, properties)
        trust(context, properties)
        identify(context, properties)
    except WrongSecurity as error:
        raise SecurityError(str(error)) from error
    return context
