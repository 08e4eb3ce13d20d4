"""The conductor of transactions: plays a score on one transactional id, its coordinator, and the leaders of its partitions.

What passes between these, each on a broker of its own, waits for its cue: the question by which a leader has a partition
join a transaction before it appends (KIP-890), the markers of the coordinator, and the answers to both. The client asks when
it is told to. So a write may arrive when its transaction is over, and markers are written one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from linearizability.simulation.conducting.shards import ShardConductor
from linearizability.simulation.coordinator_scores import TransactionCue, TransactionScore
from linearizability.simulation.prompting_transactions import TRANSACTION_TIMEOUT_MS, PromptedTransactor
from linearizability.simulation.schedule import TRANSACTIONS_TOPIC
from linearizability.simulation.traffic import Message

if TYPE_CHECKING:
    from linearizability.simulation.life import Cluster

WITHIN_MS = {"TimeOut": TRANSACTION_TIMEOUT_MS + 1_000, "TakeOver": 4_000}
"""How long a step may take: who looks for timeouts does so every 500 ms, a broker's session is over after 600 ms."""
DEFAULT_WITHIN_MS = 300

LETS_PASS = {
    "verification": frozenset({"AddPartitions", "AppendWrite", "DropWrite"}),
    "verification-answer": frozenset({"AppendWrite", "DropWrite"}),
    "markers": frozenset({"AppendMarker", "WriteMarker"}),
    "markers-answer": frozenset({"WriteMarker"}),
}
"""Kind of a message -> the steps of its partition that need it."""
OF_COORDINATOR = frozenset({"markers", "markers-answer"})
"""What the coordinator asks; the other questions are asked of it."""


class Seen(NamedTuple):
    """A step that was made, by what a trace tells of it."""

    action: str
    topic: str = ""
    marker: str = ""


class TransactionConductor(ShardConductor[TransactionCue]):
    """Plays one score on a transactional id, whose client is prompted."""

    topic = TRANSACTIONS_TOPIC

    def __init__(self, cluster: Cluster, score: TransactionScore, client: PromptedTransactor) -> None:
        super().__init__(cluster, score.cues, score.brokers)
        self._score = score
        self._client = client
        self._topics = dict(zip(score.brokers[1:], score.topics, strict=True))
        self._seen: set[Seen] = set()

    # ---- the beginning

    def start(self) -> None:
        """The first broker coordinates, and a session has begun: the specification's first state."""
        self._bring_shard(lambda: self._client.has_found_coordinator, self._begin_session)

    def _serves(self) -> bool:
        node = self._cluster.machine(self._places[0]).node
        return node is not None and bool(node.transactions.coordination.loaded())

    def _begin_session(self) -> None:
        self._gates.doorkeeper = self
        self._client.begin_session()
        self._wait_until(lambda: self._client.has_session, self._call)

    # ---- cues

    def _bound_ms(self, cue: TransactionCue) -> int:
        return WITHIN_MS.get(cue.action, DEFAULT_WITHIN_MS)

    def _act(self, cue: TransactionCue) -> None:
        act = ACTS.get(cue.action)
        if act is not None:
            self._seen.discard(self._sign_of(cue))
            act(self, cue)

    def _is_made(self, cue: TransactionCue) -> bool:
        if cue.action == "SendWrite":
            return self._has_sent(cue)
        if cue.action == "DropWrite":
            return (cue.broker, cue.transaction) not in self._client.writes or self._has_dropped(cue)
        return self._sign_of(cue) in self._seen

    def _on_made(self, cue: TransactionCue) -> None:
        self._seen.discard(self._sign_of(cue))
        if cue.action == "TimeOut":
            self._client.lose_session()

    def _sign_of(self, cue: TransactionCue) -> Seen:
        """What a trace tells when the step is made."""
        topic = self._topics.get(cue.broker, "")
        if cue.action == "SendWrite":
            return Seen("AddPartitions", topic)
        return Seen(cue.action, topic, cue.marker)

    def _has_sent(self, cue: TransactionCue) -> bool:
        """Who may not write yet, for its last transaction is not complete, writes as soon as it may."""
        name = cue.broker, cue.transaction
        if name not in self._client.writes and self._client.has_session:
            self._client.write(name)
        has_joined = self._score.version > 1 or self._sign_of(cue) in self._seen
        return name in self._client.writes and has_joined

    def _has_dropped(self, cue: TransactionCue) -> bool:
        """What never left is lost at once; what waits for the coordinator's answer, with that answer."""
        name = cue.broker, cue.transaction
        if self._client.writes[name].may_arrive:
            return False
        self._client.give_up(name)
        return True

    # ---- acts

    def _let_arrive(self, cue: TransactionCue) -> None:
        self._client.let_arrive((cue.broker, cue.transaction))

    def _end(self, cue: TransactionCue) -> None:
        self._client.end(cue.marker == "commit")

    def _begin_anew(self, cue: TransactionCue) -> None:
        self._client.begin_session()

    def _take_over(self, cue: TransactionCue) -> None:
        """The coordinator is killed; what comes back has the log, and nothing else."""
        machine = self._cluster.machine(self._places[0])
        machine.crash()
        machine.start()

    def _begin_session_if_none(self, cue: TransactionCue) -> None:
        """Whoever was fenced needs a new session before it writes."""
        if not self._client.has_session and not self._client.is_busy:
            self._client.begin_session()

    # ---- what has happened

    def on_action(self, number: int, action: str, row: Mapping[str, Any]) -> None:
        """A step of the specification happens."""
        told = row.get("args", {})
        if row.get("transactionalId") == self._score.id:
            named = [told["partition"]] if "partition" in told else told.get("partitions", ())
            marker = ("commit" if told["committed"] else "abort") if action == "EndTransaction" else ""
            for topic in [each.rpartition("-")[0] for each in named] or [""]:
                self._seen.add(Seen(action, topic, marker))
        elif "producer" in told and number in self._topics:
            name = "AppendMarker" if "marker" in told else "AppendWrite"
            self._seen.add(Seen(name, self._topics[number], told.get("marker", "")))

    # ---- what must wait

    def holds(self, message: Message) -> bool:
        """Whether a message has no cue yet."""
        passing = LETS_PASS.get(message.kind)
        return passing is not None and not self._is_about(message, passing)

    def loses(self, message: Message) -> bool:
        """A write is lost while its leader waits for the coordinator."""
        return message.kind == "verification-answer" and self._is_about(message, frozenset({"DropWrite"}))

    def _is_about(self, message: Message, actions: frozenset[str]) -> bool:
        leader = message.asked if message.kind in OF_COORDINATOR else message.asker
        return self._cue is not None and self._cue.action in actions and self._cue.broker == leader

    # ---- the end

    def _on_leaving(self) -> None:
        self._client.retire()


Act = Callable[[TransactionConductor, TransactionCue], None]
ACTS: dict[str, Act] = {
    "SendWrite": TransactionConductor._begin_session_if_none,
    "AddPartitions": TransactionConductor._let_arrive,
    "AppendWrite": TransactionConductor._let_arrive,
    "EndTransaction": TransactionConductor._end,
    "NewSession": TransactionConductor._begin_anew,
    "TakeOver": TransactionConductor._take_over,
}
"""Steps that somebody has to do something for, beyond letting messages pass."""
