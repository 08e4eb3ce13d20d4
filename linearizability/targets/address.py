"""A broker that somebody else started: only its address is known, and nothing can be done to it."""

from collections.abc import Sequence

from linearizability.targets.target import Node, Target, TargetError, WrongTarget
from linearizability.targets.wire import Wire, WireError
from reference.protocol.messages.metadata import MetadataRequest

TIMEOUT_S = 15.0


class Address(Target):
    """`addr:HOST:PORT[,HOST:PORT…]`."""

    def __init__(self, spec: str, addresses: str) -> None:
        self.spec = spec
        self.addresses = [parse_address(text) for text in addresses.split(",")]
        self._nodes: list[Node] = []

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.addresses)

    @property
    def nodes(self) -> Sequence[Node]:
        return self._nodes

    def open(self) -> None:
        """Ask the first that answers for all nodes. Errors: TargetError where none does."""
        failures: list[str] = []
        for host, port in self.addresses:
            try:
                with Wire.connect(host, port, timeout_s=TIMEOUT_S) as wire:
                    answer = wire.call(MetadataRequest(topics=[]), wire.version_of(MetadataRequest))
            except (WireError, ValueError) as error:
                failures.append(f"{host}:{port}: {error}")
                continue
            self._nodes = [Node(broker.node_id, broker.host, broker.port) for broker in answer.brokers]
            return
        raise TargetError(f"{self.spec} does not answer: {'; '.join(failures)}")

    def close(self) -> None:
        """Nothing of it is ours."""


def parse_address(text: str) -> tuple[str, int]:
    """`host:port`, `[host]:port` for IPv6. Errors: WrongTarget."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise WrongTarget(f"{text!r} is no address: HOST:PORT is needed")
    return host.strip("[]"), int(port)
