"""A schedule with a script, and the driver that takes a cluster through it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from pydantic import model_validator

from linearizability.guided.driver import Driver
from linearizability.guided.groups import GroupDriver
from linearizability.guided.quorum import QuorumDriver
from linearizability.guided.replication import ReplicationDriver
from linearizability.guided.scripted_member import ScriptedMember
from linearizability.guided.scripted_producer import ScriptedProducer
from linearizability.guided.scripted_transactor import ScriptedTransactor
from linearizability.guided.scripts import GroupScript, QuorumScript, ReplicationScript, Script, TransactionScript
from linearizability.guided.transactions import TransactionDriver
from linearizability.simulation import schedule
from linearizability.simulation.cluster import SimulatedCluster
from linearizability.simulation.run import DrivenSchedule
from linearizability.simulation.schedule import Producer, Schedule, Topic


class GuidedSchedule(DrivenSchedule):
    """A cluster, and the script that it is driven through."""

    script: Script

    @model_validator(mode="after")
    def _has_the_scripts_nodes(self) -> GuidedSchedule:
        voters = {*(self.voters or self.node_ids)}
        if isinstance(self.script, QuorumScript):
            if {*self.script.voters} != voters:
                raise ValueError("a script of the quorum needs all voters")
        elif not {*self.script.all_brokers} <= {*self.node_ids} - voters:
            raise ValueError("a script needs brokers that do not vote")
        if any(fault.after for fault in self.faults):
            raise ValueError("a fault that waits for a step does not go together with a script")
        return self

    @property
    def holds_messages(self) -> bool:
        return True

    @property
    def transacts(self) -> bool:
        return isinstance(self.script, TransactionScript) or super().transacts

    def least_min_isr(self, topic: Topic) -> int:
        steps = self.script.steps if isinstance(self.script, ReplicationScript) else ()
        changed = (step.min_isr for step in steps if step.action == "ChangeMinIsr")
        return min([super().least_min_isr(topic), *changed])

    def driver(self, cluster: SimulatedCluster) -> Driver[Any]:
        script = self.script
        match script:
            case ReplicationScript():
                producer = partial(ScriptedProducer, topic=script.topic, idempotent=script.idempotent)
                plan = Producer(idempotent=script.idempotent)
                return ReplicationDriver(cluster, script, cluster.add_scripted(producer, plan))
            case QuorumScript():
                return QuorumDriver(cluster, script)
            case TransactionScript():
                return TransactionDriver(
                    cluster, script, cluster.add_scripted(partial(ScriptedTransactor, script=script))
                )
            case GroupScript():
                made = {name: partial(ScriptedMember, script=script, id=name) for name in script.members}
                return GroupDriver(cluster, script, {name: cluster.add_scripted(each) for name, each in made.items()})


def read_schedule(path: Path) -> Schedule:
    """A stored schedule, with or without a script. Errors: BadSchedule."""
    return schedule.read_schedule(path, GuidedSchedule)
