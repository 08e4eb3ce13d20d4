"""The controller with ZooKeeper: what it reads, its own decisions, and its requests to brokers.

Requests are decided as by a quorum's active controller, by the same functions, on the controller's image. Watches replace
heartbeats: registrations appear and disappear. Each such change is a decision of its own (`_next_step`), made until nothing is
left to do. So a new controller also completes the unfinished work of a former one.
Source: kafka.controller.KafkaController of Apache Kafka 3.9.2, TopicDeletionManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from reference.controller.configs import Configuration
from reference.controller.elections import BrokerChange, balance_leaders, move_leaders, places
from reference.controller.image import NO_LEADER_CHANGE
from reference.controller.isr_proposals import alter_partition
from reference.controller.reassignments import Origin, alter_partition_reassignments
from reference.node.active_controller import ActiveController, Asked, Decide
from reference.node.decisions import Abandon, Answer
from reference.node.identity import Identity
from reference.node.requests import Key
from reference.node.zookeeper.admin_requests import AdminRequests, begun
from reference.node.zookeeper.controller_requests import ControllerRequests
from reference.node.zookeeper.controller_tracing import trace_writes
from reference.node.zookeeper.loading import Found, LiveBroker, Reader, add_topic, fill, registered
from reference.node.zookeeper.older_protocol import name_answers, with_ids
from reference.node.zookeeper.own_steps import Step, dead_member, leaderless, repeated, replicas_of, unled, without
from reference.node.zookeeper.writer import Befores, Writer
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.alter_partition import AlterPartitionRequest
from reference.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from reference.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from reference.protocol.messages.partition_change_record import PartitionChangeRecord
from reference.protocol.messages.partition_record import PartitionRecord
from reference.protocol.messages.register_broker_record import RegisterBrokerRecord
from reference.protocol.messages.remove_topic_record import RemoveTopicRecord
from reference.protocol.messages.topic_record import TopicRecord
from reference.protocol.messages.unregister_broker_record import UnregisterBrokerRecord
from reference.protocol.primitives import Chance, LeaderEpoch, NodeId, TimestampMs, TopicName
from reference.protocol.schema import Message
from reference.replication.partition import Trace
from reference.zookeeper import znodes
from reference.zookeeper.operations import Code, Create, GetChildren, Result, ZnodeVersion
from reference.zookeeper.session import OnWatch

ReadConfigs = Callable[[list[TopicName], TimestampMs], None]


class ZooKeeperController(ActiveController):
    """The controller's part of a broker; idle while another broker is the controller."""

    def __init__(
        self,
        writer: Writer,
        configuration: Configuration,
        identity: Identity,
        chance: Chance,
        handlers: Mapping[int, Decide],
        requests: ControllerRequests,
        trace: Trace | None,
    ) -> None:
        """`configuration` uses the controller's own image."""
        super().__init__(writer, configuration, identity, chance, handlers)
        session, log = writer.session, requests.log
        self.requests = requests
        self.read_configs: ReadConfigs = lambda topics, now: None
        """Reads the settings of topics that other clients created."""
        self.reload: Callable[[TimestampMs], None] = lambda now: None
        """Reads /controller again, and then all other znodes."""
        self._writer = writer
        self._session = session
        self._reader = Reader(session, self._topic_changed, log)
        self._log = log
        self._trace = trace
        self._loading: tuple[LeaderEpoch, ZnodeVersion] | None = None
        self._changed_while_loading: dict[OnWatch, None] = {}
        """Watches that fired while the znodes were being read: they are handled at the end."""
        self._read_in: tuple[LeaderEpoch, int] | None = None
        """The controller epoch and the connection of the last full read."""
        self._live: list[LiveBroker] = []
        """The registered brokers at the last read."""
        self._stateless: dict[Key, list[NodeId]] = {}
        """Partitions without a state znode, and their replicas."""
        self._former: dict[NodeId, set[Key]] = {}
        """Brokers that were in ISRs in an earlier incarnation, with the partitions."""
        self._deleting: dict[TopicName, set[tuple[NodeId, Key]]] = {}
        """Topics that are being deleted, with the replicas that are removed already."""
        self._ordered: set[TopicName] = set()
        """Topics that must be deleted."""
        self._held: list[tuple[TimestampMs, DeleteTopicsResponse, Answer]] = []
        """Responses that wait for the deletion of their topics."""
        self._is_stepping = False
        self._admin = AdminRequests(writer, session, configuration, log)
        self._admin.changed = self._step_on
        writer.committed = self._committed
        if trace is not None:
            writer.asked = lambda records, befores, now: trace_writes(
                trace, writer, self.image, records, befores, is_answered=False
            )
        writer.failed = self._failed
        requests.stopped = self._stopped
        requests.deposed = self.resign

    # ---- whether

    def won(self, epoch: LeaderEpoch, version: ZnodeVersion, is_new: bool, now: TimestampMs) -> None:
        """Begin as the controller of this epoch: read all znodes, unless that was done on this connection."""
        is_read = self._writer.is_ready or self._loading is not None
        if is_read and self._read_in == (epoch, self._session.connections):
            return
        self._read_in = epoch, self._session.connections
        self._writer.end()
        self._is_stepping = False
        self.advance(now)
        if is_new:
            self._log("info", f"is the controller in controller epoch {epoch}")
            self._step("ElectController", controllerEpoch=epoch)
        self._loading = epoch, version
        self._changed_while_loading = {}
        loading = self._loading

        def loaded(found: Found, then: TimestampMs) -> None:
            if self._loading is loading:
                self._loading = None
                self._begin(found, epoch, version, then)

        self._reader.read_all(self._brokers_changed, self._topics_changed, loaded, now)

    def resign(self, now: TimestampMs) -> None:
        """Stop being the controller, after another broker became it or the session ended; drop everything in flight."""
        self._loading = None
        if self._writer.is_ready or self.requests.controller_epoch >= 0:
            self._log("info", f"is no controller any more, after controller epoch {self.requests.controller_epoch}")
            self._step("ResignController")
        self._writer.end()
        self.requests.end()
        self._is_stepping = False
        held, self._held = self._held, []
        for _, response, answer in held:
            answer(response, now)
        self.advance(now)

    def _failed(self, is_deposed: bool, now: TimestampMs) -> None:
        """Handle a write that was refused or not answered: resign, or read all znodes again."""
        if is_deposed:
            self.resign(now)
            return
        self._is_stepping, self._loading = False, None
        self.advance(now)
        self.reload(now)

    def _begin(self, found: Found, epoch: LeaderEpoch, version: ZnodeVersion, now: TimestampMs) -> None:
        fill(self.image, found, self.chance)
        self._live = found.brokers
        self._stateless = {
            (name, index): [*found.topics[name].partitions[index]] for name, index in found.without_state()
        }
        self._former = found.former_members()
        self._deleting = {}
        self._ordered = {name for name in found.deleting if name in found.topics}
        self._writer.known |= {znodes.topic_path(name) for name in found.topics}
        self._writer.known |= {znodes.partitions_path(name) for name, _ in found.states}
        self._writer.known |= {f"{znodes.DELETE_TOPICS}/{name}" for name in found.deleting}
        self._writer.begin(epoch, version)
        self.requests.begin(epoch, {key for keys in self._former.values() for key in keys})
        self._step("OnControllerFailover", controllerEpoch=epoch, brokers=sorted(each.id for each in self._live))
        self._watch_deletions(now)
        self._admin.read(now)
        self.advance(now)
        for look in self._changed_while_loading:
            look(now)

    def _take_over(self, now: TimestampMs) -> None:
        self._epoch = self._quorum.epoch
        self._next_balance = now + self._balance_interval_ms
        self._step_on(now)

    # ---- what watches show

    def _brokers_changed(self, now: TimestampMs) -> None:
        if self._loading is not None:
            self._changed_while_loading[self._brokers_changed] = None
            return

        def read(brokers: list[LiveBroker], then: TimestampMs) -> None:
            if self._writer.is_ready:
                self._live = brokers
                self._step_on(then)

        self._reader.read_brokers(self._brokers_changed, read, now)

    def _topics_changed(self, now: TimestampMs) -> None:
        """Add topics that others created, as kafka-topics with --zookeeper does."""
        if self._loading is not None:
            self._changed_while_loading[self._topics_changed] = None
            return

        def listed(result: Result, then: TimestampMs) -> None:
            new = sorted(name for name in result.children if name not in self.image.topics)
            if result.code == Code.OK and self._writer.is_ready and new:
                found = Found()
                self._reader.read_topics(new, found, lambda later: self._take_topics(found, later), then)

        self._session.ask(GetChildren(znodes.TOPICS, watch=True), listed, now, self._topics_changed)

    def _take_topics(self, found: Found, now: TimestampMs) -> None:
        if not self._writer.is_ready:
            return
        made = [name for name in found.topics if name not in self.image.topics]
        for name in made:
            add_topic(self.image, name, found.topics[name], found, self.chance)
            self._writer.known.add(znodes.topic_path(name))
        self._stateless |= {
            (name, index): [*found.topics[name].partitions[index]]
            for name, index in found.without_state()
            if name in made
        }
        self.read_configs(made, now)
        self._step_on(now)

    def _topic_changed(self, name: TopicName, now: TimestampMs) -> None:
        """Add partitions that others created, as kafka-topics with --zookeeper does."""
        if self._loading is not None:
            self._changed_while_loading[partial(self._topic_changed, name)] = None
        elif self._writer.is_ready:
            found = Found()
            self._reader.read_topics([name], found, lambda then: self._take_partitions(found, then), now)

    def _take_partitions(self, found: Found, now: TimestampMs) -> None:
        """Add the new partitions without a state, of known topics."""
        for name, index in found.without_state():
            topic = self.image.topics.get(name)
            if topic is not None and index not in topic.partitions and name not in self._ordered:
                self._stateless[name, index] = [*found.topics[name].partitions[index]]
        self._step_on(now)

    def _watch_deletions(self, now: TimestampMs) -> None:
        def listed(result: Result, then: TimestampMs) -> None:
            if result.code == Code.OK and self._writer.is_ready:
                self._ordered |= {name for name in result.children if name in self.image.topics}
                self._step_on(then)

        path = znodes.DELETE_TOPICS
        self._session.ask(GetChildren(path, watch=True), listed, now, self._watch_deletions)

    # ---- deciding

    def alter_partition(self, version: int, body: AlterPartitionRequest, now: TimestampMs) -> Message:
        """Decide a leader's proposal. It begins no leader epoch, because the response reports the new state to the leader."""
        with_ids(version, body, self.image.topic_id)
        decision = alter_partition(self.image, self.configuration, body)
        super()._append_batches(decision.records, now)
        for topic, answers in zip(body.topics, decision.response.topics, strict=True):
            for place, answer in enumerate(answers.partitions):
                if answer.error_code == ErrorCode.INVALID_UPDATE_VERSION:
                    answers.partitions[place] = repeated(self.image, topic.topic_id, topic.partitions[place], answer)
        name_answers(version, body, decision.response)
        return decision.response

    def alter_partition_reassignments(
        self, version: int, body: AlterPartitionReassignmentsRequest, now: TimestampMs
    ) -> Message:
        decision = alter_partition_reassignments(self.image, self.configuration, body, Origin.BESIDE_ZOOKEEPER)
        self._admin.withdraw(begun(decision.response), now)
        return self._made(decision, now)

    def _append_batches(self, records: Sequence[Message], now: TimestampMs, *, is_atomic: bool = False) -> None:
        """Let each of the controller's own changes begin a leader epoch: brokers ignore LeaderAndIsr of their present epoch.

        Source: LeaderAndIsr.newLeaderAndIsr and newEpoch; ReplicaManager.becomeLeaderOrFollower of Apache Kafka 3.9.2.
        """
        for record in records:
            if isinstance(record, PartitionChangeRecord) and record.leader == NO_LEADER_CHANGE:
                topic = self.image.topics_by_id[record.topic_id]
                record.leader = topic.partitions[record.partition_id].leader
        super()._append_batches(records, now, is_atomic=is_atomic)

    def append(self, records: Sequence[Message], now: TimestampMs) -> None:
        """As the quorum's controller; but a topic is not removed at once, an order to delete it is written instead (TOP-14)."""
        removed = [record for record in records if isinstance(record, RemoveTopicRecord)]
        if not removed:
            super().append(records, now)
            return
        names = [self.image.topics_by_id[record.topic_id].name for record in removed]
        paths = [f"{znodes.DELETE_TOPICS}/{name}" for name in names]
        self._writer.write([], [Create(path, b"") for path in paths if path not in self._writer.known], now)
        self._ordered.update(names)

    def deadline_of(self, key: int, body: Message, now: TimestampMs) -> TimestampMs | None:
        """None: with ZooKeeper Kafka begins with any timeout (AdminManager)."""
        return None

    def decide(self, asked: Asked, answer: Answer, abandon: Abandon, now: TimestampMs) -> None:
        """Answer DeleteTopics when the topics are deleted, or at its timeout (as Kafka's purgatory does)."""
        body = asked.body
        if not isinstance(body, DeleteTopicsRequest):
            super().decide(asked, answer, abandon, now)
            return

        def decided(response: Message | None, then: TimestampMs) -> None:
            assert isinstance(response, DeleteTopicsResponse)
            self._held.append((TimestampMs(then + body.timeout_ms), response, answer))
            self._step_on(then)
            self._answer_held(then)

        super().decide(asked, decided, abandon, now)

    def _answer_held(self, now: TimestampMs) -> None:
        waiting, self._held = self._held, []
        for deadline, response, answer in waiting:
            late = [
                each for each in response.responses if not each.error_code and each.topic_id in self.image.topics_by_id
            ]
            if late and now < deadline:
                self._held.append((deadline, response, answer))
                continue
            for each in late:
                each.error_code = ErrorCode.REQUEST_TIMED_OUT
            answer(response, now)

    def _committed(self, records: Sequence[Message], befores: Befores, now: TimestampMs) -> None:
        """Queue requests to brokers for the records that were written."""
        for record in records:
            match record:
                case TopicRecord():
                    self._topic_changed(record.name, now)
                case PartitionRecord() | PartitionChangeRecord():
                    topic = self.image.topics_by_id[record.topic_id]
                    key = topic.name, record.partition_id
                    before = befores.get((record.topic_id, record.partition_id))
                    self._stateless.pop(key, None)
                    self.requests.change(key, topic.partitions[record.partition_id], before)
                case RegisterBrokerRecord():
                    self.requests.add_broker(record.broker_id, record.broker_epoch)
                case UnregisterBrokerRecord():
                    self.requests.remove_broker(record.broker_id)
                case RemoveTopicRecord():
                    self._answer_held(now)
                case _:
                    pass
        if self._trace is not None:
            trace_writes(self._trace, self._writer, self.image, records, befores, is_answered=True)
        self.advance(now)
        if self._admin.awaits_reassignments:
            self._step_on(now)

    # ---- by itself

    def _step_on(self, now: TimestampMs) -> None:
        """Make the controller's own decisions, one after the other."""
        if self._is_stepping or not self.is_active:
            return
        self._is_stepping = True
        steps: list[str] = []

        def make(then: TimestampMs) -> None:
            step = self._next_step(then)
            if step is not None:
                records, cause = step
                steps.append(cause)
                self._append_batches(records, then)

        def made(answer: Message | None, then: TimestampMs) -> None:
            self._is_stepping = False
            if steps:
                self._step_on(then)

        def abandoned(then: TimestampMs) -> None:
            self._is_stepping = False

        self._decisions.submit(make, made, abandoned, now)

    def _next_step(self, now: TimestampMs) -> Step | None:
        self._begin_deletions()
        for find in (
            self._former_member,
            self._broker_failure,
            self._broker_startup,
            partial(dead_member, self.image, self.configuration),
            partial(leaderless, self.image, self.configuration),
            partial(unled, self.image, self._stateless),
            partial(self._admin.next_step, self._ordered, now),
        ):
            step = find()
            if step is not None:
                return step
        return self._deletion()

    def _broker_failure(self) -> Step | None:
        """The step for a broker whose registration is gone, or is another incarnation's."""
        live = {broker.id: broker.epoch for broker in self._live}
        for broker in self.image.brokers.values():
            if live.get(broker.id) != broker.epoch:
                gone = UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch)
                self._step("BrokerFailure", broker=broker.id)
                return [*without(self.image, self.configuration, broker.id), gone], "BrokerFailure"
        return None

    def _broker_startup(self) -> Step | None:
        for broker in self._live:
            if broker.id not in self.image.brokers:
                self._step("BrokerStartup", broker=broker.id, brokerEpoch=broker.epoch)
                return [registered(broker)], "BrokerStartup"
        return None

    def _former_member(self) -> Step | None:
        """The step for a broker that restarted while there was no controller: it leaves the ISRs, and its leader epochs end."""
        while self._former:
            broker, keys = self._former.popitem()
            concerned = (
                (topic, index, each)
                for topic, index, each in places(self.image, lambda each: True)
                if broker in each.isr and (topic.name, index) in keys
            )
            records = move_leaders(self.image, self.configuration, concerned, BrokerChange(leaving=broker))
            if records:
                return records, "BrokerFailure"
            for key in keys:
                self.requests.owe_roles(key)
        return None

    def tick(self, now: TimestampMs) -> None:
        """Do the controller's own work that is due."""
        if not self.is_active:
            return
        if self._balances and now >= self._next_balance:
            self._next_balance = TimestampMs(now + self._balance_interval_ms)
            self._by_itself(lambda: balance_leaders(self.image, self.configuration), now)
        if self._held and min(each[0] for each in self._held) <= now:
            self._answer_held(now)

    def deadlines(self) -> Iterable[TimestampMs | None]:
        """The times of the work of `tick` and `requests`; None for never."""
        yield self.requests.next_deadline()
        if self.is_active:
            yield self._next_balance if self._balances else None
            yield min((each[0] for each in self._held), default=None)

    # ---- deletion

    def _begin_deletions(self) -> None:
        """Begin to delete the topics whose replicas are all on live brokers; other topics wait for their brokers."""
        for name in sorted(self._ordered - self._deleting.keys()):
            topic = self.image.topics.get(name)
            if topic is None:
                self._ordered.discard(name)
            elif all(replica in self.image.brokers for _, replica in replicas_of(topic)):
                self._deleting[name] = set()
                self._step("StartTopicDeletion", topic=name)
                self.requests.delete(topic)

    def _stopped(self, broker: NodeId, keys: Iterable[Key], now: TimestampMs) -> None:
        for key in keys:
            gone = self._deleting.get(key[0])
            if gone is not None:
                gone.add((broker, key))
        self._step_on(now)

    def _deletion(self) -> Step | None:
        """The step for a topic without remaining replicas."""
        for name, gone in self._deleting.items():
            topic = self.image.topics.get(name)
            if topic is not None and {(replica, key) for key, replica in replicas_of(topic)} <= gone:
                del self._deleting[name]
                self._ordered.discard(name)
                self._step("CompleteTopicDeletion", topic=name)
                return [RemoveTopicRecord(topic_id=topic.id)], "CompleteTopicDeletion"
        return None

    def _step(self, action: str, **arguments: Any) -> None:
        if self._trace is not None:
            self._trace(action, {"node": self._writer.node, "args": {"controller": self._writer.node, **arguments}})
