"""Connections to a secured broker: TLS and SASL, by the client properties of Kafka's own clients.

    security = ClientSecurity.read(Path("client.properties")) with Tunnels(security) as tunnels: host, port =
    tunnels.to("broker.example", 9093)   # the address of a listener on this machine that forwards to the broker

A client of a tunnel uses the plain protocol; the tunnel encrypts, authenticates and forwards every byte.
"""

from linearizability.targets.security.client_config import ClientSecurity
from linearizability.targets.security.errors import SecurityError
from linearizability.targets.security.tunnel import Tunnels

__all__ = ["ClientSecurity", "SecurityError", "Tunnels"]
