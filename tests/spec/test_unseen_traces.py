"""Traces of clusters in which some nodes trace nothing, as Apache Kafka's: the checker searches for their steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from spec.checker import Verdict
from spec.cluster_trace import Incarnations, Share, replicas_ever, without_lost_decisions
from spec.replication_trace import Trace, trace_of
from spec.trace import NOT_FOUND, Validation, check_traces
from tests.spec.clusters import Row, as_read, rows_of, small

pytestmark = pytest.mark.java

SEEDS = [seed for seed in range(12) if small(seed).is_traceable]
SEARCHED_AMONG = 0.9
"""The least share of sound traces that are accepted; the search is not exhaustive."""


def hidden(seed: int, nodes: Sequence[int]) -> list[Trace]:
    """The traces of a simulated cluster without the replicas' steps of some nodes; their decisions as controllers are kept."""
    _, rows = rows_of(small(seed))
    traced = [
        row for row in as_read(rows) if row["node"] not in nodes or "controllerEpoch" in row or "partitions" in row
    ]
    happened = [row for row in without_lost_decisions(traced) if "shard" not in row]
    incarnations, found = Incarnations(happened), list[Trace]()
    for place, row in enumerate(happened):
        for name, first in row["partitions"].items() if row["action"] == "Begin" else ():
            brokers = replicas_ever(name, happened[place:])
            unseen = [broker for broker in brokers if broker in nodes]
            share = Share(name, first, brokers, incarnations, unseen)
            found.append(trace_of([*share.events(happened, place)], f"{seed}-{place}-{name} without {nodes}"))
    return found


@pytest.fixture(scope="module")
def runs() -> list[Trace]:
    """Of one half of the runs one node is seen, of the other two."""
    return [trace for seed in SEEDS for trace in hidden(seed, [(1,), (2,), (3,), (1, 2), (2, 3), (1, 3)][seed % 6])]


@pytest.fixture(scope="module")
def done(runs: list[Trace]) -> Validation:
    return check_traces(runs, look_ups=0)


@pytest.mark.sampled(days=5, together=True)
def test_what_unseen_nodes_did_is_found(runs: list[Trace], done: Validation) -> None:
    assert done.outcome.verdict == Verdict.HOLDS, done.outcome.reason
    assert len(runs) > 30
    assert len(done.rejected) <= (1 - SEARCHED_AMONG) * len(runs), [verdict.name for verdict in done.rejected]
    steps = Counter((event["action"], _is_about(event, trace.unseen)) for trace in runs for event in trace.events)
    for action in ("AnswerFetch", "AppendFetched", "AdoptHighWatermark", "AlterPartition", "RegisterBroker"):
        assert steps[action, True] > 3, steps


def _is_about(event: Row, unseen: Sequence[int]) -> bool:
    return any(event.get("args", {}).get(part) in unseen for part in ("leader", "follower", "broker"))


def _changed(trace: Trace, place: int, change: Callable[[Row], Row]) -> Trace:
    events = [*trace.events]
    events[place] = change(events[place])
    return replace(trace, name="spoiled", events=tuple(events[: place + 1]))


@pytest.mark.sampled(days=6)
@pytest.mark.parametrize(
    ("action", "change"),
    [
        ("AdoptHighWatermark", lambda event: event | {"hw": event["hw"] - 1}),
        ("AppendFetched", lambda event: event | {"leo": event["leo"] + 1}),
        ("AdvanceHighWatermark", lambda event: further(event, 1)),
        ("CommitIsr", lambda event: event | {"isr": [event["node"]]}),
    ],
)
def test_what_no_steps_of_theirs_explain_is_rejected(
    runs: list[Trace], action: str, change: Callable[[Row], Row]
) -> None:
    """No steps of the unseen nodes explain a wrong log or high watermark of a traced node."""
    spoiled: list[Trace] = []
    for trace in runs:
        places = [place for place, event in enumerate(trace.events) if event["action"] == action and _fits(event)]
        spoiled += [_changed(trace, place, change) for place in places[-1:]]
    assert len(spoiled) > 2
    named = [replace(trace, name=f"{number}") for number, trace in enumerate(spoiled)]
    done = check_traces(named, look_ups=0)
    assert done.outcome.verdict == Verdict.HOLDS, done.outcome.reason
    assert [verdict.name for verdict in done.verdicts if verdict.accepted] == []


def _fits(event: Row) -> bool:
    return event["action"] != "CommitIsr" or len(event["isr"]) > 1


def further(event: Row, by: int) -> Row:
    """The event with a high watermark beyond the leader's log end."""
    mark = event["leo"] + by
    return event | {"hw": mark, "args": event["args"] | {"highWatermark": mark}}


@pytest.mark.sampled(days=5, together=True)
def test_the_event_that_is_not_explained_is_named(runs: list[Trace], done: Validation) -> None:
    accepted = {verdict.name for verdict in done.verdicts if verdict.accepted}
    trace = next(each for each in runs if each.name in accepted and _place(each) > 5)
    place = _place(trace)
    spoiled = _changed(trace, place, lambda event: event | {"hw": event["hw"] - 1})
    (verdict,) = check_traces([replace(spoiled, events=(*spoiled.events, *trace.events[place + 1 :]))]).rejected
    assert (verdict.place, verdict.reason) == (place + 1, NOT_FOUND)


def _place(trace: Trace) -> int:
    return max((n for n, event in enumerate(trace.events) if event["action"] == "AdoptHighWatermark"), default=0)
