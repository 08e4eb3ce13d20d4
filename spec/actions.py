"""The steps of replication by their one name: TLA+ action, trace event, and (in snake case) the broker's method.

This table is the only list; ACTIONS.md is generated from it, and tests compare it with the modules and with the broker.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Action:
    """One step: who takes it, what it is given, what it means."""

    name: str
    chapter: str
    """The module that defines it."""
    actor: str
    """Whose step it is, and so in whose trace it stands: controller, leader, follower, broker, or client."""
    arguments: tuple[str, ...]
    meaning: str

    @property
    def trace_arguments(self) -> tuple[str, ...]:
        """What a trace event must carry: records are named by the offset after them, not by the producer's count."""
        renamed = {"number": "end", "offset": "end"}
        return tuple(renamed.get(name, name) for name in self.arguments if name != "isr")

    @property
    def method(self) -> str:
        """The broker's method."""
        return method_name(self.name)


def method_name(action: str) -> str:
    """The snake case of an action's name."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", action).lower()


ACTIONS: tuple[Action, ...] = (
    Action(
        "RegisterBroker",
        "Controller",
        "controller",
        ("broker",),
        "A broker that came back gets a new broker epoch and is fenced; after an unclean end it leaves ISR and ELR.",
    ),
    Action(
        "UnfenceBroker",
        "Controller",
        "controller",
        ("broker",),
        "The broker has replayed the metadata up to its registration; a partition without a leader may elect it.",
    ),
    Action(
        "FenceBroker",
        "Controller",
        "controller",
        ("broker",),
        "No heartbeat within broker.session.timeout.ms: it leaves the ISR (for the ELR, if the ISR is short), another leads.",
    ),
    Action(
        "ControlledShutdown",
        "Controller",
        "controller",
        ("broker",),
        "The broker asked leave to stop: as fencing, but it is still alive.",
    ),
    Action(
        "AlterPartition",
        "Controller",
        "controller",
        ("leader", "isr"),
        "The proposal's epochs are current and all members eligible: the ISR is written.",
    ),
    Action(
        "ElectLeader",
        "Controller",
        "controller",
        ("broker",),
        "Leadership moves to another live member of the ISR without a failure (preferred replica, ElectLeaders).",
    ),
    Action(
        "ElectUncleanLeader",
        "Controller",
        "controller",
        ("broker",),
        "No eligible replica is alive and unclean election is allowed: any live replica leads, alone in the ISR.",
    ),
    Action(
        "Reassign",
        "Controller",
        "controller",
        ("replicas",),
        "The partition is to have these replicas: new ones are added at once, others go when the new ones are in sync.",
    ),
    Action(
        "CallOffReassignment",
        "Controller",
        "controller",
        ("replicas",),
        "Back to the replicas that there were before a reassignment.",
    ),
    Action(
        "ChangeMinIsr",
        "Controller",
        "controller",
        ("minIsr",),
        "min.insync.replicas is set for the topic; the eligible leader replicas are forgotten.",
    ),
    Action(
        "BecomeLeader",
        "Replica",
        "broker",
        ("broker", "leaderEpoch", "partitionEpoch"),
        "A metadata record with a newer leader epoch names this broker the leader.",
    ),
    Action(
        "BecomeFollower",
        "Replica",
        "broker",
        ("broker", "leaderEpoch", "partitionEpoch"),
        "A metadata record with a newer leader epoch names another leader, or none.",
    ),
    Action(
        "CommitIsr",
        "Replica",
        "leader",
        ("leader", "partitionEpoch"),
        "The leader learns the ISR that the controller wrote, by the answer to its request or by replay; nothing is pending.",
    ),
    Action(
        "LearnMinIsr",
        "Replica",
        "leader",
        ("leader", "minIsr"),
        "The leader replays another min.insync.replicas.",
    ),
    Action(
        "GiveUpReplica",
        "Replica",
        "broker",
        ("broker",),
        "The partition has other replicas now: the broker deletes its log.",
    ),
    Action(
        "AnswerFetch",
        "Replica",
        "leader",
        ("leader", "follower", "end"),
        "The leader takes a fetch of its leader epoch that does not diverge: it now knows the follower's end and broker epoch.",
    ),
    Action(
        "AppendFetched",
        "Replica",
        "follower",
        ("follower", "leader", "end"),
        "The follower appends records of a fetch answer; `end` is its log end offset afterwards.",
    ),
    Action(
        "AdoptHighWatermark",
        "Replica",
        "follower",
        ("follower", "leader", "highWatermark"),
        "The follower's high watermark becomes min(leader's as answered, own end); logged only if it changes.",
    ),
    Action(
        "Truncate",
        "Replica",
        "follower",
        ("follower", "leader", "end"),
        "The answer named a diverging epoch: the follower cuts its log to `end`.",
    ),
    Action(
        "AdvanceHighWatermark",
        "Replica",
        "leader",
        ("leader", "highWatermark"),
        "The high watermark rises, at most to the least end of the maximal ISR; never while the ISR is short.",
    ),
    Action(
        "ExpandIsr",
        "Replica",
        "leader",
        ("leader", "follower"),
        "The leader proposes the ISR and this follower, which from now on counts for the high watermark.",
    ),
    Action(
        "ShrinkIsr",
        "Replica",
        "leader",
        ("leader", "follower"),
        "The leader proposes the ISR without this follower, which counts until the proposal is accepted.",
    ),
    Action(
        "RollBackIsr",
        "Replica",
        "leader",
        ("leader",),
        "The controller refused a member (INELIGIBLE_REPLICA): the proposal is undone. Never on INVALID_UPDATE_VERSION.",
    ),
    Action(
        "Crash",
        "Replica",
        "broker",
        ("broker",),
        "The process is gone without a word (written by the world, not by the broker).",
    ),
    Action("ShutDown", "Replica", "broker", ("broker",), "The process ends cleanly, everything flushed."),
    Action(
        "Restart",
        "Replica",
        "broker",
        ("broker", "end", "highWatermark"),
        "The log is recovered up to `end`, the high watermark is the checkpoint's; the broker has no role yet.",
    ),
    Action(
        "Produce",
        "Client",
        "leader",
        ("leader", "number", "acks"),
        "The leader appends a record of the producer (`number`: how many it has produced, this one included).",
    ),
    Action(
        "Retry",
        "Client",
        "leader",
        ("leader", "number"),
        "The leader appends a record that the idempotent producer sends again.",
    ),
    Action(
        "Acknowledge",
        "Client",
        "leader",
        ("leader", "number"),
        "The leader answers acks=all: the high watermark has passed the record.",
    ),
    Action(
        "Consume",
        "Client",
        "broker",
        ("broker", "offset"),
        "A consumer reads the next record below this broker's high watermark.",
    ),
)


def actions_page() -> str:
    """ACTIONS.md."""
    lines = [
        "# The steps of replication",
        "",
        "One name each: the TLA+ action, the trace event, and in snake case the broker's method. Generated from `actions.py`",
        "(`python -m spec.tables`); tests compare it with the TLA+ modules and with the broker.",
        "",
        "| action | method | whose | arguments | meaning |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [f"| {a.name} | `{a.method}` | {a.actor} | {', '.join(a.arguments)} | {a.meaning} |" for a in ACTIONS]
    return "\n".join(lines) + "\n"
