"""A broker that somebody else started: only its address is known, and nothing can be done to it."""

import time
from collections.abc import Mapping, Sequence

from linearizability.targets.target import Node, Target, TargetError, WrongTarget
from linearizability.targets.wire import WireError, answers, listed_brokers

TIMEOUT_S = 15.0
REVIVED_WITHIN_S = 60.0
"""How long whoever runs the broker may take to start it again."""
POLL_S = 0.2


class Address(Target):
    """`addr:HOST:PORT[,HOST:PORT…]`."""

    def __init__(self, spec: str, addresses: str, *, config: Mapping[str, str] | None = None) -> None:
        self.spec = spec
        self.unknown_config = tuple(config or {})
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
                brokers = listed_brokers(host, port, timeout_s=TIMEOUT_S)
            except (WireError, ValueError) as error:
                failures.append(f"{host}:{port}: {error}")
                continue
            self._nodes = [Node(broker.node_id, broker.host, broker.port) for broker in brokers]
            return
        raise TargetError(f"{self.spec} does not answer: {'; '.join(failures)}")

    def revive(self) -> None:
        """Wait until each node answers again: only its owner can start it. Errors: TargetError."""
        until = time.monotonic() + REVIVED_WITHIN_S
        for node in self._nodes:
            while not answers(node.host, node.port):
                if time.monotonic() > until:
                    raise TargetError(
                        f"{self.spec}: {node.address} did not answer again within {REVIVED_WITHIN_S:.0f} s"
                    )
                time.sleep(POLL_S)

    def close(self) -> None:
        """Nothing of it is ours."""


def parse_address(text: str) -> tuple[str, int]:
    """`host:port`, `[host]:port` for IPv6. Errors: WrongTarget."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise WrongTarget(f"{text!r} is no address: HOST:PORT is needed")
    return host.strip("[]"), int(port)
