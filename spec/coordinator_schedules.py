"""Behaviours of transactions and groups as schedules with scripts for a coordinator and its clients (see
`fault_schedules.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

LONGEST_MS = 60_000
"""More than any behaviour takes; a run continues as soon as its script is over."""

MUTANT_OF: dict[str, str] = {
    "AssignBeforeRevocation": "held-partitions-called-free",
    "BeforeKip890": "partitions-unverified",
    "KeepEpochOnNewSession": "epoch-kept-by-next-session",
    "MarkerBeforeDecision": "marker-before-decision",
}
"""Switch -> the mutant with the same bug (linearizability/mutants)."""

NOT_DRIVEN = {
    "RaiseGroupEpoch": "a topic that a group reads would have to become another one with the same partitions",
}
"""Steps that a driver cannot cause, and why: a script ends before the first of them."""

GROUP, TRANSACTIONAL_ID = "readers", "writer"
TIMEOUTS = {"broker.session.timeout.ms": "600", "controller.quorum.fetch.timeout.ms": "30000"}
ALONE = {"min.insync.replicas": "1"}
OF_TRANSACTIONS = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
OF_GROUPS = {"offsets.topic.replication.factor": "1", "group.consumer.session.timeout.ms": "1000"}

Event = Mapping[str, Any]


def coordinator_schedule(behaviour: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """The schedule of one line of `tidegauge spec behaviours` of a model of transactions or groups."""
    begin, *events = behaviour["events"]
    beyond = next((place for place, event in enumerate(events) if event["action"] in NOT_DRIVEN), len(events))
    made = _of_group if "members" in begin else _of_transactional_id
    common = {"format": "tidegauge-schedule/1", "seed": seed, "duration_ms": LONGEST_MS}
    return common | made(begin, events[:beyond])


# ---- transactions


def _of_transactional_id(begin: Event, events: Sequence[Event]) -> dict[str, Any]:
    """Schedule with broker 1 as the coordinator, one leader for each partition, and a separate controller."""
    topics: list[str] = begin["partitions"]
    leaders = {topic: number for number, topic in enumerate(topics, 2)}
    controller = len(topics) + 2
    return {
        "nodes": controller,
        "voters": [controller],
        "properties": TIMEOUTS | OF_TRANSACTIONS,
        "topics": [{"name": topic, "configs": ALONE, "replicas": [leaders[topic]]} for topic in topics],
        "clients": [{"kind": "consumer", "isolation": "read_committed"}],
        "script": {
            "id": TRANSACTIONAL_ID,
            "brokers": [1, *leaders.values()],
            "topics": topics,
            "version": 1 if "BeforeKip890" in begin["bugs"] else 2,
            "steps": [_transaction_step(event, leaders) for event in events],
        },
    }


def _transaction_step(event: Event, leaders: Mapping[str, int]) -> dict[str, Any]:
    named = dict(event["args"])
    step: dict[str, Any] = {"action": event["action"]}
    if "partition" in named:
        step["broker"] = leaders[named.pop("partition")]
    return step | named


# ---- groups


def _of_group(begin: Event, events: Sequence[Event]) -> dict[str, Any]:
    """Schedule with one broker for the coordinator and all partitions, and a separate controller."""
    topic = {"name": "orders", "partitions": len(begin["partitions"]), "configs": ALONE, "replicas": [1]}
    return {
        "nodes": 2,
        "voters": [2],
        "properties": TIMEOUTS | OF_GROUPS,
        "topics": [topic],
        "clients": [],
        "script": {
            "group": GROUP,
            "brokers": [1],
            "topic": topic["name"],
            "members": begin["members"],
            "partitions": begin["partitions"],
            "steps": [_group_step(event) for event in events],
        },
    }


def _group_step(event: Event) -> dict[str, Any]:
    named = dict(event["args"])
    if "given" in named:
        named["partitions"] = named.pop("given")
    return {"action": event["action"], **named}
