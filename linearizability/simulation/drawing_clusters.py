"""The recipe of a schedule for several nodes: targets are mostly named by role, which finds more bugs."""

from __future__ import annotations

from linearizability.simulation.choices import Choices
from linearizability.simulation.drawing_patterns import PATTERNS, FaultPatterns
from linearizability.simulation.schedule import (
    METADATA_TOPIC,
    MOST_REPLICAS,
    Administrator,
    Client,
    Fault,
    Schedule,
    Topic,
)
from linearizability.simulation.traffic import KINDS as MESSAGES
from linearizability.simulation.workloads import consumer, producer, topic

LONGEST_DOWN_MS = 2_000
MAX_CLOCK_JUMP_MS = 1_200_000

KINDS = (
    "crash", "crash", "crash", "power-loss", "power-loss", "stop", "pause", "pause", "cut", "cut-out", "cut-in",
    "isolate", "isolate", "halves", "slow-node", "slow", "reset", "flaky", "clock-jump", "disk-full", "read-only",
    "reassign", "config", "elect-preferred", "crash+elect-preferred", "isolate+crash", "one after the other",
    "at a step", "at a step", "at a step", "at a step", "at a step", "at a step", "at a step", "at a step",
    "at the quorum's step", "at the quorum's step", "at the quorum's step", "at the quorum's step",
    "uneven", "uneven", "blackout", "blackout", "leaders in turn", "leaders in turn", "leaders in turn",
    "there and back", "there and back", "deaf leader", "deaf leader", "last one standing", "last one standing",
    "dies as it commits", "dies as it commits", "troubled return", "troubled return",
    "contested election", "contested election", "late word", "late word", "hold", "hold", "lose",
    "words held up", "words held up", "words held up", "words held up", "words held up", "late succession",
    "late succession", "late succession", "flush-fails+power-loss",
)  # fmt: skip
"""Fault patterns, by their share; the first is the simplest."""

PARTITION_STEPS = (
    "BecomeLeader", "BecomeFollower", "ExpandIsr", "ExpandIsr", "ShrinkIsr", "ShrinkIsr", "CommitIsr", "Produce",
    "AppendFetched", "AdvanceHighWatermark", "AdoptHighWatermark", "Truncate", "Acknowledge", "Restart",
)  # fmt: skip
"""Steps of a partition at which a fault may be injected."""

QUORUM_STEPS = (
    "BecomeLeader", "AppendRecord", "AppendRecord", "AdvanceHighWatermark", "BecomeCandidate", "BecomeProspective",
    "GrantVote", "GrantVote", "LearnEpoch", "ApplyFetch",
)  # fmt: skip
"""Steps of the metadata quorum at which a fault may be injected."""

STEP_KINDS = (
    "crash", "power-loss", "pause", "cut", "cut-in", "cut-out", "isolate", "power-loss", "uneven", "uneven", "flaky",
)  # fmt: skip


def several(choices: Choices, seed: int, mutant: str | None, nodes: int) -> Schedule:
    """A run of a cluster in which leaders change; every other run repeats one fault pattern."""
    if seed % LATE_EVERY == LATE_AT:
        return _of_one_pattern(choices, seed, mutant, nodes, LATE)
    if choices.integer(0, 1):
        return _of_one_pattern(choices, seed, mutant, nodes)
    duration_ms = choices.one_of((2_000, 3_000, 4_500))
    flushed = choices.integer(0, 4) == 4
    topics = [_topic(choices, index, flushed) for index in range(choices.integer(1, 2))]
    clients: list[Client] = [producer(choices, duration_ms, nodes) for _ in range(choices.integer(1, 3))]
    clients += [consumer(choices, nodes) for _ in range(choices.integer(1, 2))]
    if choices.integer(0, 4) == 4:
        clients.append(Administrator(topics=choices.integer(1, 3), pause_ms=choices.integer(50, 400)))
    draw = FaultChoices(choices, duration_ms, nodes, topics)
    faults = [fault for _ in range(choices.integer(2, 8)) for fault in draw.some()]
    return Schedule(
        seed=seed,
        mutant=mutant,
        nodes=nodes,
        duration_ms=duration_ms,
        properties=_properties(choices),
        topics=tuple(topics),
        clients=tuple(clients),
        faults=tuple(sorted(faults, key=lambda fault: fault.at_ms)),
    )


def _of_one_pattern(choices: Choices, seed: int, mutant: str | None, nodes: int, name: str = "") -> Schedule:
    """A run with one partition and two or three repetitions of one fault pattern, without other faults."""
    times = choices.integer(2, 3)
    drawn = _topic(choices, 0, False).model_copy(update={"partitions": 1})
    patterns = FaultPatterns(choices, nodes, [drawn])
    name = name or choices.one_of([kind for kind in KINDS if kind in PATTERNS])
    faults = [fault for turn in range(times) for fault in patterns.draw(name, FIRST_PATTERN_MS + turn * PATTERN_MS)]
    clients: list[Client] = [producer(choices, times * PATTERN_MS, nodes) for _ in range(choices.integer(1, 2))]
    pace = QUICK_PRODUCER if name == LATE else {}
    clients[0] = clients[0].model_copy(update={"acks": "all"} | pace)
    return Schedule(
        seed=seed,
        mutant=mutant,
        nodes=nodes,
        duration_ms=times * PATTERN_MS,
        properties=_properties(choices),
        topics=(drawn,),
        clients=(*clients, consumer(choices, nodes)),
        faults=tuple(sorted(faults, key=lambda fault: fault.at_ms)),
    )


LATE = "late slices"
LATE_EVERY, LATE_AT = 15, 12
"""Only seeds with this remainder have this pattern, so that the schedules of all others are unchanged since before
2026-11-29."""

QUICK_PRODUCER = {"pause_ms": 12, "batches": 400, "in_flight": 5}
"""So quick that a batch is in flight whenever a leader is deposed."""

FIRST_PATTERN_MS, PATTERN_MS = 100, 2_500
"""When the only pattern of a run first begins, and its duration."""

RARE_SETTINGS: tuple[tuple[int, tuple[dict[str, str], ...]], ...] = (
    (3, tuple({"metadata.log.max.record.bytes.between.snapshots": size} for size in ("3000", "600"))),
    (4, ({"controller.quorum.fetch.max.bytes": "100"},)),
    (3, ({"broker.session.timeout.ms": "250", "broker.heartbeat.interval.ms": "60"},)),
    (3, ({"replica.high.watermark.checkpoint.interval.ms": "5000"},)),
    (5, ({"replica.fetch.max.bytes": "100"}, {"replica.fetch.max.bytes": "1000"})),
    (5, ({"replica.lag.time.max.ms": "200"}, {"replica.lag.time.max.ms": "800"})),
)  # fmt: skip
"""Node settings that cause rare states, each in one run of so many: metadata snapshots, small responses, short sessions, high
watermarks that a restart forgets, early or late removal from the ISR."""


def _properties(choices: Choices) -> dict[str, str]:
    properties: dict[str, str] = {}
    for every, settings in RARE_SETTINGS:
        if choices.integer(1, every) == every:
            properties |= choices.one_of(settings)
    return properties


def _topic(choices: Choices, index: int, flushed: bool) -> Topic:
    drawn = topic(choices, index, flushed)
    configs = drawn.configs | {"min.insync.replicas": choices.one_of(("2", "2", "2", "1"))}
    if choices.integer(0, 19) == 19:
        configs["unclean.leader.election.enable"] = "true"
    return drawn.model_copy(update={"configs": configs})


def _some_kinds(choices: Choices) -> tuple[str, ...]:
    """The fault patterns of one run: in every other run all of them, else a few that are repeated (swarm testing)."""
    count = choices.one_of((len(KINDS), 2, 4, len(KINDS)))
    return KINDS if count == len(KINDS) else tuple(choices.one_of(KINDS) for _ in range(count))


class FaultChoices:
    """Draws faults for one cluster."""

    def __init__(self, choices: Choices, duration_ms: int, nodes: int, topics: list[Topic]) -> None:
        self._choices = choices
        self._duration_ms = duration_ms
        self._nodes = range(1, nodes + 1)
        self._topics = topics
        self._patterns = FaultPatterns(choices, nodes, topics)
        self._kinds = _some_kinds(choices)

    def some(self) -> list[Fault]:
        """One fault, or several that belong together."""
        choices = self._choices
        at_ms = choices.integer(1, self._duration_ms)
        kind = choices.one_of(self._kinds)
        match kind:
            case "crash+elect-preferred":
                down_ms = self._down_ms()
                later = Fault(at_ms=at_ms + down_ms + choices.integer(100, 1_000), kind="elect-preferred")
                return [self._at_node(at_ms, "crash", down_ms), later]
            case "isolate+crash":
                cut = self._at_node(at_ms, "isolate", choices.integer(300, LONGEST_DOWN_MS))
                return [cut, self._at_node(at_ms + choices.integer(1, 1_200), "crash", self._down_ms())]
            case "flush-fails+power-loss":
                later_ms = choices.integer(20, 1_200)
                failing = self._at_node(at_ms, "flush-fails", choices.integer(1, later_ms))
                return [failing, self._at_node(at_ms + later_ms, "power-loss", self._down_ms())]
            case "at a step":
                return self._at_a_step(at_ms, choices.one_of(PARTITION_STEPS), "")
            case "at the quorum's step":
                return self._at_a_step(at_ms, choices.one_of(QUORUM_STEPS), METADATA_TOPIC)
            case _ if kind in PATTERNS:
                return self._patterns.draw(kind, at_ms)
            case _:
                return [self._one(at_ms, kind)]

    def _at_a_step(self, at_ms: int, step: str, topic: str) -> list[Fault]:
        """Up to three faults at an action of the specification: of its node, the node named in it, or the active controller."""
        choices = self._choices
        return [
            Fault.model_validate(
                {
                    "at_ms": at_ms,
                    "after": step,
                    "topic": topic,
                    "wait_ms": choices.one_of((0, 0, 1, 4, 20, 150)),
                    "kind": choices.one_of(STEP_KINDS),
                    "role": choices.one_of(("actor", "other", "actor", "other", "controller")),
                    "node": choices.one_of(self._nodes),
                    "for_ms": choices.one_of((500, 20, 1, 200, 1_000)),
                    "amount": choices.one_of((10, 100, 400, 900)),
                }
            )
            for _ in range(choices.integer(1, 3))
        ]

    def _one(self, at_ms: int, kind: str) -> Fault:
        choices = self._choices
        match kind:
            case "crash" | "power-loss" | "stop":
                return self._at_node(at_ms, kind, self._down_ms())
            case "pause":
                return self._at_node(at_ms, kind, choices.one_of((700, 100, 1_500, 2_500)))
            case "cut" | "cut-out" | "cut-in" | "isolate":
                others = () if choices.integer(0, 1) else (choices.one_of(self._nodes),)
                return self._at_node(at_ms, kind, choices.integer(50, LONGEST_DOWN_MS), others=others)
            case "halves":
                side = tuple(node for node in self._nodes if choices.integer(0, 1)) or (1,)
                return Fault(at_ms=at_ms, kind="halves", others=side, for_ms=choices.integer(50, LONGEST_DOWN_MS))
            case "uneven":
                amount = choices.one_of((200, 50, 700))
                return self._at_node(at_ms, kind, choices.integer(200, 1_500), amount=amount)
            case "slow-node":
                return self._at_node(at_ms, kind, choices.integer(50, 1_500), amount=choices.integer(1, 300))
            case "disk-full":
                amount = choices.one_of((0, 100, 1_000))
                return self._at_node(at_ms, kind, choices.integer(50, 800), amount=amount)
            case "read-only":
                return self._at_node(at_ms, kind, choices.integer(50, 800))
            case "hold" | "lose":
                messages = choices.one_of(MESSAGES)
                return self._at_node(at_ms, kind, choices.one_of((700, 200, 1_500)), messages=messages)
            case "clock-jump":
                return self._at_node(at_ms, kind, 0, amount=choices.integer(-MAX_CLOCK_JUMP_MS, MAX_CLOCK_JUMP_MS))
            case _:
                return self._everywhere(at_ms, kind)

    def _everywhere(self, at_ms: int, kind: str) -> Fault:
        """Faults of the network, and operations."""
        choices = self._choices
        match kind:
            case "slow":
                return Fault(at_ms=at_ms, kind="slow", for_ms=choices.integer(50, 800), amount=choices.integer(1, 200))
            case "reset":
                return Fault(at_ms=at_ms, kind="reset", amount=choices.one_of((100, 50)))
            case "flaky":
                return Fault(at_ms=at_ms, kind="flaky", for_ms=choices.integer(50, 800), amount=choices.one_of((2, 10)))
            case "reassign":
                name, partition = self._partition()
                return Fault(at_ms=at_ms, kind="reassign", topic=name, partition=partition, others=self._replicas())
            case "config":
                name, _ = self._partition()
                configs = choices.one_of(
                    ({"min.insync.replicas": "2"}, {"min.insync.replicas": "1"}, {"internal.segment.bytes": "3000"})
                )
                return Fault(at_ms=at_ms, kind="config", topic=name, configs=configs)
            case _:
                return Fault(at_ms=at_ms, kind="elect-preferred")

    def _replicas(self) -> tuple[int, ...]:
        """Some nodes in some order: two or three."""
        choices = self._choices
        rest = [*self._nodes]
        count = choices.one_of((MOST_REPLICAS, MOST_REPLICAS, 2))
        return tuple(rest.pop(choices.integer(0, len(rest) - 1)) for _ in range(min(count, len(rest))))

    def _partition(self) -> tuple[str, int]:
        chosen = self._choices.one_of(self._topics)
        return chosen.name, self._choices.integer(0, chosen.partitions - 1)

    def _down_ms(self) -> int:
        return self._choices.one_of((1_000, 20, 300, LONGEST_DOWN_MS))

    def _at_node(self, at_ms: int, kind: str, for_ms: int, **more: object) -> Fault:
        """A fault of one node: mostly the leader of some partition."""
        choices = self._choices
        role = choices.one_of(("leader", "leader", "controller", ""))
        name, partition = self._partition() if role == "leader" else ("", 0)
        node = choices.one_of(self._nodes)
        said = {"at_ms": at_ms, "kind": kind, "for_ms": for_ms, "node": node, "role": role}
        return Fault.model_validate(said | {"topic": name, "partition": partition} | more)
