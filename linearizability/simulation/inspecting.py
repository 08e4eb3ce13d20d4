"""A client that asks, once all is healed, for what administrators ask, and for what must be refused.

It goes through *chapters*: generators that yield one question after the other and are sent the answers. A chapter knows what is
right from the node's state, from its own requests, or from the protocol: a list agrees with what the coordinator keeps, a filter
lets through what it names, a refusal has its reason. What differs is asked again from the chapter's beginning, since a leader may
change between two answers; what still differs at the end of the run's patience is a violation (`answer-differs`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from linearizability.client.errors import errors_in
from linearizability.simulation.client import Key, SimulatedClient
from linearizability.simulation.cluster import SimulatedCluster
from linearizability.simulation.configuration import CONTROLLER, PLAINTEXT
from linearizability.simulation.history_recorder import HistoryRecorder
from linearizability.simulation.line import BACKOFF_MS, Line
from linearizability.simulation.schedule import GROUPS_TOPIC, TRANSACTIONS_TOPIC
from linearizability.simulation.world import MICROSECONDS_A_MS
from reference.node.node import Node
from reference.protocol.errors import ErrorCode, name_of
from reference.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsResponse
from reference.protocol.primitives import NO_UUID
from reference.protocol.schema import Message
from reference.replication.partition import Partition

LONGEST_PAUSE_MS = 1_000
"""Longest wait before a question is repeated; the wait doubles each time."""


class Question(NamedTuple):
    """A request of a version to a node, or to the home where none is named."""

    body: Message
    version: int
    node: int | None = None
    listener: str = PLAINTEXT


UNREADABLE = (LookupError, TypeError, ValueError, AttributeError)
"""What a chapter raises that finds less in an answer, or in the node's state, than must be there."""

Chapter = Generator[Question, Any, None]
Part = Generator[Question, Any, Any]
"""Part of a chapter's questions. May return a result."""

Chapters = Sequence[Callable[["Inspector"], Chapter]]


class Differs(Exception):
    """An answer is not what it must be; the chapter begins again."""


class Inspector(SimulatedClient):
    """Goes through its chapters; `difference` says what the last answer that differed lacks."""

    def __init__(self, cluster: SimulatedCluster, number: int, recorder: HistoryRecorder, chapters: Chapters) -> None:
        super().__init__(cluster, number, recorder)
        self._left = [*chapters]
        self._chapter: Chapter | None = None
        self._question: Question | None = None
        self._is_pausing = False
        self._attempts = 0
        self._pause_ms = BACKOFF_MS
        self._controllers = {
            machine.number: Line(self, cluster.network, machine, CONTROLLER) for machine in cluster.machines
        }
        self.difference = "no node answered"

    # ---- what chapters know

    @property
    def scratch(self) -> str:
        """Return a name that no other client uses, a new one for each attempt."""
        return f"{self.name.replace(' ', '-')}-{self._attempts}"

    def coordinator(self, topic: str) -> int:
        """Return the leader of a coordinator topic's only partition. Errors: Differs."""
        node = self.cluster.machines[0].number if self.cluster.is_alone else self.cluster.leader_of((topic, 0))
        if node is None:
            raise Differs(f"{topic} has no leader")
        return node

    def active_controller(self) -> int:
        """Return the active controller. Errors: Differs if there is none."""
        number = self.cluster.active_controller()
        if number is None:
            raise Differs("no node is the active controller")
        return number

    def node(self, number: int) -> Node:
        """Return a node's state. Errors: Differs if it is down."""
        node = self.cluster.machine(number).node
        if node is None:
            raise Differs(f"node {number} is down")
        return node

    def topic_id(self, topic: str) -> UUID:
        """Errors: Differs, while the home does not know it."""
        id = self.node(self._home).image.topic_id(topic)
        if id == NO_UUID:
            raise Differs(f"{topic} is not known")
        return id

    def leader(self, key: Key) -> tuple[int, Partition]:
        """Return a partition's leader and its replica there. Errors: Differs."""
        node = self.cluster.machines[0].number if self.cluster.is_alone else self.cluster.leader_of(key)
        partition = self.node(node).partitions.get(key) if node is not None else None
        if node is None or partition is None or not partition.is_leader:
            raise Differs(f"{key[0]}-{key[1]} has no leader")
        return node, partition

    def group_shard(self) -> tuple[int, Any]:
        """Return the group coordinator and its state. Errors: Differs."""
        number = self.coordinator(GROUPS_TOPIC)
        return number, _loaded(self.node(number).groups.coordination.loaded_shard(0))

    def transaction_shard(self) -> tuple[int, Any]:
        """Return the transaction coordinator and its state. Errors: Differs."""
        number = self.coordinator(TRANSACTIONS_TOPIC)
        return number, _loaded(self.node(number).transactions.coordination.loaded_shard(0))

    # ---- going on

    def on_ready(self) -> None:
        self._go_on()

    def on_leader_ready(self, line: Line) -> None:
        self._go_on()

    def on_lost(self, line: Line) -> None:
        self._begin_again("a connection was lost")

    def finish(self) -> None:
        super().finish()
        for line in self._controllers.values():
            line.close()

    def _begin_again(self, difference: str) -> None:
        self.difference = f"{self._left[0].__name__}: {difference}" if self._left else difference
        self._chapter = self._question = None
        self._attempts += 1
        self._pause()

    def _pause(self) -> None:
        if not self._is_pausing and not self.finished:
            self._is_pausing = True
            self.world.after(self._pause_ms * MICROSECONDS_A_MS, self._woken)
            self._pause_ms = min(2 * self._pause_ms, LONGEST_PAUSE_MS)

    def _woken(self) -> None:
        self._is_pausing = False
        self._go_on()

    @property
    def in_flight(self) -> int:
        return super().in_flight + sum(line.in_flight for line in self._controllers.values())

    def _go_on(self) -> None:
        if self.finished or self._is_pausing or self.in_flight:
            return
        if self._question is None:
            self._step(None)
        if self._question is not None and not self.finished:
            line = self._line_for(self._question)
            if line is None:
                self._pause()
            else:
                key = type(self._question.body).KEY
                self.ask(key, self._question.version, self._question.body, self._answered, line=line)

    def _line_for(self, question: Question) -> Line | None:
        if question.listener == CONTROLLER:
            line = self._controllers[question.node if question.node is not None else self._home]
            if not line.is_open and self.world.now_us >= line.not_before_us:
                line.open()
            return line if line.is_up else None
        if question.node is None:
            return self.home if self.home.is_up else None
        return self.line_to(question.node)

    def _answered(self, body: Message, _: Any) -> None:
        self._question = None
        self.world.counts["inspected answers"] += 1
        self._step(body)
        self._go_on()

    def _step(self, answer: Message | None) -> None:
        """Return the next question, from the next chapter if this one is over."""
        try:
            while self._left:
                if self._chapter is None:
                    self._chapter, answer = self._left[0](self), None
                try:
                    self._question = self._chapter.send(answer)
                    return
                except StopIteration:
                    self._chapter = None
                    self._left.pop(0)
                    self._pause_ms = BACKOFF_MS
        except Differs as difference:
            self._begin_again(str(difference))
        except UNREADABLE as error:
            self._begin_again(
                f"an answer lacks what it must have: {type(error).__name__}: {error} in {str(answer)[:300]}"
            )
        else:
            self.finish()


def _loaded(shard: Any) -> Any:
    if shard is None:
        raise Differs("the coordinator has not loaded its records")
    return shard


def changed(usual: dict[str, Any], **change: Any) -> dict[str, Any]:
    """Return the fields of a request with changes."""
    return usual | change


def require(holds: bool, text: str) -> None:
    """Errors: Differs."""
    if not holds:
        raise Differs(text)


def require_same(what: str, answered: object, expected: object) -> None:
    """Errors: Differs."""
    if answered != expected:
        raise Differs(f"{what}: {answered} is answered, where {expected} is right")


def may_end(topic: ListPartitionReassignmentsResponse.OngoingTopicReassignment) -> bool:
    """Whether one of its reassignments can end: see findings/replaced_reassignment for those of Apache Kafka that cannot."""
    return any(not {*each.adding_replicas} & {*each.removing_replicas} for each in topic.partitions)


Refusal = tuple[Question, ErrorCode]
"""What is asked, and the only error with which it is answered."""


def refusals(cases: Iterable[Refusal]) -> Part:
    """A chapter's questions that are refused, each for its reason; NONE is a question that is granted. Errors: Differs."""
    for question, code in cases:
        answer = yield question
        found = {*errors_in(answer)} or {int(ErrorCode.NONE)}
        names = ", ".join(name_of(each) for each in sorted(found))
        require(
            found == {int(code)}, f"{str(question.body)[:300]} v{question.version} is answered {names}, not {code.name}"
        )
