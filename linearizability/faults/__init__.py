"""Faults on real processes, as values: drawn by a seed, kept in a file, run again.

- `injection` one injection: time, fault, target, duration
- `schedule`  a list of them, drawn by a seed
- `fault`     the contract of a fault, and the world that it acts on
- `process`   kill, stop, pause, storm, kill-all
- `machine`   power-loss, power-loss-journal, blackout, disk-full, disk-broken, clock-skew
- `cuts`      isolate, halves, pair, deaf, mute, leader-controller, leader-followers, ring, clients, flaky
- `lines`     slow, lossy: a node's packets come late or not at all; `relay` is the process in the middle
- `zookeeper` zookeeper-kill, -pause, -cut, -isolate, -slow: of the ZooKeeper that coordinates the nodes
- `operating` reassign, elect, reconfigure, bystander: what operators do to a cluster that works
- `deletion`  a topic is deleted while it is written to
- `voters`    a controller leaves the metadata quorum and comes back
- `network`, `sandbox`   hosts in network namespaces, and the process that they live in
- `docker_network`, `link_agent`   hosts in containers, and the process that turns their links off and on
- `nemesis`   carries a schedule out and heals everything afterwards
- `hunt`      target, workload, schedule and verdict together
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from linearizability.faults.fault import Fault


def all_faults() -> "Mapping[str, Fault]":
    """Every fault by name; importing a module of faults registers them."""
    import linearizability.faults.cuts
    import linearizability.faults.deletion
    import linearizability.faults.lines
    import linearizability.faults.machine
    import linearizability.faults.operating
    import linearizability.faults.process
    import linearizability.faults.voters
    import linearizability.faults.zookeeper  # noqa: F401
    from linearizability.faults.fault import FAULTS

    return FAULTS
