"""Where the clients of a hunt connect: they follow the addresses that brokers advertise, and those may lead nowhere from here."""

from collections.abc import Iterator
from contextlib import contextmanager

from linearizability.mutants.wire.proxy import Proxy
from linearizability.targets import Target
from linearizability.targets.loop import Loop


@contextmanager
def entrance(target: Target) -> Iterator[str]:
    """Bootstrap addresses for librdkafka, which has no map of addresses: with `--map` those of proxies on this machine, which
    answer with their own addresses instead of the advertised ones and change nothing else."""
    if not target.addresses.pairs:
        yield target.bootstrap
        return
    with Loop() as loop, Proxy(loop, target.nodes, addresses=target.addresses) as proxy:
        yield ",".join(node.address for node in proxy.nodes)
