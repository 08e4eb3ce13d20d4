"""The way into a secured broker: TLS and SASL, by the client properties that Kafka's own clients take.

    security = ClientSecurity.read(Path("client.properties"))
    with Tunnels(security) as tunnels:
        host, port = tunnels.to("broker.example", 9093)   # a listener on this machine that leads there

What connects to a tunnel speaks the plain protocol; the tunnel encrypts, authenticates and passes every byte on.
"""

from linearizability.targets.security.client_config import ClientSecurity
from linearizability.targets.security.errors import SecurityError
from linearizability.targets.security.tunnel import Tunnels

__all__ = ["ClientSecurity", "SecurityError", "Tunnels"]
