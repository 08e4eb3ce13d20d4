"""Behaviours of the specification, as TLC's simulation draws them: lists of named steps with the states that they lead to.

They become traces (to test the trace checker, which has to accept them) and schedules for simulated brokers. A schedule is
one JSON object a line:

    {"model": "MCIsr", "switch": "IgnoreMinIsr", "violates": "EligibleAreComplete", "kind": "counterexample", "events": […]}

`kind` is random, counterexample or covering. The events of replication are those of a trace (trace.py): the first is Begin;
each other event names a step, its arguments, and the state that the node, or the controller, must have after it. Events of the
metadata quorum have no state (quorum_schedules.py). Those of coordinators (`transactions/`, `groups/`) have the names of the
specification and, for a group, the assignment that the coordinator must have made:

    {"action": "Begin", "partitions": ["p1", "p2"], "bugs": ["BeforeKip890"]}
    {"action": "AppendWrite", "args": {"partition": "p1", "transaction": 1}}
    {"action": "EndTransaction", "args": {"marker": "abort"}}

    {"action": "Begin", "partitions": ["p1", "p2"], "members": ["m1", "m2", "m3"], "bugs": []}
    {"action": "UpdateTarget", "args": {"target": {"m1": ["p1"], "m2": ["p2"]}}}
    {"action": "Heartbeat", "args": {"member": "m1", "epoch": 3, "given": ["p1"]}}

Without a switch all promises hold at the end; with one, the last event breaks the promise, and a correct broker never takes it.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from spec.actions import ACTIONS
from spec.checker import TraceStep, check
from spec.models import Case
from spec.quorum_schedules import quorum_events
from spec.values import parse_state

STATE = re.compile(r"^STATE_(\d+) ==\s*\n(.*?)(?=^STATE_|^=+|\Z)", re.S | re.M)

DRAWN_FROM = {"Groups": ("WholeHeartbeats", "AtOnceSpec")}
"""Module -> the module and specification to draw from, where a cluster cannot be driven through all behaviours of the first."""


class NoBehaviours(Exception):
    """TLC drew none; the message is TLC's."""


def simulate(case: Case, count: int, depth: int = 60, seed: int = 1) -> list[tuple[TraceStep, ...]]:
    """Random behaviours of a case's model. Errors: NoBehaviours."""
    with tempfile.TemporaryDirectory(prefix="tidegauge-behaviours-") as name:
        target = Path(name) / "behaviour"
        options = ("-simulate", f"file={target},num={count}", "-depth", str(depth), "-seed", str(seed))
        text = without_properties(case.configuration())
        job = replace(case.job(), options=options, coverage=False, configuration=text)
        if case.model.module in DRAWN_FROM:
            module, specification = DRAWN_FROM[case.model.module]
            text = re.sub(r"^SPECIFICATION \w+$", f"SPECIFICATION {specification}", text, flags=re.M)
            job = replace(job, module=module, configuration=text)
        outcome = check(job)
        files = sorted(Path(name).glob("behaviour*"), key=lambda path: [int(n) for n in re.findall(r"\d+", path.name)])
        if not files:
            raise NoBehaviours(f"{outcome.verdict}: {outcome.reason}")
        return [read_behaviour(path.read_text()) for path in files[:count]]


def without_properties(text: str) -> str:
    """The configuration without symmetry, view, invariants and properties: a simulation uses none of them."""
    text = re.sub(r"^(INVARIANTS?|PROPERT(Y|IES))\b.*?(?=^[A-Z_]+\b|\Z)", "", text, flags=re.S | re.M)
    return re.sub(r"^(SYMMETRY|VIEW)\b.*$", "", text, flags=re.M)


def read_behaviour(text: str) -> tuple[TraceStep, ...]:
    """The states in a file of TLC's simulation, each with the action that its variable `step` names."""
    steps: list[TraceStep] = []
    for number, body in STATE.findall(text):
        state = parse_state(body)
        step: Any = state.get("step", {})
        steps.append(TraceStep(int(number), str(step.get("action", "")), state))
    return tuple(steps)


# ---- behaviours as traces

CONTROLLER_ACTIONS = {action.name for action in ACTIONS if action.actor == "controller"}


def trace_events(behaviour: Sequence[TraceStep], min_isr: int = 2) -> list[dict[str, Any]]:
    """The trace that brokers would write while they take these steps (see trace.py)."""
    initial: Any = behaviour[0].state
    numbers = {name: number for number, name in enumerate(sorted(initial["log"]), 1)}
    events: list[dict[str, Any]] = [
        {
            "action": "Begin",
            "brokers": list(numbers.values()),
            "minIsr": min_isr,
            "partition": _partition(initial["partition"], numbers),
        }
    ]
    leader, replicas = initial["partition"]["leader"], initial["partition"]["replicas"]
    for name in sorted(replicas):
        action = "BecomeLeader" if name == leader else "BecomeFollower"
        step = {"action": action, "broker": name, "leaderEpoch": 1, "partitionEpoch": 1}
        events.append(_event(step, initial, numbers))
    for step in behaviour[1:]:
        named: Any = step.state["step"]
        if named["action"] in ACTORS:  # `Messages.tla` has steps of single messages, which no broker traces.
            events.append(_event(named, step.state, numbers))
    return events


def _partition(record: Any, numbers: dict[Any, int]) -> dict[str, Any]:
    return {
        "leader": numbers.get(record["leader"], -1),
        "leaderEpoch": record["leaderEpoch"] - 1,
        "partitionEpoch": record["partitionEpoch"] - 1,
        "minIsr": record["minIsr"],
    } | {name: [numbers[b] for b in record[name]] for name in ("isr", "elr", "replicas", "adding", "removing")}


def _event(step: Any, state: Any, numbers: dict[Any, int]) -> dict[str, Any]:
    action = step["action"]
    arguments: dict[str, Any] = {}
    for name, value in step.items():
        if name in ("broker", "leader", "follower"):
            arguments[name] = numbers[value]
        elif name == "replicas":
            arguments[name] = [numbers[b] for b in value]
        elif name in ("leaderEpoch", "partitionEpoch"):
            arguments[name] = value - 1
        elif name not in ("action", "isr", "number", "offset"):
            arguments[name] = value
    if action == "RegisterBroker":
        arguments["brokerEpoch"] = state["registry"][step["broker"]]["brokerEpoch"]
    elif action == "AnswerFetch":
        arguments["brokerEpoch"] = state["progress"][step["leader"]][step["follower"]]["brokerEpoch"]
    if action in CONTROLLER_ACTIONS:
        return {"node": 0, "action": action, "args": arguments, "partition": _partition(state["partition"], numbers)}
    actor = step.get("follower") if ACTORS[action] == "follower" else step.get("leader", step.get("broker"))
    if action in ("Produce", "Retry"):
        arguments["end"] = len(state["log"][actor])
    elif action == "Acknowledge":
        arguments["end"] = [record["number"] for record in state["log"][actor]].index(step["number"]) + 1
    elif action == "Consume":
        arguments["end"] = len(state["consumed"])
    event = {
        "node": numbers[actor],
        "action": action,
        "args": arguments,
        "leo": len(state["log"][actor]),
        "hw": state["highWatermark"][actor],
        "leaderEpoch": state["metadata"][actor]["leaderEpoch"] - 1,
    }
    if state["metadata"][actor]["leader"] == actor:
        event |= {
            "isr": [numbers[b] for b in state["metadata"][actor]["isr"]],
            "minIsr": state["metadata"][actor]["minIsr"],
        }
    return event


ACTORS = {action.name: action.actor for action in ACTIONS}


# ---- behaviours as schedules


DRIVEN = ("MCReplication", "Quorum", "Transactions", "Groups")
"""Modules through whose behaviours a simulated cluster can be driven."""

NOT_DRIVEN = (
    "has no schedules for a simulated cluster: models of replication without messages, of the quorum, of transactions and of "
    "groups have"
)


def schedule(case: Case, kind: str, behaviour: Sequence[TraceStep]) -> dict[str, Any]:
    """One line for a simulation to replay. Errors: NoBehaviours."""
    if case.model.module not in DRIVEN:
        raise NoBehaviours(f"{case.name} {NOT_DRIVEN}")
    about = {
        "model": case.model.name,
        "switch": case.switch.name if case.switch else "",
        "violates": case.expected_property,
    }
    return about | {"kind": kind, "events": _events(case, behaviour)}


def _events(case: Case, behaviour: Sequence[TraceStep]) -> list[dict[str, Any]]:
    if case.model.module == "Quorum":
        return quorum_events(behaviour)
    if case.model.folder in CHAPTERS:
        return coordinator_events(case.model.folder, behaviour, [case.switch.name] if case.switch else [])
    found = re.search(r"MinIsr = (\d+)", case.configuration())
    return trace_events(behaviour, int(found[1]) if found else 2)


State = Any
"""A state as `values.parse_state` reads it: sets are tuples, functions and records mappings."""

WRITES = frozenset({"SendWrite", "AddPartitions", "AppendWrite", "DropWrite"})


def coordinator_events(folder: str, behaviour: Sequence[TraceStep], bugs: Sequence[str]) -> list[dict[str, Any]]:
    """The events of a behaviour; `folder` is one of CHAPTERS."""
    begin, arguments = CHAPTERS[folder]
    first: State = behaviour[0].state
    events: list[dict[str, Any]] = [{"action": "Begin", **begin(first), "bugs": [*bugs]}]
    for before, after in pairwise(step.state for step in behaviour):
        step: Any = after["step"]
        events.append({"action": step["action"], "args": arguments(step, before, after)})
    return events


# ---- transactions


def _of_transactions(first: State) -> dict[str, Any]:
    return {"partitions": sorted(first["log"])}


def _transaction_step(step: State, before: State, after: State) -> dict[str, Any]:
    action = step["action"]
    if action == "SendWrite":
        return {"partition": step["to"], "transaction": before["producer"]["transaction"]}
    if action in WRITES:
        write = _write_of(step, before, after)
        return {"partition": write["partition"], "transaction": write["transaction"]}
    if action == "AppendMarker":
        return {"partition": step["to"], "marker": after["log"][step["to"]][-1]["kind"]}
    if action == "WriteMarker":
        return {"partition": step["from"]}
    return {"marker": step["marker"]} if action == "EndTransaction" else {}


def _write_of(step: State, before: State, after: State) -> State:
    """The write that the step takes from the network, or the one whose partition it adds to the transaction."""
    gone = [write for write in before["network"] if write not in after["network"]]
    place = step["from"]
    joining = (each for each in before["network"] if (each["partition"], each["epoch"]) == (place, step["epoch"]))
    return gone[0] if gone else next(joining)


# ---- groups


def _of_groups(first: State) -> dict[str, Any]:
    return {"partitions": sorted(first["target"]), "members": sorted(first["given"])}


def _group_step(step: State, before: State, after: State) -> dict[str, Any]:
    action = step["action"]
    if action == "UpdateTarget":
        target: dict[str, list[str]] = {member: [] for member in sorted(after["joined"])}
        for partition, member in sorted(after["target"].items()):
            target[member].append(partition)
        return {"target": target}
    if action == "RaiseGroupEpoch":
        return {}
    if action == "LoseMember":
        return {"member": next(member for member in before["joined"] if member not in after["joined"])}
    member = step["to"] if action in ("TakeAnswer", "LoseAnswer") else step["from"]
    if action == "Heartbeat":
        return {"member": member, "epoch": after["epoch"][member], "given": sorted(after["given"][member])}
    return {"member": member}


CHAPTERS: dict[str, tuple[Callable[[State], dict[str, Any]], Callable[[State, State, State], dict[str, Any]]]] = {
    "transactions": (_of_transactions, _transaction_step),
    "groups": (_of_groups, _group_step),
}
"""Folder -> the first line of a behaviour, and the fields of its steps."""
