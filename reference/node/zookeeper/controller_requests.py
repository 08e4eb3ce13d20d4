"""The controller's requests to brokers: LeaderAndIsr, UpdateMetadata and StopReplica, with one in flight per broker.

A broker is sent the newest state of changed partitions, not each change: a later state replaces an unsent one. A request
without a response is sent again while the broker is registered in this incarnation. Each request has the controller epoch and
the broker epoch, by which the receiver refuses an outdated one.
Source: kafka.controller.ControllerChannelManager; KIP-380, KIP-570.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from reference.controller.image import MetadataImage, PartitionImage, TopicImage
from reference.node.peers import Answered
from reference.node.requests import Key
from reference.protocol.errors import ErrorCode, name_of
from reference.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from reference.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from reference.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from reference.protocol.primitives import AT_ONCE, NO_EPOCH, BrokerEpoch, LeaderEpoch, NodeId, TimestampMs, TopicName
from reference.protocol.schema import Message
from reference.storage.log_directory import Logger

PURPOSE = "controller"
RETRY_MS = 100
DELETED = NodeId(-2)
"""The leader in UpdateMetadata of a topic that is being deleted (LeaderAndIsr.LeaderDuringDelete)."""

EPOCH_DURING_DELETE = LeaderEpoch(-2)
"""The leader epoch in StopReplica that matches any epoch of the replica (LeaderAndIsr.EpochDuringDelete)."""

Topic = LeaderAndIsrRequest.LeaderAndIsrTopicState
UpdatedTopic = UpdateMetadataRequest.UpdateMetadataTopicState
StoppedTopic = StopReplicaRequest.StopReplicaTopicState
AskBroker = Callable[[NodeId, str, Message, Answered, TimestampMs], None]


@dataclass(frozen=True, slots=True)
class Stop:
    """An order to remove a replica."""

    leader_epoch: LeaderEpoch
    delete: bool


@dataclass(slots=True)
class _Target:
    """One incarnation of a broker, and the state to send to it."""

    epoch: BrokerEpoch
    leader_and_isr: dict[Key, None] = field(default_factory=dict[Key, None])
    metadata: dict[Key, None] = field(default_factory=dict[Key, None])
    gone_topics: dict[Key, None] = field(default_factory=dict[Key, None])
    """Partitions of deleted topics."""
    stops: dict[Key, Stop] = field(default_factory=dict[Key, Stop])
    brokers: bool = True
    """Whether the list of live brokers must be sent."""
    newcomer: bool = True
    """Whether that list has a new broker, which no LeaderAndIsr may name before."""
    new: set[Key] = field(default_factory=set[Key])
    is_asked: bool = False
    again_at: TimestampMs = AT_ONCE

    @property
    def owes_metadata(self) -> bool:
        return self.brokers or bool(self.metadata) or bool(self.gone_topics)

    @property
    def is_owed(self) -> bool:
        return bool(self.leader_and_isr) or self.owes_metadata or bool(self.stops)


class ControllerRequests:
    """The requests of one controller, in one controller epoch."""

    def __init__(self, node: NodeId, image: MetadataImage, ask: AskBroker, log: Logger) -> None:
        """`image` is the controller's; `ask` sends a request to a broker, which may be this one."""
        self.controller_epoch = NO_EPOCH
        self.stopped: Callable[[NodeId, Iterable[Key], TimestampMs], None] = lambda broker, keys, now: None
        """Called after a broker has removed replicas."""
        self.deposed: Callable[[TimestampMs], None] = lambda now: None
        """Called when a broker knows a later controller."""
        self._node = node
        self._image = image
        self._ask = ask
        self.log = log
        self._targets: dict[NodeId, _Target] = {}
        self._deleted: dict[Key, TopicImage] = {}

    # ---- what is owed

    def begin(self, controller_epoch: LeaderEpoch, undecided: set[Key]) -> None:
        """Queue the whole state for all live brokers, except the roles of `undecided` partitions, which a decision must change
        first."""
        self.controller_epoch = controller_epoch
        self._targets = {}
        for broker in self._image.brokers.values():
            self.add_broker(broker.id, broker.epoch)
        for target in self._targets.values():
            target.leader_and_isr = {key: None for key in target.leader_and_isr if key not in undecided}

    def owe_roles(self, key: Key) -> None:
        """Queue a partition's roles for its replicas."""
        partition = self._image.partition(*key)
        for replica in partition.replicas if partition is not None else ():
            if replica in self._targets:
                self._targets[replica].leader_and_isr[key] = None

    def end(self) -> None:
        self.controller_epoch = NO_EPOCH
        self._targets = {}

    def add_broker(self, broker: NodeId, epoch: BrokerEpoch) -> None:
        """Queue the whole state for a new incarnation, and its registration for the others. Deletions are queued with their
        topics."""
        target = self._targets[broker] = _Target(epoch)
        for topic in self._image.topics.values():
            for index, partition in topic.partitions.items():
                target.metadata[topic.name, index] = None
                if broker in partition.replicas:
                    target.leader_and_isr[topic.name, index] = None
        self._owe_brokers()
        for each in self._targets.values():
            each.newcomer = True

    def remove_broker(self, broker: NodeId) -> None:
        self._targets.pop(broker, None)
        self._owe_brokers()

    def _owe_brokers(self) -> None:
        for target in self._targets.values():
            target.brokers = True

    def change(self, key: Key, partition: PartitionImage, before: PartitionImage | None) -> None:
        """Queue a changed partition: its metadata for all brokers, roles for its replicas, and StopReplica for former ones."""
        for broker, target in self._targets.items():
            target.metadata[key] = None
            if broker in partition.replicas:
                target.leader_and_isr[key] = None
                target.stops.pop(key, None)
                if before is None or broker not in before.replicas:
                    target.new.add(key)
            elif before is not None and broker in before.replicas:
                target.leader_and_isr.pop(key, None)
                target.stops[key] = Stop(partition.leader_epoch, delete=True)

    def stop(self, broker: NodeId, key: Key, order: Stop) -> None:
        """Queue a StopReplica for a broker, if it is registered."""
        target = self._targets.get(broker)
        if target is not None:
            target.leader_and_isr.pop(key, None)
            target.stops[key] = order

    def delete(self, topic: TopicImage) -> None:
        """Queue the deletion of a topic: its removal from all brokers' metadata, and StopReplica for its replicas."""
        for index in topic.partitions:
            key = topic.name, index
            self._deleted[key] = topic
            for target in self._targets.values():
                target.metadata.pop(key, None)
                target.gone_topics[key] = None
        for index, partition in topic.partitions.items():
            for replica in partition.replicas:
                self.stop(replica, (topic.name, index), Stop(EPOCH_DURING_DELETE, delete=True))

    # ---- sending

    def send(self, now: TimestampMs) -> None:
        """Send each broker its queued state, unless a request to it is in flight."""
        for broker, target in [*self._targets.items()]:
            if self._targets.get(broker) is target and not target.is_asked and target.again_at <= now:
                self._send_next(broker, target, now)

    def next_deadline(self) -> TimestampMs | None:
        waiting = [each.again_at for each in self._targets.values() if each.is_owed and not each.is_asked]
        return min(waiting, default=None)

    def _send_next(self, broker: NodeId, target: _Target, now: TimestampMs) -> None:
        if target.leader_and_isr and not target.newcomer:
            keys, target.leader_and_isr = target.leader_and_isr, {}
            new, target.new = target.new, set()
            body = self._leader_and_isr(target, keys, new)

            def unsent() -> None:
                target.leader_and_isr = {**keys, **target.leader_and_isr}
                target.new |= new

            self._put(broker, target, body, unsent, now)
        elif target.owes_metadata:
            keys, target.metadata = target.metadata, {}
            gone, target.gone_topics = target.gone_topics, {}
            target.brokers = target.newcomer = False
            metadata = self._update_metadata(target, keys, gone)

            def unsent_metadata() -> None:
                target.metadata, target.brokers, target.newcomer = {**keys, **target.metadata}, True, True
                target.gone_topics = {**gone, **target.gone_topics}

            self._put(broker, target, metadata, unsent_metadata, now)
        elif target.stops:
            stops, target.stops = target.stops, {}

            def unsent_stops() -> None:
                target.stops = {**stops, **target.stops}

            self._put(broker, target, self._stop_replica(target, stops), unsent_stops, now, [*stops])

    def _put(
        self,
        broker: NodeId,
        target: _Target,
        body: Message,
        unsent: Callable[[], None],
        now: TimestampMs,
        stopped: Iterable[Key] = (),
    ) -> None:
        """Send a request; `unsent` queues its content again."""
        target.is_asked = True

        def answered(answer: Message | None, then: TimestampMs) -> None:
            target.is_asked = False
            if self._targets.get(broker) is not target:
                return
            if not isinstance(answer, LeaderAndIsrResponse | UpdateMetadataResponse | StopReplicaResponse):
                unsent()
                target.again_at = then + RETRY_MS
            elif answer.error_code == ErrorCode.STALE_CONTROLLER_EPOCH:
                self.deposed(then)
                return
            elif answer.error_code == ErrorCode.STALE_BROKER_EPOCH:
                return  # a later incarnation will be registered soon
            elif answer.error_code != ErrorCode.NONE:
                self.log("warning", f"broker {broker} answers {type(body).__name__} with {name_of(answer.error_code)}")
            elif isinstance(answer, StopReplicaResponse):
                refused = {
                    (each.topic_name, each.partition_index) for each in answer.partition_errors if each.error_code
                }
                self.stopped(broker, [key for key in stopped if key not in refused], then)
            self.send(then)

        self._ask(broker, PURPOSE, body, answered, now)

    # ---- the requests

    def _leader_and_isr(self, target: _Target, keys: Iterable[Key], new: set[Key]) -> LeaderAndIsrRequest:
        topics: dict[TopicName, Topic] = {}
        leaders: set[NodeId] = set()
        for name, index in keys:
            partition = self._image.partition(name, index)
            if partition is None:
                continue
            leaders.add(partition.leader)
            state = LeaderAndIsrRequest.LeaderAndIsrPartitionState(
                partition_index=index,
                controller_epoch=self.controller_epoch,
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
                isr=partition.isr,
                partition_epoch=partition.partition_epoch,
                replicas=partition.replicas,
                adding_replicas=partition.adding_replicas,
                removing_replicas=partition.removing_replicas,
                is_new=(name, index) in new,
                leader_recovery_state=partition.leader_recovery_state,
            )
            topic = topics.setdefault(name, Topic(topic_name=name, topic_id=self._image.topic_id(name)))
            topic.partition_states.append(state)
        return LeaderAndIsrRequest(
            controller_id=self._node,
            controller_epoch=self.controller_epoch,
            broker_epoch=target.epoch,
            topic_states=[*topics.values()],
            live_leaders=self._live_leaders(leaders),
        )

    def _live_leaders(self, leaders: set[NodeId]) -> list[LeaderAndIsrRequest.LeaderAndIsrLiveLeader]:
        return [
            LeaderAndIsrRequest.LeaderAndIsrLiveLeader(
                broker_id=leader, host_name=endpoints[0].host, port=endpoints[0].port
            )
            for leader in sorted(leaders)
            if leader in self._image.brokers and (endpoints := self._image.brokers[leader].endpoints)
        ]

    def _update_metadata(self, target: _Target, keys: Iterable[Key], gone: Mapping[Key, None]) -> UpdateMetadataRequest:
        topics: dict[TopicName, UpdatedTopic] = {}
        for name, index in keys:
            partition = self._image.partition(name, index)
            if partition is not None and (name, index) not in gone:
                topic = topics.setdefault(name, UpdatedTopic(topic_name=name, topic_id=self._image.topic_id(name)))
                topic.partition_states.append(self._updated(index, partition, partition.leader))
        for name, index in gone:
            former = self._deleted.get((name, index))
            if former is not None:
                topic = topics.setdefault(name, UpdatedTopic(topic_name=name, topic_id=former.id))
                topic.partition_states.append(self._updated(index, former.partitions[index], DELETED))
        return UpdateMetadataRequest(
            controller_id=self._node,
            controller_epoch=self.controller_epoch,
            broker_epoch=target.epoch,
            topic_states=[*topics.values()],
            live_brokers=[self._live_broker(each) for each in self._image.brokers],
        )

    def _updated(
        self, index: int, partition: PartitionImage, leader: NodeId
    ) -> UpdateMetadataRequest.UpdateMetadataPartitionState:
        return UpdateMetadataRequest.UpdateMetadataPartitionState(
            partition_index=index,
            controller_epoch=self.controller_epoch,
            leader=leader,
            leader_epoch=EPOCH_DURING_DELETE if leader == DELETED else partition.leader_epoch,
            isr=partition.isr,
            zk_version=partition.partition_epoch,
            replicas=partition.replicas,
            offline_replicas=[each for each in partition.replicas if each not in self._image.brokers],
        )

    def _live_broker(self, broker: NodeId) -> UpdateMetadataRequest.UpdateMetadataBroker:
        found = self._image.brokers[broker]
        return UpdateMetadataRequest.UpdateMetadataBroker(
            id=broker,
            endpoints=[
                UpdateMetadataRequest.UpdateMetadataEndpoint(
                    port=each.port, host=each.host, listener=each.name, security_protocol=each.security_protocol
                )
                for each in found.registration.end_points
            ],
            rack=found.rack,
        )

    def _stop_replica(self, target: _Target, stops: Mapping[Key, Stop]) -> StopReplicaRequest:
        topics: dict[TopicName, StoppedTopic] = {}
        for (name, index), order in stops.items():
            state = StopReplicaRequest.StopReplicaPartitionState(
                partition_index=index, leader_epoch=order.leader_epoch, delete_partition=order.delete
            )
            topics.setdefault(name, StoppedTopic(topic_name=name)).partition_states.append(state)
        return StopReplicaRequest(
            controller_id=self._node,
            controller_epoch=self.controller_epoch,
            broker_epoch=target.epoch,
            topic_states=[*topics.values()],
        )
