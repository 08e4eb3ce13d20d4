"""A stage for stories: a cluster in which one thing happens at a time, told as a conversation of commands and answers.

A scenario is a text. A block begins with a command and ends with `----`; below stands what was then seen, up to an empty
line. Lines that begin with `#` are prose. `play` runs the commands in a fresh world without chance (every message takes one
millisecond) and gives the text anew: where it is what was written, the story holds.

    topic orders replicas=1,2,3
    ----
    node 1  BecomeLeader         orders  epoch 0  end 0  hw 0  isr 1 2 3

The commands are the functions under COMMANDS; every command may say `for=MS` (how long is waited for what follows, default
50) and `until=STEP` or `until=STEP@NODE`, which ends it with that step of the specification.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from linearizability.simulation.client import SimulatedClient
from linearizability.simulation.life import Cluster
from linearizability.simulation.line import Line
from linearizability.simulation.notebook import Notebook
from linearizability.simulation.schedule import CLIENTS, Schedule
from linearizability.simulation.world import MICROSECONDS_A_MS
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.init_producer_id import InitProducerIdRequest
from reference.protocol.messages.produce import ProduceRequest
from reference.protocol.records.batch import build, read_batches, records_of
from reference.protocol.records.record import Record
from reference.replication.partition import Partition, Role
from reference.storage.log import LogSlice

DEFAULT_WAIT_MS = 50
SETTLE_MS = 3_000
MOST_BYTES = 1 << 20
PRODUCE_TIMEOUT_MS = 1_500
MOST_TRIES = 20
ACKS = {"0": 0, "1": 1, "all": -1}
TOLD = {
    "BecomeLeader", "BecomeFollower", "Produce", "AppendFetched", "AdvanceHighWatermark", "AdoptHighWatermark", "Truncate",
    "ExpandIsr", "ShrinkIsr", "CommitIsr", "RollBackIsr", "Restart", "ShutDown",
}  # fmt: skip
"""Steps of partitions that a story tells."""
TOLD_OF_QUORUM = {"BecomeLeader", "BecomeCandidate", "GrantVote"}


class Refused(Exception):
    """A command that cannot be carried out; says why in one line."""


class Teller(SimulatedClient):
    """The client on the stage: asks one node one thing, and says what came back."""

    def __init__(self, cluster: Cluster, notebook: Notebook) -> None:
        super().__init__(cluster, 0, notebook)
        self.name = "client"

    def on_ready(self) -> None:
        """Nothing is done by itself."""

    def refresh_soon(self) -> None:
        """Nothing is asked by itself."""

    def on_line_down(self, line: Line, reason: str) -> None:
        """What was asked there is not answered."""

    def line(self, node: int) -> Line:
        return self._lines[node]


class Stage:
    """One world, its cluster, and what was seen since the last command."""

    def __init__(self, properties: Mapping[str, str], nodes: int) -> None:
        schedule = Schedule(nodes=nodes, properties={"replica.fetch.wait.max.ms": "20", **properties}, topics=())
        self.cluster = Cluster(schedule, by_history=True)
        self.cluster.network.is_calm = True
        self.lines: list[str] = []
        self.arrows: list[tuple[str, str, str]] = []
        """Who, to whom (or the same), what: for the diagram."""
        self._client = Teller(self.cluster, Notebook(self.cluster.world, 0, schedule.contract()))
        self._until = ""
        self._has_come = False
        self._broken: set[str] = set()
        self.producer_id = -1
        self.sequences: dict[str, int] = {}
        self.last: tuple[str, bytes, dict[str, str]] | None = None
        assert self.cluster.witness is not None
        self.cluster.witness.listener = self._on_action

    # ---- time

    def wait(self, options: Mapping[str, str]) -> None:
        """Let time pass: as long as a command says, or until a step is made."""
        world = self.cluster.world
        self._until = options.get("until", "")
        self._has_come = False
        for_ms = int(options.get("for", SETTLE_MS if self._until else DEFAULT_WAIT_MS))
        world.run(world.now_us + for_ms * MICROSECONDS_A_MS, (lambda: self._has_come) if self._until else None)
        if self._until and not self._has_come:
            self.lines.append(f"(no {self._until} within {for_ms} ms)")
        self._until = ""
        self._tell_what_broke()

    def _tell_what_broke(self) -> None:
        """Name each promise once that did not hold."""
        broken = {name.removeprefix("broken ") for name in self.cluster.world.counts if name.startswith("broken ")}
        for rule in sorted(broken - self._broken):
            self.hear(f"broken promise: {rule}", "world", "world")
        self._broken |= broken

    def _on_action(self, node: int, action: str, row: Mapping[str, Any]) -> None:
        """A step of the specification happens."""
        if self._until in (action, f"{action}@{node}"):
            self._has_come = True
        partition = str(row.get("partition", ""))
        if partition.startswith("__cluster_metadata"):
            if action in TOLD_OF_QUORUM:
                what = f"of the quorum, epoch {row['epoch']}"
                self._say(f"node {node}", row, action, what)
        elif action in TOLD and not partition.startswith("__"):
            self._say(f"node {node}", row, action, f"{partition.rpartition('-')[0]}  {_state_of(row)}")

    def _say(self, who: str, row: Mapping[str, Any], action: str, what: str) -> None:
        self.lines.append(f"{who}  {action:<20} {what}")
        arguments = row.get("args", {})
        source, target = who, who
        if action in ("AppendFetched", "AdoptHighWatermark", "Truncate"):
            source = f"node {arguments['leader']}"
        elif action == "GrantVote":
            target = f"node {row['to']}"
        self.arrows.append((source, target, f"{action}, {what}"))

    def hear(self, text: str, source: str, target: str) -> None:
        """Somebody outside of the nodes is told something, or does something."""
        self.lines.append(f"{source}  {text}" if source == target else f"{source} → {target}  {text}")
        self.arrows.append((source, target, text))

    # ---- asking

    def ask(self, node: int, key: int, version: int, body: Any, answered: Callable[[Any], None] | None) -> None:
        """Let the client ask a node. Errors: Refused where nobody listens."""
        line = self._client.line(node)
        world = self.cluster.world
        if not line.is_open:
            line.open()
        world.run(world.now_us + DEFAULT_WAIT_MS * MICROSECONDS_A_MS, lambda: line.is_up)
        if not line.is_up:
            raise Refused(f"the client does not reach node {node}")
        told = (lambda answer, _: answered(answer)) if answered is not None else None
        self._client.ask(key, version, body, told, None, SETTLE_MS * 2, line)

    def partition(self, node: int, key: tuple[str, int]) -> Partition | None:
        found = self.cluster.machine(node).node
        return found.partitions.get(key) if found is not None else None

    def leader(self, topic: str) -> int:
        """Who leads, by the newest epoch that a node acts in. Errors: Refused where nobody does."""
        leading = [
            (partition.leader_epoch, node)
            for node in self.cluster.schedule.node_ids
            if (partition := self.partition(node, (topic, 0))) is not None and partition.is_leader
        ]
        if not leading:
            raise Refused(f"nobody leads {topic}")
        return max(leading)[1]


def _state_of(row: Mapping[str, Any]) -> str:
    isr = f"  isr {' '.join(map(str, row['isr']))}" if "isr" in row else ""
    return f"epoch {row['leaderEpoch']}  end {row['leo']}  hw {row['hw']}{isr}"


# ---- commands


def _topic(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """Create a topic with one partition whose replicas are given; the first of them leads."""
    replicas = [int(node) for node in options.get("replicas", "1,2,3").split(",")]
    request = CreateTopicsRequest
    configs = [
        request.CreatableTopicConfig(name=CONFIGS[name], value=value)
        for name, value in options.items()
        if name in CONFIGS
    ]
    if "min-isr" in options and stage.cluster.witness is not None:
        stage.cluster.witness.expect(words[0], int(options["min-isr"]))
    assignment = request.CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)
    wanted = request.CreatableTopic(
        name=words[0], num_partitions=-1, replication_factor=-1, assignments=[assignment], configs=configs
    )

    def answered(body: Any) -> None:
        if body.topics[0].error_code != ErrorCode.NONE:
            stage.hear(f"refused: {_name(body.topics[0].error_code)}", "node", "client")

    stage.ask(replicas[0], 19, 7, request(topics=[wanted], timeout_ms=1_000), answered)


CONFIGS = {"min-isr": "min.insync.replicas", "unclean": "unclean.leader.election.enable"}


def _produce(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """Send records with the given values; `acks=`, `to=NODE`, `idempotent=yes`, `answer=lost`."""
    topic, values = words[0], words[1:]
    if options.get("idempotent") == "yes" and stage.producer_id < 0:
        _producer_id(stage, stage.leader(topic))
    producer_id = stage.producer_id if options.get("idempotent") == "yes" else -1
    sequence = stage.sequences.get(topic, 0) if producer_id >= 0 else -1
    now = stage.cluster.client_clock_ms()
    records = [Record(index, now, None, value.encode(), ()) for index, value in enumerate(values)]
    if producer_id >= 0:
        data = build(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    else:
        data = build(records)
    stage.last = topic, bytes(data), options | {"values": " ".join(values)}
    stage.sequences[topic] = sequence + len(values)
    _send(stage, *stage.last)


def _again(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """Send the last batch again, as a producer does that had no answer."""
    if stage.last is None:
        raise Refused("nothing was sent")
    topic, data, said = stage.last
    _send(
        stage, topic, data, {**{name: value for name, value in said.items() if name not in ("to", "answer")}, **options}
    )


def _send(stage: Stage, topic: str, data: bytes, options: dict[str, str]) -> None:
    acks = options.get("acks", "all")
    node = int(options["to"]) if "to" in options else stage.leader(topic)
    partition = ProduceRequest.PartitionProduceData(index=0, records=data)
    body = ProduceRequest(
        acks=ACKS[acks],
        timeout_ms=PRODUCE_TIMEOUT_MS,
        topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[partition])],
    )
    values = options["values"]
    stage.hear(f"produce {values}, acks={acks}", "client", f"node {node}")

    def answered(body: Any) -> None:
        answer = body.responses[0].partition_responses[0]
        if options.get("answer") == "lost":
            stage.hear(f"the answer about {values} is lost", f"node {node}", f"node {node}")
        elif answer.error_code != ErrorCode.NONE:
            stage.hear(f"{values} refused: {_name(answer.error_code)}", f"node {node}", "client")
        else:
            stage.hear(f"{values} acknowledged at offset {answer.base_offset}", f"node {node}", "client")

    stage.ask(node, 0, 9, body, None if acks == "0" else answered)


def _producer_id(stage: Stage, node: int) -> None:
    """Get a producer id; while the node has none to give it is asked again."""
    heard: list[Any] = []
    body = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    for _ in range(MOST_TRIES):
        heard.clear()
        stage.ask(node, 22, 4, body, heard.append)
        stage.cluster.world.run(stage.cluster.world.now_us + 200 * MICROSECONDS_A_MS, lambda: bool(heard))
        if heard and heard[0].error_code == ErrorCode.NONE:
            stage.producer_id = heard[0].producer_id
            return
    raise Refused("no producer id was given")


def _show(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """What each replica of a topic holds: `offset:value@epoch`, a bar where its high watermark is."""
    for node in stage.cluster.schedule.node_ids:
        partition = stage.partition(node, (words[0], 0))
        if partition is None:
            if not stage.cluster.machine(node).is_up:
                stage.lines.append(f"node {node}  down")
            continue
        role = {Role.LEADER: "leads", Role.FOLLOWER: "follows", Role.NONE: "waits"}[partition.role]
        held = _held(partition)
        before = " ".join(text for offset, text in held if offset < partition.high_watermark)
        behind = " ".join(text for offset, text in held if offset >= partition.high_watermark)
        isr = f"  isr {' '.join(map(str, partition.reign.isr))}" if partition.is_leader else ""
        stage.lines.append(f"node {node}  {role:<8} epoch {partition.leader_epoch}  [{before} | {behind}]{isr}")


def _held(partition: Partition) -> list[tuple[int, str]]:
    log, offset, held = partition.log, partition.log.log_start_offset, []
    while offset < log.log_end_offset:
        found = log.read(offset, MOST_BYTES).records
        for batch in read_batches(found.read() if isinstance(found, LogSlice) else found):
            for record in records_of(batch.data):
                value = bytes(record.value or b"").decode()
                held.append((record.offset, f"{record.offset}:{value}@{batch.header.leader_epoch}"))
            offset = batch.header.next_offset
    return held


def _machines(act: str, tells: str) -> Callable[[Stage, list[str], dict[str, str]], None]:
    """A command that does something to each of the named nodes."""

    def command(stage: Stage, words: list[str], options: dict[str, str]) -> None:
        for word in words:
            machine = stage.cluster.machine(int(word))
            stage.hear(tells, f"node {word}", f"node {word}")
            if act == "lose_power":
                machine.lose_power(stage.cluster.world.chance(f"stage/{word}"))
            else:
                getattr(machine, act)()

    return command


def _cut(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """Nothing passes between the first node and the others any more (`clients` for all clients)."""
    first, *others = [CLIENTS if word == "clients" else int(word) for word in words]
    others = others or [node for node in stage.cluster.schedule.node_ids if node != first]
    stage.cluster.network.cut([way for other in others for way in ((first, other), (other, first))])
    named = ", ".join("the clients" if other == CLIENTS else f"node {other}" for other in others)
    stage.hear(f"is cut off from {named}", f"node {first}", f"node {first}")


def _heal(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """All ways are free again."""
    stage.cluster.network.heal_all()


def _controller(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """Who says to be the active controller, and in which epoch."""
    for machine in stage.cluster.machines:
        if machine.controller_epoch >= 0:
            stage.lines.append(f"node {machine.number}  is the active controller of epoch {machine.controller_epoch}")


def _nothing(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """Only time passes."""


def _name(code: int) -> str:
    return ErrorCode(code).name


Command = Callable[[Stage, list[str], dict[str, str]], None]

COMMANDS: dict[str, Command] = {
    "topic": _topic,
    "produce": _produce,
    "again": _again,
    "show": _show,
    "crash": _machines("crash", "is killed"),
    "power-loss": _machines("lose_power", "loses power"),
    "stop": _machines("stop", "is asked to stop"),
    "start": _machines("start", "is started"),
    "pause": _machines("pause", "stands still"),
    "resume": _machines("resume", "goes on"),
    "cut": _cut,
    "heal": _heal,
    "controller": _controller,
    "wait": _nothing,
}
SILENT = frozenset({"show", "controller"})
"""Commands during which no time passes."""

__all__ = ["COMMANDS", "SILENT", "Refused", "Stage"]
