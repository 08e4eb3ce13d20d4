"""Common settings of librdkafka's clients: they connect, look for a new leader and try again quickly.

Its defaults suit outages of minutes; a hunt's faults last for seconds. Source: librdkafka's CONFIGURATION.md.
"""

import os
from contextlib import suppress
from functools import cache
from typing import Any

from linearizability.targets.address import parse_address
from linearizability.targets.wire import Wire, WireError

OLD = {"api.version.request": False, "broker.version.fallback": "0.8.2.2"}
"""For brokers that are older than ApiVersions."""


def connection_settings(bootstrap: str, client_id: str) -> dict[str, Any]:
    """The settings of every client."""
    return {
        "bootstrap.servers": bootstrap,
        "client.id": client_id,
        "socket.connection.setup.timeout.ms": 3_000,
        "socket.timeout.ms": 5_000,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 500,
        "topic.metadata.refresh.interval.ms": 1_000,
        **({} if reports_versions(bootstrap) else OLD),
        **log_settings(),
    }


@cache
def reports_versions(bootstrap: str) -> bool:
    """Whether the brokers know ApiVersions; so it is assumed where none answers."""
    for host, port in map(parse_address, bootstrap.split(",")):
        with suppress(WireError), Wire.connect(host, port, timeout_s=2) as wire:
            wire.versions()
            return wire.reports_versions
    return True


def producer_settings(bootstrap: str, client_id: str) -> dict[str, Any]:
    """The settings of every producer."""
    return connection_settings(bootstrap, client_id) | {
        "request.timeout.ms": 3_000,
        "linger.ms": 2,
        "retry.backoff.ms": 50,
        "retry.backoff.max.ms": 500,
    }


def log_settings() -> dict[str, str | int]:
    """librdkafka's own log goes to the client's: errors only, or the contexts that TIDEGAUGE_CLIENT_DEBUG names (`eos,msg`)."""
    contexts = os.environ.get("TIDEGAUGE_CLIENT_DEBUG", "")
    return {"debug": contexts} if contexts else {"log_level": 3}
