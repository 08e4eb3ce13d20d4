"""A valid history stays valid when less is known of it, or when the same is written otherwise.

Each transformation keeps what happened: an outcome becomes unknown, an answer gets lost, polls are split or joined, names change,
clients are added that change nothing, all clients stop at one moment. No rule accuses a broker of what comes out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from random import Random
from typing import Any

import pytest

from linearizability.rules import RULES
from linearizability.rules.rule import Weight
from linearizability.simulation.drawing import draw
from linearizability.simulation.history_recorder import ClientHistory
from linearizability.simulation.judging import judge_histories, run_schedule
from tests.rules.sound_log import Play

Histories = list[ClientHistory]
Event = dict[str, Any]
NEW_PROCESS = 1_000_000
NOT_KEPT = frozenset({"no-progress"})
"""What a transformation may break: sends that are not answered any more made no progress."""


def pairs(history: ClientHistory, *functions: str) -> list[tuple[Event, Event]]:
    """The completed operations with these functions, each as its two events."""
    begun = {event["operation"]: event for event in history.events if event["type"] == "invoke"}
    ended = [event for event in history.events if event["type"] in ("ok", "fail", "info")]
    return [(begun[event["operation"]], event) for event in ended if not functions or event["f"] in functions]


def drawn_pairs(histories: Histories, rng: Random, *functions: str) -> list[tuple[ClientHistory, Event, Event]]:
    """Some of all such operations, at least one where there is one."""
    known = [(history, *pair) for history in histories for pair in pairs(history, *functions)]
    return rng.sample(known, min(len(known), rng.choice([1, 1, 3, 10]))) if known else []


def outcomes_become_unknown(histories: Histories, rng: Random) -> None:
    """A timeout in the place of an answer: what a poll gave is still known, an acknowledged offset is not."""
    for _, begun, ended in drawn_pairs(
        histories, rng, "send", "poll", "commit", "committed", "end", "drain", "list_offsets"
    ):
        ended["type"] = "info"
        if ended["f"] != "poll":
            ended["mops"] = deepcopy(begun.get("mops") or [])


def answers_get_lost(histories: Histories, rng: Random) -> None:
    """No completion at all, as where the client was killed."""
    for history, _, ended in drawn_pairs(histories, rng, "send", "poll", "commit", "end", "drain"):
        history.events = [event for event in history.events if event is not ended]


def polls_are_split(histories: Histories, rng: Random) -> None:
    polls = drawn_pairs(histories, rng, "poll")
    chosen = [each for each in polls if each[2].get("mops") and "rebalanced" not in each[2]]
    for history in histories:
        for event in history.events:
            if "operation" in event:
                event["operation"] *= 2
    for history, begun, ended in chosen:
        records = ended["mops"][0].get("records") or {}
        first = {key: each[: len(each) // 2] for key, each in records.items()}
        second = {key: each[len(each) // 2 :] for key, each in records.items()}
        place = next(number for number, event in enumerate(history.events) if event is ended)
        more = {"operation": ended["operation"] + 1, "time": ended["time"]}
        if any(
            event["type"] == "invoke" and event["operation"] > begun["operation"] for event in history.events[:place]
        ):
            continue  # another one began meanwhile: the numbers must rise
        rest = deepcopy(ended) | more
        rest["mops"][0]["records"] = second
        history.events[place + 1 : place + 1] = [deepcopy(begun) | more, rest]
        ended["mops"][0]["records"] = first


def polls_are_joined(histories: Histories, rng: Random) -> None:
    for history in rng.sample(histories, (len(histories) + 1) // 2):
        events: list[Event] = []
        for event in history.events:
            events.append(event)
            last = events[-4:]
            if [(each["f"], each["type"]) for each in last] != [("poll", "invoke"), ("poll", "ok")] * 2:
                continue
            begun, ended, begun_next, ended_next = last
            if any("rebalanced" in each for each in last) or begun.get("txn") != begun_next.get("txn"):
                continue
            before, after = ended["mops"][0], ended_next["mops"][0]
            records = deepcopy(before.get("records") or {})
            for key, given in (after.get("records") or {}).items():
                records[key] = [*records.get(key, []), *given]
            joined = ended_next | {"operation": begun["operation"], "mops": [after | {"records": records}]}
            events[-4:] = [begun, joined]
        history.events = events


def names_change(histories: Histories, rng: Random) -> None:
    """Other names of topics, groups, members and producers; other numbers of processes, in another order."""
    moved = rng.sample(range(2 * len(histories)), len(histories))
    for history, process in zip(histories, moved, strict=True):
        history.process = process
        history.events = [
            _renamed(event) | ({"process": process} if event["type"] != "mark" else {}) for event in history.events
        ]


def _renamed(event: Event) -> Event:
    named: Event = {name: f"other {event[name]}" for name in ("group", "member", "producer") if event.get(name)}
    if "keys" in event:
        named["keys"] = [_other(key) for key in event["keys"]]
    if "rebalanced" in event:
        named["rebalanced"] = [_other(key) for key in event["rebalanced"]]
    if "mops" in event:
        named["mops"] = [_renamed_part(mop) for mop in event["mops"]]
    return event | named


def _renamed_part(mop: Event) -> Event:
    named: Event = {name: f"other {mop[name]}" for name in ("group", "member") if mop.get(name)}
    if "key" in mop:
        named["key"] = _other(mop["key"])
    for name in ("records", "ends", "offsets"):
        if isinstance(mop.get(name), dict):
            named[name] = {_other(key): each for key, each in mop[name].items()}
    return mop | named


def _other(key: str) -> str:
    return key if key.startswith("__") else f"other-{key}"


def idle_clients_come(histories: Histories, rng: Random) -> None:
    """One that does nothing, and one whose send was refused."""
    first = min(event["time"] for history in histories for event in history.events)
    mop = {"op": "send", "key": "t-0", "value": "never stored"}
    common = {"process": NEW_PROCESS + 1, "operation": 0, "f": "send", "time": first, "mops": [mop]}
    refused = [common | {"type": "invoke"}, common | {"type": "fail"}]
    contract = histories[0].contract
    histories += [ClientHistory(NEW_PROCESS, contract), ClientHistory(NEW_PROCESS + 1, contract, refused)]


def a_reader_begins_at_the_end(histories: Histories, rng: Random) -> None:
    """It is given what another reader was given from some poll on; where that one got no answer, neither does it."""
    readers = [history for history in histories if _reads_alone(history)]
    if not readers:
        return
    reader = rng.choice(readers)
    answered = pairs(reader, "poll")[rng.randrange(8) :]
    first = answered[0][0]["operation"] if answered else NEW_PROCESS
    polls = [event for event in reader.events if event["f"] == "poll" and event["operation"] >= first]
    assigned = next(event for event in reader.events if event["f"] == "assign")
    contract = reader.contract.model_copy(update={"reads_from_start": False})
    polls.sort(key=lambda event: (event["operation"], event["type"] != "invoke"))
    begun = [assigned | {"type": kind, "operation": 0} for kind in ("invoke", "ok")]
    events = [event | {"process": NEW_PROCESS + 2} for event in [*begun, *deepcopy(polls)]]
    for event in events[2:]:
        event["operation"] += 1
    histories.append(ClientHistory(NEW_PROCESS + 2, contract, events))


def _reads_alone(history: ClientHistory) -> bool:
    """Whether it does nothing but read what it was assigned once."""
    functions = Counter(event["f"] for event in history.events if event["type"] == "invoke")
    return set(functions) == {"assign", "poll"} and functions["assign"] == 1 and history.events[0].get("group") is None


def all_stop(histories: Histories, rng: Random) -> None:
    times = [event["time"] for history in histories for event in history.events]
    moment = rng.choice(times)
    for history in histories:
        history.events = [event for event in history.events if event["time"] <= moment]


TRANSFORMATIONS: tuple[Callable[[Histories, Random], None], ...] = (
    outcomes_become_unknown,
    answers_get_lost,
    polls_are_split,
    polls_are_joined,
    names_change,
    idle_clients_come,
    a_reader_begins_at_the_end,
    all_stop,
)


def accusing(histories: Sequence[ClientHistory]) -> list[str]:
    """The rules that accuse the broker, with their first anomaly."""
    judgement = judge_histories("transformed", histories)
    assert judgement.history is not None and not judgement.history.defects
    guilty = [item for item in judgement.findings if not item.permitted and RULES[item.rule].weight is Weight.VIOLATION]
    return [f"{item.rule}: {item.anomalies[0]}" for item in guilty if item.rule not in NOT_KEPT]


def transform(seed: int, histories: Iterable[ClientHistory], times: int) -> set[str]:
    """Apply each transformation alone, and some one after the other. Returns the names of those that alone changed something."""
    rng, original, effective = Random(seed), list(histories), set[str]()
    assert not accusing(original), seed
    chains = [[each] for each in TRANSFORMATIONS]
    chains += [rng.sample(TRANSFORMATIONS[:-1], 3) + rng.choice([[], [all_stop]]) for _ in range(times)]
    for chain in chains:
        changed = [ClientHistory(each.process, each.contract, deepcopy(each.events)) for each in original]
        for each in chain:
            each(changed, rng)
        assert not (found := accusing(changed)), (seed, [each.__name__ for each in chain], found)
        if len(chain) == 1 and content(changed) != content(original):
            effective.add(chain[0].__name__)
    return effective


def content(histories: Histories) -> list[tuple[int, list[Event]]]:
    return [(each.process, each.events) for each in histories]


def test_a_sound_log() -> None:
    """Over all seeds each transformation finds something that it can change."""
    effective = set[str]()
    for seed in range(40):
        effective |= transform(seed, Play(seed).histories, times=2)
    assert effective == {each.__name__ for each in TRANSFORMATIONS}


@pytest.mark.parametrize(
    ("workload", "coordination"), [("records", "kraft"), ("groups", "kraft"), ("copy", "zookeeper")]
)
def test_a_simulated_run(workload: str, coordination: str) -> None:
    """In that of the groups a commit takes effect whose connection is lost."""
    transform(1, run_schedule(draw(7000, None, 3, workload, coordination))[0].histories, times=2)


def test_a_poll_without_an_end_may_have_returned_what_is_missing() -> None:
    """In a final read, where the record seemed lost; and before a commit, which seemed to pass it."""
    transform(0, Play(300_000).histories, times=4)
    transform(1, run_schedule(draw(310_001, None, 3, "groups", "zookeeper"))[0].histories, times=4)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("coordination", ["kraft", "zookeeper"])
@pytest.mark.parametrize("workload", ["records", "transactions", "groups", "copy"])
def test_many(workload: str, coordination: str) -> None:
    for seed in range(300):
        transform(seed, Play(300_000 + seed).histories, times=4)
    for seed in range(30):
        transform(seed, run_schedule(draw(310_000 + seed, None, 3, workload, coordination))[0].histories, times=4)
