"""Limits on a node's connections: of all clients, of one listener, and of one address.

Source: kafka.network.ConnectionQuotas; max.connections (KIP-402), max.connections.per.ip and its overrides.
"""

from __future__ import annotations

from collections import Counter

from reference.controller.broker_configs import connections_by_address
from reference.controller.configs import Configuration


class ConnectionLimits:
    """Counts the open connections, and decides whether one more is allowed."""

    def __init__(self, configuration: Configuration, most: int | None = None) -> None:
        """`most` is the limit by open files, where that is below max.connections."""
        self._configuration = configuration
        self._most = most
        self._by_listener: Counter[str] = Counter()
        self._by_host: Counter[str] = Counter()

    def refuses(self, listener: str, host: str) -> str | None:
        """The setting whose limit a further connection of this address exceeds; None where it is allowed."""
        integer = self._configuration.integer
        if self._by_listener.total() >= min(self._most or integer("max.connections"), integer("max.connections")):
            return "max.connections"
        own = self._configuration.listener_integer(listener, "max.connections")
        if own is not None and self._by_listener[listener] >= own:
            return f"listener.name.{listener.lower()}.max.connections"
        overrides = connections_by_address(str(self._configuration.broker("max.connections.per.ip.overrides") or ""))
        if self._by_host[host] >= overrides.get(host, integer("max.connections.per.ip")):
            return "max.connections.per.ip"
        return None

    def opened(self, listener: str, host: str) -> None:
        self._by_listener[listener] += 1
        self._by_host[host] += 1

    def closed(self, listener: str, host: str) -> None:
        self._by_listener[listener] -= 1
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]
