"""The driver of transactions: takes a transactional id, its coordinator and the leaders of its partitions through a script.

Each is on a broker of its own. The messages between them wait for their steps: the verification by which a leader adds a
partition to a transaction before it appends (KIP-890), the coordinator's markers, and the responses to both. The driver
decides when the scripted client sends a request. So a write may arrive after its transaction, and markers are written singly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from linearizability.guided.coordinators import CoordinatorDriver
from linearizability.guided.scripted_transactor import TRANSACTION_TIMEOUT_MS, ScriptedTransactor
from linearizability.guided.scripts import TransactionScript, TransactionStep
from linearizability.simulation.cluster import SimulatedCluster
from linearizability.simulation.schedule import TRANSACTIONS_TOPIC
from linearizability.simulation.traffic import Message

WITHIN_MS = {"TimeOut": TRANSACTION_TIMEOUT_MS + 1_000, "TakeOver": 4_000}
"""How long a step may take: coordinators look for timeouts every 500 ms, a broker's session expires after 600 ms."""
DEFAULT_WITHIN_MS = 300

LETS_PASS = {
    "verification": frozenset({"AddPartitions", "AppendWrite", "DropWrite"}),
    "verification-answer": frozenset({"AppendWrite", "DropWrite"}),
    "markers": frozenset({"AppendMarker", "WriteMarker"}),
    "markers-answer": frozenset({"WriteMarker"}),
}
"""Kind of a message -> the steps of its partition that need it."""
OF_COORDINATOR = frozenset({"markers", "markers-answer"})
"""Requests of the coordinator; the others are requests to it."""


class Seen(NamedTuple):
    """A traced action."""

    action: str
    topic: str = ""
    marker: str = ""


class TransactionDriver(CoordinatorDriver[TransactionStep]):
    """Drives one transactional id, whose client is scripted."""

    topic = TRANSACTIONS_TOPIC

    def __init__(self, cluster: SimulatedCluster, script: TransactionScript, client: ScriptedTransactor) -> None:
        super().__init__(cluster, script.steps, script.brokers)
        self._script = script
        self._client = client
        self._topics = dict(zip(script.brokers[1:], script.topics, strict=True))
        self._seen: set[Seen] = set()

    # ---- the beginning

    def start(self) -> None:
        """The specification's first state: the first broker is the coordinator, and a session has begun."""
        self._bring_shard(lambda: self._client.has_found_coordinator, self._begin_session)

    def _serves(self) -> bool:
        node = self._cluster.machine(self._nodes[0]).node
        return node is not None and bool(node.transactions.coordination.loaded())

    def _begin_session(self) -> None:
        self._gates.filter = self
        self._client.begin_session()
        self._wait_until(lambda: self._client.has_session, self._next_step)

    # ---- steps

    def _bound_ms(self, step: TransactionStep) -> int:
        return WITHIN_MS.get(step.action, DEFAULT_WITHIN_MS)

    def _act(self, step: TransactionStep) -> None:
        act = ACTS.get(step.action)
        if act is not None:
            self._seen.discard(self._sign_of(step))
            act(self, step)

    def _is_made(self, step: TransactionStep) -> bool:
        if step.action == "SendWrite":
            return self._has_sent(step)
        if step.action == "DropWrite":
            return (step.broker, step.transaction) not in self._client.writes or self._has_dropped(step)
        return self._sign_of(step) in self._seen

    def _on_made(self, step: TransactionStep) -> None:
        self._seen.discard(self._sign_of(step))
        if step.action == "TimeOut":
            self._client.lose_session()

    def _sign_of(self, step: TransactionStep) -> Seen:
        """The action that a node traces when the step is taken."""
        topic = self._topics.get(step.broker, "")
        if step.action == "SendWrite":
            return Seen("AddPartitions", topic)
        return Seen(step.action, topic, step.marker)

    def _has_sent(self, step: TransactionStep) -> bool:
        """A client whose last transaction is not complete writes as soon as it is."""
        name = step.broker, step.transaction
        if name not in self._client.writes and self._client.has_session:
            self._client.write(name)
        has_joined = self._script.version > 1 or self._sign_of(step) in self._seen
        return name in self._client.writes and has_joined

    def _has_dropped(self, step: TransactionStep) -> bool:
        """A write that was not sent is lost at once; one that waits for its verification, with that response."""
        name = step.broker, step.transaction
        if self._client.writes[name].may_arrive:
            return False
        self._client.give_up(name)
        return True

    # ---- acts

    def _let_arrive(self, step: TransactionStep) -> None:
        self._client.let_arrive((step.broker, step.transaction))

    def _end(self, step: TransactionStep) -> None:
        self._client.end(step.marker == "commit")

    def _new_session(self, step: TransactionStep) -> None:
        self._client.begin_session()

    def _restart_coordinator(self, step: TransactionStep) -> None:
        """The coordinator's process is killed and starts again with its log alone."""
        machine = self._cluster.machine(self._nodes[0])
        machine.crash()
        machine.start()

    def _begin_session_if_none(self, step: TransactionStep) -> None:
        """A fenced client needs a new session before it writes."""
        if not self._client.has_session and not self._client.is_busy:
            self._client.begin_session()

    # ---- what has happened

    def on_action(self, number: int, action: str, row: Mapping[str, Any]) -> None:
        """Record a traced action."""
        args = row.get("args", {})
        if row.get("transactionalId") == self._script.id:
            named = [args["partition"]] if "partition" in args else args.get("partitions", ())
            marker = ("commit" if args["committed"] else "abort") if action == "EndTransaction" else ""
            for topic in [each.rpartition("-")[0] for each in named] or [""]:
                self._seen.add(Seen(action, topic, marker))
        elif "producer" in args and number in self._topics:
            name = "AppendMarker" if "marker" in args else "AppendWrite"
            self._seen.add(Seen(name, self._topics[number], args.get("marker", "")))

    # ---- filtering messages

    def holds(self, message: Message) -> bool:
        """Whether a message must wait for a later step."""
        passing = LETS_PASS.get(message.kind)
        return passing is not None and not self._is_about(message, passing)

    def loses(self, message: Message) -> bool:
        """DropWrite: the response to a verification is lost, and the write with it."""
        return message.kind == "verification-answer" and self._is_about(message, frozenset({"DropWrite"}))

    def _is_about(self, message: Message, actions: frozenset[str]) -> bool:
        leader = message.asked if message.kind in OF_COORDINATOR else message.asker
        return self._step is not None and self._step.action in actions and self._step.broker == leader

    # ---- the end

    def _on_end(self) -> None:
        self._client.retire()


Act = Callable[[TransactionDriver, TransactionStep], None]
ACTS: dict[str, Act] = {
    "SendWrite": TransactionDriver._begin_session_if_none,
    "AddPartitions": TransactionDriver._let_arrive,
    "AppendWrite": TransactionDriver._let_arrive,
    "EndTransaction": TransactionDriver._end,
    "NewSession": TransactionDriver._new_session,
    "TakeOver": TransactionDriver._restart_coordinator,
}
"""Steps that the client or a fault causes, beyond letting messages pass."""
