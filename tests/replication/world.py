"""A seeded world of one partition with three replicas: real logs on disks that forget, fetchers over real bytes.

Everything that takes time in a cluster takes its time here: each broker replays the metadata when chance lets it, messages
are delivered in any order between different brokers or never, brokers are fenced, crash with or without their un-fsynced
tail, stop and come back. After every step all promises are checked. `heal` lets everything come to rest.
"""

from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.records.batch import build
from reference.protocol.records.record import Record
from reference.replication.fetcher import Fetcher, FetchSettings
from reference.replication.partition import Partition, Role
from reference.replication.partition_state import NO_BROKER, Peer, TruncationRule
from reference.replication.proposal import Proposal
from reference.storage.config import LogConfig
from reference.storage.disk import SimulatedDisk
from reference.storage.log import Log
from tests.replication.promises import Content, Promises
from tests.replication.replicas import NOW, TOPIC_ID, contents
from tests.replication.serving import LeaderSide, Response
from tests.replication.tiny_controller import TinyController

NODES = (1, 2, 3)
HEALING_ROUNDS = 120
FOLDER = Path("/data/t-0")

CHANGES_LOG = {"Produce", "AppendFetched", "Truncate", "BecomeFollower", "Restart"}


@dataclass
class Message:
    """Something on its way; a broker that is gone gets and sends nothing."""

    kind: str
    source: int
    target: int
    body: Any
    fetcher: Fetcher | None = None
    """Who waits for the answer to a fetch; None where nobody does any more."""
    not_before: int = 0


@dataclass
class Awaited:
    """A record with acks=all that its leader has not answered yet."""

    partition: Partition
    end: int
    value: bytes


@dataclass
class Broker:
    """One node: its disk outlives it."""

    node: int
    disk: SimulatedDisk = field(default_factory=SimulatedDisk)
    state: str = "running"
    """running, crashed, stopped; or back, and not registered yet: recovered, returned."""
    broker_epoch: int = -1
    replayed: int = 0
    registered_at: int = 0
    """Entries of the metadata log that it has replayed, and those that it must have before it is unfenced."""
    registry: dict[int, Peer] = field(default_factory=dict[int, Peer])
    was_short: bool = False
    """Was it short of records before it crashed?"""
    checkpoint: int = 0
    partition: Partition = None  # type: ignore[assignment]
    side: LeaderSide = None  # type: ignore[assignment]
    fetchers: dict[int, Fetcher] = field(default_factory=dict[int, Fetcher])
    content: Content = field(default_factory=list[tuple[int, bytes]])
    is_changed: bool = False

    @property
    def is_running(self) -> bool:
        return self.state == "running"

    def peer(self, node: int) -> Peer | None:
        return Peer(self.broker_epoch) if node == self.node else self.registry.get(node)


class World:
    """One partition's incarnation."""

    def __init__(
        self,
        seed: int,
        *,
        truncation: TruncationRule = "leader-epoch",
        min_isr: int = 2,
        as_specified: bool = False,
        power_losses: bool = True,
    ) -> None:
        """`as_specified` leaves out what Kafka allows and the specification does not, so that traces can be checked."""
        self.chance = Random(seed)
        self.now = NOW
        self.min_isr = min_isr
        self.truncation: TruncationRule = truncation
        self.as_specified = as_specified
        self.power_losses = power_losses
        self.lag_max_ms = self.chance.choice((3_000, 10_000, 30_000))
        self.fetch_bytes = self.chance.choice((1, 1 << 20))
        """With 1, each answer brings one batch: followers stay behind for longer."""
        self.rows: list[dict[str, Any]] = []
        self.promises = Promises(min_isr)
        self.controller = TinyController(NODES, min_isr, self.chance, self._trace_controller)
        self.first_record = self.controller.record
        self.messages: list[Message] = []
        self.awaited: list[Awaited] = []
        self.produced = 0
        self.short: set[int] = set()
        """Brokers that lost a tail, or may have, and have not rejoined the ISR since."""
        self.unclean: set[int] = set()
        """Brokers that crashed, with or without a tail, and have not registered since."""
        self.counts: dict[str, int] = {}
        self.brokers = {node: Broker(node) for node in NODES}
        for broker in self.brokers.values():
            broker.disk.make_folder(FOLDER.parent)
            broker.disk.sync_folder(Path("/"))
            broker.broker_epoch = self.controller.registry[broker.node].broker_epoch
            self._open(broker, clean=True)

    # ---- telling

    def _trace_controller(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        self.counts[row["action"]] = self.counts.get(row["action"], 0) + 1
        for broker in self.brokers.values() if hasattr(self, "brokers") else ():
            broker.is_changed = True

    def _trace_step(self, broker: Broker, action: str, row: Any) -> None:
        self.rows.append(dict(row))
        self.counts[action] = self.counts.get(action, 0) + 1
        broker.is_changed = True
        if action in CHANGES_LOG:
            broker.content = [(epoch, value) for _, epoch, value in contents(broker.partition.log)]
        self.promises.on_step(action, broker.partition)

    def _trace_end(self, broker: Broker, action: str) -> None:
        partition = broker.partition
        state = {"leo": partition.log.log_end_offset, "hw": partition.high_watermark, "leaderEpoch": -1}
        self._trace_step(
            broker, action, {"node": broker.node, "action": action, "args": {"broker": broker.node}, **state}
        )

    # ---- lives

    def _open(self, broker: Broker, *, clean: bool) -> None:
        log = Log(broker.disk, FOLDER, LogConfig(), self.now, topic="t", partition=0, topic_id=TOPIC_ID, clean=clean)
        broker.partition = Partition(
            "t", TOPIC_ID, 0, log, broker.node, brokers=broker.peer, truncation=self.truncation, min_isr=self.min_isr,
            lag_max_ms=self.lag_max_ms, trace=lambda action, row: self._trace_step(broker, action, row),
        )  # fmt: skip
        broker.side = LeaderSide(lambda topic, index: broker.partition)
        broker.fetchers = {}
        broker.registry = {}

    def crash(self, broker: Broker, *, loses_tail: bool) -> None:
        """The process is gone; with `loses_tail` the machine is, too."""
        if not broker.is_running or (loses_tail and len(self.short | {broker.node}) >= self.min_isr):
            return
        if not self.controller.could_elect_without(broker.node, self.unclean | {broker.node}):
            return
        self.unclean.add(broker.node)
        broker.was_short = broker.node in self.short
        self._trace_end(broker, "Crash")
        if loses_tail:
            broker.disk.lose_power(self.chance)
            self.short.add(broker.node)
        self._end_incarnation(broker, "crashed")

    def stop(self, broker: Broker) -> None:
        """A clean end, if the controller has let it go."""
        if not broker.is_running or not self.controller.could_elect_without(broker.node, self.unclean):
            return
        if not self.controller.registry[broker.node].is_fenced:
            self.controller.fence(broker.node, "ControlledShutdown")
        broker.checkpoint = broker.partition.high_watermark
        broker.partition.log.close()
        broker.partition.shut_down()
        self._end_incarnation(broker, "stopped")

    def _end_incarnation(self, broker: Broker, state: str) -> None:
        """Its last words may still be on their way: fetches to leaders, and a proposal to the controller."""
        broker.state = state
        self.awaited = [each for each in self.awaited if each.partition is not broker.partition]
        node = broker.node
        late = [each for each in self.messages if each.source == node and each.kind == "fetch"]
        self.messages = [
            each for each in self.messages if node not in (each.source, each.target) or each.kind == "proposal"
        ]
        for each in late:
            self._delay(each)
        for other in self.brokers.values():
            if node in other.fetchers:
                other.fetchers[node].failed(self.now)

    def restart(self, broker: Broker) -> None:
        if broker.state not in ("crashed", "stopped"):
            return
        if broker.state == "stopped":
            broker.was_short = broker.node in self.short
        was_clean, before = broker.state == "stopped", broker.partition.log.log_end_offset
        known = broker.partition.high_watermark
        self.messages = [each for each in self.messages if each.source != broker.node or each.kind == "fetch"]
        self._open(broker, clean=was_clean)
        broker.state = "returned" if was_clean else "recovered"
        broker.partition.restart(min(broker.checkpoint, known) if self.as_specified else broker.checkpoint)
        if broker.partition.log.log_end_offset == before and not broker.was_short:
            self.short.discard(broker.node)

    def register(self, broker: Broker) -> None:
        if broker.state not in ("recovered", "returned"):
            return
        is_clean = broker.state == "returned"
        self.unclean.discard(broker.node)
        broker.state = "running"
        broker.broker_epoch = self.controller.register(broker.node, clean=is_clean)
        # It acts by nothing that is older than its own registration.
        broker.replayed = len(self.controller.entries) - 1
        broker.registered_at = len(self.controller.entries)

    # ---- what brokers do

    def replay(self, broker: Broker) -> None:
        """Act by the next entry of the metadata log."""
        if not broker.is_running or broker.replayed == len(self.controller.entries):
            return
        entry = self.controller.entries[broker.replayed]
        broker.replayed += 1
        broker.registry = entry.registry
        partition = broker.partition
        partition.take_up(entry.state, self.now)
        if partition.role is Role.FOLLOWER and partition.state.leader != NO_BROKER:
            leader = partition.state.leader
            settings = FetchSettings(backoff_ms=50, partition_max_bytes=self.fetch_bytes)
            fetcher = broker.fetchers.setdefault(leader, Fetcher(leader, broker.node, broker.broker_epoch, settings))
            fetcher.follow(partition)

    def ask(self, broker: Broker) -> None:
        """Send what the fetchers have to ask."""
        if not broker.is_running:
            return
        for leader, fetcher in broker.fetchers.items():
            request = fetcher.next_request(self.now)
            if request is not None:
                self._send("fetch", broker.node, leader, request, fetcher)

    def propose(self, broker: Broker) -> None:
        if broker.is_running:
            broker.partition.shrink_isr(self.now)
            proposal = broker.partition.take_proposal()
            if proposal is not None:
                self._send("proposal", broker.node, 0, proposal)

    def checkpoint(self, broker: Broker) -> None:
        if broker.is_running:
            broker.checkpoint = broker.partition.high_watermark

    # ---- messages

    def _send(self, kind: str, source: int, target: int, body: Any, fetcher: Fetcher | None = None) -> None:
        self.messages.append(Message(kind, source, target, body, fetcher))

    def deliver(self, message: Message) -> None:
        self.messages.remove(message)
        {
            "fetch": self._deliver_fetch,
            "fetched": self._deliver_fetched,
            "proposal": self._deliver_proposal,
            "judged": self._deliver_judged,
        }[message.kind](message)

    def lose(self, message: Message) -> None:
        """The connection breaks: whoever asked hears that there will be no answer. A fetch may yet be heard, late."""
        self.messages.remove(message)
        if message.kind in ("fetch", "fetched"):
            if message.fetcher is not None:
                message.fetcher.failed(self.now)
            if message.kind == "fetch" and message.not_before == 0:
                self._delay(message)
        elif message.kind in ("proposal", "judged"):
            proposal = message.body if message.kind == "proposal" else message.body[0]
            node = message.source or message.target
            if self.brokers[node].is_running:
                self.brokers[node].partition.proposal_answered(proposal, ErrorCode.NETWORK_EXCEPTION, self.now)

    def _delay(self, message: Message) -> None:
        """The specification knows fetches that are late, but none that are overtaken by later ones of the same broker."""
        if self.as_specified:
            return
        message.fetcher = None
        message.not_before = self.now + self.chance.randrange(20_000)
        self.messages.append(message)

    def _deliver_fetch(self, message: Message) -> None:
        """A leader hears it even from an incarnation that is over; the answer then goes nowhere."""
        leader, request = self.brokers[message.target], message.body
        response = leader.side.answer(request, self.now) if leader.is_running else None
        if message.fetcher is None:
            return
        if response is None:
            message.fetcher.failed(self.now)
        else:
            self._send("fetched", message.target, message.source, response, message.fetcher)

    def _deliver_fetched(self, message: Message) -> None:
        response: Response = message.body
        assert message.fetcher is not None
        message.fetcher.answered(response, self.now)

    def _deliver_proposal(self, message: Message) -> None:
        proposal: Proposal = message.body
        members = set(self.controller.state.isr)
        error, state = self.controller.alter_partition(message.source, proposal)
        if error is ErrorCode.NONE:
            joined = {node for node in set(proposal.isr) - members if self.brokers[node].is_running}
            self.short -= joined
        self._send("judged", 0, message.source, (proposal, error, state))

    def _deliver_judged(self, message: Message) -> None:
        proposal, error, state = message.body
        broker = self.brokers[message.target]
        if broker.is_running:
            broker.partition.proposal_answered(
                proposal, error, self.now, leader_epoch=state.leader_epoch, partition_epoch=state.partition_epoch,
                isr=state.isr,
            )  # fmt: skip

    # ---- clients

    def produce(self, broker: Broker) -> None:
        """A client that takes this broker for the leader; it may be right."""
        if not broker.is_running:
            return
        acks = self.chance.choice((-1, -1, -1, 1))
        values = [b"%d" % (self.produced + more) for more in range(self.chance.choice((1, 1, 2)))]
        records = build([Record(index, self.now, None, value) for index, value in enumerate(values)])
        try:
            info = broker.partition.produce(records, self.now, required_acks=acks)
        except KafkaError as error:
            assert error.code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS)
            return
        self.produced += len(values)
        if acks == -1:
            self.awaited += [Awaited(broker.partition, info.last_offset + 1, value) for value in values]

    def answer_producers(self) -> None:
        """What a node does after every step."""
        waiting: list[Awaited] = []
        for each in self.awaited:
            code = each.partition.answer_to_produce(each.end)
            if code is ErrorCode.NONE:
                each.partition.acknowledge(each.end)
                self.promises.acknowledged.add(each.value)
            elif code is None:
                waiting.append(each)
        self.awaited = waiting

    # ---- steps

    def step(self) -> None:
        """Something happens."""
        broker = self.brokers[self.chance.choice(NODES)]
        self.now += self.chance.choice((0, 1, 5, 20, 100, 400))
        self.chance.choices([act for act, _ in ACTS], [weight for _, weight in ACTS])[0](self, broker)
        self.settle()

    def settle(self) -> None:
        self.answer_producers()
        self.check()

    def check(self) -> None:
        """Errors: Broken."""
        changed = [broker for broker in self.brokers.values() if broker.is_changed]
        if not changed:
            return
        logs = {node: broker.content for node, broker in self.brokers.items()}
        self.promises.check_logs(logs)
        for broker in self.brokers.values():
            broker.is_changed = False
            if broker.is_running:
                self.promises.check_high_watermark(broker.partition, broker.content)
        state = self.controller.state
        for broker in self.brokers.values():
            partition = broker.partition
            if broker.is_running and partition.is_leader and partition.leader_epoch == state.leader_epoch:
                self.promises.check_leader(partition, broker.content, state.isr)
        self.promises.check_eligible((set(state.isr) | self.controller.elr) - self.short, logs)

    def run(self, steps: int) -> None:
        """Errors: Broken."""
        for _ in range(steps):
            self.step()

    def heal(self) -> None:
        """No more faults: the cluster comes to rest. Errors: Broken."""
        for _ in range(HEALING_ROUNDS):
            self.now += 500
            for broker in self.brokers.values():
                self.restart(broker)
                self.register(broker)
                while broker.is_running and broker.replayed < len(self.controller.entries):
                    self.replay(broker)
                _unfence(self, broker)
                self.propose(broker)
                self.ask(broker)
                self.settle()
            for message in [*self.messages]:
                if message in self.messages:
                    self.deliver(message)
                    self.settle()

    @property
    def is_at_rest(self) -> bool:
        """All are in sync, equal and committed to the end."""
        contents_of_all = [broker.content for broker in self.brokers.values()]
        marks = {broker.partition.high_watermark for broker in self.brokers.values()}
        return (
            set(self.controller.state.isr) == set(NODES)
            and all(content == contents_of_all[0] for content in contents_of_all)
            and marks == {len(contents_of_all[0])}
            and not self.awaited
        )


def _unfence(world: World, broker: Broker) -> None:
    is_fenced = world.controller.registry[broker.node].is_fenced
    if (
        broker.is_running
        and is_fenced
        and broker.replayed >= broker.registered_at
        and broker.partition.role != Role.NONE
    ):
        world.controller.unfence(broker.node)


def _fence(world: World, broker: Broker) -> None:
    is_fenced = world.controller.registry[broker.node].is_fenced
    if not is_fenced and world.controller.could_elect_without(broker.node, world.unclean):
        world.controller.fence(broker.node)


def _deliver_any(world: World, broker: Broker) -> None:
    arriving = [each for each in world.messages if each.not_before <= world.now]
    if arriving:
        world.deliver(world.chance.choice(arriving))


def _lose_any(world: World, broker: Broker) -> None:
    if world.messages:
        world.lose(world.chance.choice(world.messages))


def _lose_power(world: World, broker: Broker) -> None:
    if world.power_losses:
        world.crash(broker, loses_tail=True)


def _flush(world: World, broker: Broker) -> None:
    if broker.is_running:
        broker.partition.log.flush(world.now)


ACTS = [
    (_deliver_any, 900),
    (World.ask, 500),
    (World.replay, 200),
    (World.produce, 300),
    (World.propose, 80),
    (_unfence, 60),
    (World.restart, 40),
    (World.register, 40),
    (_flush, 30),
    (World.checkpoint, 30),
    (_lose_any, 40),
    (_lose_power, 6),
    (lambda world, broker: world.controller.elect(broker.node), 4),
    (_fence, 3),
    (lambda world, broker: world.crash(broker, loses_tail=False), 3),
    (World.stop, 3),
]
"""What may happen, and how often beside the others."""
