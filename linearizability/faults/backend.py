"""Where a hunt's target runs: processes side by side, network namespaces or containers; also with faulty disks and clocks."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from linearizability.agreement import SNAPSHOT_OFTEN
from linearizability.faults import all_faults
from linearizability.faults.docker_network import DockerNetwork
from linearizability.faults.network import Links, Network
from linearizability.faults.plan import FAST_FAILOVER, Plan
from linearizability.faults.schedule import Schedule
from linearizability.targets import Access, AddressMap, Target, TargetError, open_target
from linearizability.targets.cluster import INTERPOSED, ClusterTarget
from linearizability.targets.docker import open_image
from linearizability.targets.hosts import Host
from linearizability.targets.interposer.building import obstacle
from linearizability.targets.security import ClientSecurity
from linearizability.targets.zookeeper_kafka import FIRST_WITH_CREATION, ZooKeeperKafkaCluster, version_of
from linearizability.workload.profile import promised_copies, standard_profile

Listener = Callable[[str], None]
"""Receives a hunt's progress."""


def planned_target(plan: Plan, folder: Path, hosts: Sequence[Host] | None = None) -> Target:
    """The target, not yet started, in the configuration that hunts use. Errors: WrongTarget."""
    config = FAST_FAILOVER | plan.config if plan.target.startswith(("kafka", "reference", "mixed")) else plan.config
    if plan.target.startswith("mixed") and "-zk" not in plan.target:
        config = SNAPSHOT_OFTEN | config
    security = ClientSecurity.read(Path(plan.client_config)) if plan.client_config else None
    access = Access(AddressMap.parse(plan.mapped), security=security)
    target = open_target(plan.target, folder=folder, config=config, nodes=plan.nodes, hosts=hosts, access=access)
    if isinstance(target, ZooKeeperKafkaCluster) and version_of(target.version, 3) < FIRST_WITH_CREATION:
        target.given = _topics_that_are_asked_for(target.size) | target.given
    return target


def _topics_that_are_asked_for(nodes: int) -> dict[str, str]:
    """The brokers' defaults for a hunt's topic, where no client can configure it."""
    profile = standard_profile(nodes)
    return {
        "num.partitions": str(profile.partitions),
        "default.replication.factor": str(profile.replication_factor),
        **profile.topic_configs(),
    }


def open_on_backend(
    plan: Plan, folder: Path, stack: ExitStack, say: Listener, schedules: Sequence[Schedule]
) -> tuple[Target, Links | None]:
    """Start the target where the plan wants it. Errors: TargetError."""
    if plan.backend == "plain":
        target = planned_target(plan, folder)
        interpose(target, plan, schedules, say)
        stack.enter_context(target)
        if target.unknown_config:  # what a hunt may conclude depends on them
            raise TargetError(f"{plan.target} does not take broker properties; wanted are {', '.join(plan.config)}")
        return target, None
    sketch = planned_target(plan, folder)
    if not isinstance(sketch, ClusterTarget):
        raise TargetError(f"{plan.target} brings its own processes: they cannot be put on a network of ours")
    if plan.backend == "docker":
        made = DockerNetwork(sketch.places, open_image(plan.image))
    else:
        made = Network(sketch.places)
    network = stack.enter_context(made)
    target = planned_target(plan, folder, network.hosts)
    interpose(target, plan, schedules, say)
    return stack.enter_context(target), network


def interpose(target: Target, plan: Plan, schedules: Sequence[Schedule], say: Listener) -> None:
    """Interpose the nodes' disks and clocks, where a fault of this hunt needs it.

    Internal topics then promise as much as the hunt's own: a loss of power must not take what only one replica had.
    Errors: TargetError where a fault that was named is not possible.
    """
    named = {
        *plan.faults,
        *(injection.fault for each in schedules for wave in each.waves for injection in wave.injections),
    }
    needing = [name for name, fault in all_faults().items() if {*fault.hooks} & {*INTERPOSED}]
    wanted = [name for name in needing if name in named or not named]
    if not isinstance(target, ClusterTarget) or not wanted:
        return
    reason = obstacle()
    if reason and named:
        raise TargetError(f"without {', '.join(wanted)}: {reason}")
    if reason:
        say(f"without {', '.join(wanted)}: {reason}")
        return
    target.interpose()
    target.given.setdefault("min.insync.replicas", str(promised_copies(target.brokers)))
