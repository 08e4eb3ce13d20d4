"""One run of a scenario: a cluster that takes one command after the other.

A scenario is a text. A block begins with a command and `----`; the events that followed stand below, up to an empty line.
Lines that begin with `#` are prose. `play` runs the commands in a new world without chance (every message takes one
millisecond) and returns the text with the events of this run: the scenario holds if they are equal.

    topic orders replicas=1,2,3
    ----
    node 1  BecomeLeader         orders  epoch 0  end 0  hw 0  isr 1 2 3

The commands are the functions under COMMANDS; every command takes `for=MS` (how long to wait for events, default 50) and
`until=STEP` or `until=STEP@NODE`, which ends it with that action of the specification.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from linearizability.client.errors import error_name
from linearizability.client.producer_session import ProducerSession
from linearizability.client.requests import new_topic, produce_request, produced
from linearizability.simulation.client import SimulatedClient
from linearizability.simulation.cluster import SimulatedCluster
from linearizability.simulation.history_recorder import HistoryRecorder
from linearizability.simulation.line import Line
from linearizability.simulation.schedule import CLIENTS, Schedule
from linearizability.simulation.simulated_zookeeper import PLACE
from linearizability.simulation.world import MICROSECONDS_A_MS
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.primitives import NO_PRODUCER_ID, Offset, ProducerEpoch
from reference.protocol.records.batch import BatchProducer, build, read_batches, records_of
from reference.protocol.records.record import Record
from reference.replication.partition import Partition
from reference.storage.log import LogSlice

DEFAULT_WAIT_MS = 50
SETTLE_MS = 3_000
MOST_BYTES = 1 << 20
PRODUCE_TIMEOUT_MS = 1_500
MOST_TRIES = 20
ACKS = {"0": 0, "1": 1, "all": -1}
SHOWN_STEPS = {
    "BecomeLeader", "BecomeFollower", "Produce", "AppendFetched", "AdvanceHighWatermark", "AdoptHighWatermark", "Truncate",
    "ExpandIsr", "ShrinkIsr", "CommitIsr", "RollBackIsr", "Restart", "ShutDown",
}  # fmt: skip
"""Actions of partitions that a scenario shows."""
SHOWN_QUORUM_STEPS = {"BecomeLeader", "BecomeCandidate", "GrantVote"}
SHOWN_DECISIONS = {"CreateTopic", "ElectLeader", "RemoveReplicaFromIsr", "AlterPartition"}
"""What a controller writes to ZooKeeper."""
SHOWN_ZOOKEEPER_STEPS = {
    "RegisterBroker": "broker epoch {brokerEpoch}",
    "ElectController": "controller epoch {controllerEpoch}",
    "OnControllerFailover": "controller epoch {controllerEpoch}",
    "ResignController": "is the controller no more",
    "BrokerFailure": "of node {broker}",
    "BrokerStartup": "of node {broker}, broker epoch {brokerEpoch}",
    "RefuseRequest": "{request} of node {controller}, controller epoch {controllerEpoch}: {error}",
}
"""Steps of a cluster with ZooKeeper, and what is shown of them."""


class Refused(Exception):
    """A command that cannot be carried out; the message gives the reason in one line."""


class ScenarioClient(SimulatedClient):
    """The client of a scenario: sends one request to one node."""

    def __init__(self, cluster: SimulatedCluster, recorder: HistoryRecorder) -> None:
        super().__init__(cluster, 0, recorder)
        self.name = "client"

    def on_ready(self) -> None:
        """It acts upon commands only."""

    def refresh_soon(self) -> None:
        """It sends requests upon commands only."""

    def on_line_down(self, line: Line, reason: str) -> None:
        """Requests on a lost connection stay without a response."""

    def line(self, node: int) -> Line:
        return self._lines[node]


class ScenarioRun:
    """One world, its cluster, and the events since the last command."""

    def __init__(self, properties: Mapping[str, str], nodes: int, coordination: str = "kraft") -> None:
        """`coordination` as in schedules: with zookeeper its sessions, controllers and decisions are shown, too."""
        schedule = Schedule.model_validate(
            {
                "nodes": nodes,
                "properties": {"replica.fetch.wait.max.ms": "20", **properties},
                "topics": (),
                "coordination": coordination,
            }
        )
        self.cluster = SimulatedCluster(schedule, by_history=True)
        self.cluster.network.is_calm = True
        self.lines: list[str] = []
        self.arrows: list[tuple[str, str, str]] = []
        """Source, target (or the same), text: for the diagram."""
        self._client = ScenarioClient(self.cluster, HistoryRecorder(self.cluster.world, 0, schedule.contract()))
        self._until = ""
        self._has_come = False
        self._broken: set[str] = set()
        self.producer_id = NO_PRODUCER_ID
        self.sequences: dict[str, int] = {}
        self.last: tuple[str, bytes, dict[str, str]] | None = None
        assert self.cluster.checker is not None
        self.cluster.checker.listener = self._on_action

    # ---- time

    def wait(self, options: Mapping[str, str]) -> None:
        """Let time pass: as long as a command says, or until an action is taken."""
        world = self.cluster.world
        self._until = options.get("until", "")
        self._has_come = False
        for_ms = int(options.get("for", SETTLE_MS if self._until else DEFAULT_WAIT_MS))
        world.run(world.now_us + for_ms * MICROSECONDS_A_MS, (lambda: self._has_come) if self._until else None)
        if self._until and not self._has_come:
            self.lines.append(f"(no {self._until} within {for_ms} ms)")
        self._until = ""
        self._show_broken_promises()

    def _show_broken_promises(self) -> None:
        """Name each broken promise once."""
        broken = {name.removeprefix("broken ") for name in self.cluster.world.counts if name.startswith("broken ")}
        for rule in sorted(broken - self._broken):
            self.show(f"broken promise: {rule}", "world", "world")
        self._broken |= broken

    def _on_action(self, node: int, action: str, row: Mapping[str, Any]) -> None:
        """A node has traced an action of the specification."""
        if self._until in (action, f"{action}@{node}"):
            self._has_come = True
        partition = str(row.get("partition", ""))
        if partition.startswith("__cluster_metadata"):
            if action in SHOWN_QUORUM_STEPS:
                what = f"of the quorum, epoch {row['epoch']}"
                self._show_step(f"node {node}", row, action, what)
        elif action in SHOWN_ZOOKEEPER_STEPS and self.cluster.zookeeper is not None:
            self._show_step(f"node {node}", row, action, SHOWN_ZOOKEEPER_STEPS[action].format(**row["args"]))
        elif action in SHOWN_DECISIONS and self.cluster.zookeeper is not None and not partition.startswith("__"):
            self._show_step(f"node {node}", row, action, f"{partition.rpartition('-')[0]}  {_written(row['args'])}")
        elif action in SHOWN_STEPS and not partition.startswith("__"):
            self._show_step(f"node {node}", row, action, f"{partition.rpartition('-')[0]}  {_state_of(row)}")

    def _show_step(self, who: str, row: Mapping[str, Any], action: str, what: str) -> None:
        self.lines.append(f"{who}  {action:<20} {what}")
        arguments = row.get("args", {})
        source, target = who, who
        if action in ("AppendFetched", "AdoptHighWatermark", "Truncate"):
            source = f"node {arguments['leader']}"
        elif action == "GrantVote":
            target = f"node {row['to']}"
        elif action in SHOWN_DECISIONS or action in ("RegisterBroker", "ElectController"):
            target = "ZooKeeper"
        elif action in ("BrokerFailure", "BrokerStartup", "OnControllerFailover"):
            source = "ZooKeeper"
        elif action == "RefuseRequest":
            target = f"node {arguments['controller']}"
        self.arrows.append((source, target, f"{action}, {what}"))

    def show(self, text: str, source: str, target: str) -> None:
        """Show an event outside of the nodes, or a message to or from the client."""
        self.lines.append(f"{source}  {text}" if source == target else f"{source} → {target}  {text}")
        self.arrows.append((source, target, text))

    # ---- requests

    def ask(self, node: int, key: int, version: int, body: Any, answered: Callable[[Any], None] | None) -> None:
        """Let the client send a request to a node. Errors: Refused where the node does not accept connections."""
        line = self._client.line(node)
        world = self.cluster.world
        if not line.is_open:
            line.open()
        world.run(world.now_us + DEFAULT_WAIT_MS * MICROSECONDS_A_MS, lambda: line.is_up)
        if not line.is_up:
            raise Refused(f"the client does not reach node {node}")

        def on_answer(answer: Any, _: Any) -> None:
            assert answered is not None
            answered(answer)

        self._client.ask(key, version, body, on_answer if answered is not None else None, None, SETTLE_MS * 2, line)

    def partition(self, node: int, key: tuple[str, int]) -> Partition | None:
        found = self.cluster.machine(node).node
        return found.partitions.get(key) if found is not None else None

    def leader(self, topic: str) -> int:
        """The leader of the newest epoch in which a node leads. Errors: Refused where there is none."""
        leading = [
            (partition.leader_epoch, node)
            for node in self.cluster.schedule.node_ids
            if (partition := self.partition(node, (topic, 0))) is not None and partition.is_leader
        ]
        if not leading:
            raise Refused(f"{topic} has no leader")
        return max(leading)[1]


def _written(arguments: Mapping[str, Any]) -> str:
    """A partition's state as a decision wrote it."""
    state = arguments["state"]
    isr = " ".join(map(str, state["isr"]))
    written = f"leader {state['leader']}  epoch {state['leaderEpoch']}  isr {isr}"
    return f"{written}  in controller epoch {arguments['controllerEpoch']}"


def _state_of(row: Mapping[str, Any]) -> str:
    isr = f"  isr {' '.join(map(str, row['isr']))}" if "isr" in row else ""
    return f"epoch {row['leaderEpoch']}  end {row['leo']}  hw {row['hw']}{isr}"


# ---- commands


def _topic(run: ScenarioRun, words: list[str], options: dict[str, str]) -> None:
    """Create a topic with one partition whose replicas are given; the first of them leads."""
    replicas = [int(node) for node in options.get("replicas", "1,2,3").split(",")]
    configs = {CONFIGS[name]: value for name, value in options.items() if name in CONFIGS}
    if "min-isr" in options and run.cluster.checker is not None:
        run.cluster.checker.expect(words[0], int(options["min-isr"]))
    wanted = new_topic(words[0], configs=configs, placed=[replicas])

    def answered(body: Any) -> None:
        if body.topics[0].error_code != ErrorCode.NONE:
            run.show(f"refused: {error_name(body.topics[0].error_code)}", "node", "client")

    run.ask(replicas[0], 19, 7, CreateTopicsRequest(topics=[wanted], timeout_ms=1_000), answered)


CONFIGS = {"min-isr": "min.insync.replicas", "unclean": "unclean.leader.election.enable"}


def _produce(run: ScenarioRun, words: list[str], options: dict[str, str]) -> None:
    """Send records with the given values; `acks=`, `to=NODE`, `idempotent=yes`, `answer=lost`."""
    topic, values = words[0], words[1:]
    if options.get("idempotent") == "yes" and run.producer_id < 0:
        _producer_id(run, run.leader(topic))
    producer_id = run.producer_id if options.get("idempotent") == "yes" else NO_PRODUCER_ID
    sequence = run.sequences.get(topic, 0) if producer_id >= 0 else -1
    now = run.cluster.client_clock_ms()
    records = [Record(Offset(index), now, None, value.encode(), ()) for index, value in enumerate(values)]
    if producer_id >= 0:
        data = build(records, producer=BatchProducer(producer_id, ProducerEpoch(0), sequence))
    else:
        data = build(records)
    run.last = topic, bytes(data), options | {"values": " ".join(values)}
    run.sequences[topic] = sequence + len(values)
    _send(run, *run.last)


def _again(run: ScenarioRun, words: list[str], options: dict[str, str]) -> None:
    """Send the last batch again, as a producer without a response does."""
    if run.last is None:
        raise Refused("nothing was sent")
    topic, data, sent = run.last
    _send(
        run, topic, data, {**{name: value for name, value in sent.items() if name not in ("to", "answer")}, **options}
    )


def _send(run: ScenarioRun, topic: str, data: bytes, options: dict[str, str]) -> None:
    acks = options.get("acks", "all")
    node = int(options["to"]) if "to" in options else run.leader(topic)
    body = produce_request({(topic, 0): data}, acks=ACKS[acks], timeout_ms=PRODUCE_TIMEOUT_MS)
    values = options["values"]
    run.show(f"produce {values}, acks={acks}", "client", f"node {node}")

    def answered(body: Any) -> None:
        answer = produced(body)
        if options.get("answer") == "lost":
            run.show(f"the answer about {values} is lost", f"node {node}", f"node {node}")
        elif answer.error_code != ErrorCode.NONE:
            run.show(f"{values} refused: {error_name(answer.error_code)}", f"node {node}", "client")
        else:
            run.show(f"{values} acknowledged at offset {answer.base_offset}", f"node {node}", "client")

    run.ask(node, 0, 9, body, None if acks == "0" else answered)


def _producer_id(run: ScenarioRun, node: int) -> None:
    """Get a producer id; repeat the request while the node has none to give."""
    responses: list[Any] = []
    body = ProducerSession().begin()
    for _ in range(MOST_TRIES):
        responses.clear()
        run.ask(node, 22, 4, body, responses.append)
        run.cluster.world.run(run.cluster.world.now_us + 200 * MICROSECONDS_A_MS, lambda: bool(responses))
        if responses and responses[0].error_code == ErrorCode.NONE:
            run.producer_id = responses[0].producer_id
            return
    raise Refused("no producer id was given")


def _show(run: ScenarioRun, words: list[str], options: dict[str, str]) -> None:
    """What each replica of a topic holds: `offset:value@epoch`, a bar where its high watermark is."""
    for node in run.cluster.schedule.node_ids:
        partition = run.partition(node, (words[0], 0))
        if partition is None:
            if not run.cluster.machine(node).is_up:
                run.lines.append(f"node {node}  down")
            continue
        role = "waits" if partition.role is None else "leads" if partition.is_leader else "follows"
        held = _held(partition)
        before = " ".join(text for offset, text in held if offset < partition.high_watermark)
        behind = " ".join(text for offset, text in held if offset >= partition.high_watermark)
        isr = f"  isr {' '.join(map(str, partition.state.isr))}" if partition.is_leader else ""
        run.lines.append(f"node {node}  {role:<8} epoch {partition.leader_epoch}  [{before} | {behind}]{isr}")


def _held(partition: Partition) -> list[tuple[int, str]]:
    log, offset = partition.log, partition.log.log_start_offset
    held: list[tuple[int, str]] = []
    while offset < log.log_end_offset:
        found = log.read(offset, MOST_BYTES).records
        for batch in read_batches(found.read() if isinstance(found, LogSlice) else found):
            for record in records_of(batch.data):
                value = bytes(record.value or b"").decode()
                held.append((record.offset, f"{record.offset}:{value}@{batch.header.leader_epoch}"))
            offset = batch.header.next_offset
    return held


def _machines(act: str, text: str) -> Callable[[ScenarioRun, list[str], dict[str, str]], None]:
    """A command that does something to each of the named nodes."""

    def command(run: ScenarioRun, words: list[str], options: dict[str, str]) -> None:
        for word in words:
            machine = run.cluster.machine(int(word))
            run.show(text, f"node {word}", f"node {word}")
            if act == "lose_power":
                machine.lose_power(
                    run.cluster.world.chance(f"stage/{word}")
                )  # names the stream, on which traces depend
            else:
                getattr(machine, act)()

    return command


def _cut(run: ScenarioRun, words: list[str], options: dict[str, str]) -> None:
    """Nothing passes between the first node and the others any more (`clients`, `zookeeper` for those)."""
    places = {"clients": CLIENTS, "zookeeper": PLACE}
    first, *others = [places[word] if word in places else int(word) for word in words]
    others = others or [node for node in run.cluster.schedule.node_ids if node != first]
    run.cluster.network.cut([way for other in others for way in ((first, other), (other, first))])
    names = {CLIENTS: "the clients", PLACE: "ZooKeeper"}
    named = ", ".join(names.get(other, f"node {other}") for other in others)
    run.show(f"is cut off from {named}", f"node {first}", f"node {first}")


def _heal(run: ScenarioRun, words: list[str], options: dict[str, str]) -> None:
    """All ways are free again."""
    run.cluster.network.heal_all()


def _controller(run: ScenarioRun, words: list[str], options: dict[str, str]) -> None:
    """Who says to be the active controller, and in which epoch."""
    for machine in run.cluster.machines:
        if machine.controller_epoch >= 0:
            run.lines.append(f"node {machine.number}  is the active controller of epoch {machine.controller_epoch}")


def _nothing(run: ScenarioRun, words: list[str], options: dict[str, str]) -> None:
    """Only time passes."""


Command = Callable[[ScenarioRun, list[str], dict[str, str]], None]

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

__all__ = ["COMMANDS", "SILENT", "Refused", "ScenarioRun"]
