"""The controller's requests to a broker: LeaderAndIsr, UpdateMetadata, StopReplica.

Each request has its controller epoch, and the broker epoch for which it was made. One of an earlier controller than the newest
known, or for an earlier incarnation of the broker, is refused (KIP-380). LeaderAndIsr and StopReplica change this broker's
replicas (`assigned`), UpdateMetadata the metadata for clients (`image`). A controller has one connection to each broker. A
request that arrives on an earlier connection was abandoned and sent again, and an UpdateMetadata does not show that it is the
older one.
Source: kafka.server.KafkaApis, ReplicaManager.becomeLeaderOrFollower and stopReplicas of Apache Kafka 3.9.2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reference.controller.directory_ids import MIGRATING
from reference.controller.image import BrokerImage, Endpoint, MetadataImage, PartitionImage, TopicImage
from reference.node.effects import ConnectionId
from reference.node.known_topics import TopicChanges
from reference.node.requests import Key, Request, Responder
from reference.node.zookeeper.controller_requests import DELETED, EPOCH_DURING_DELETE
from reference.node.zookeeper.dynamic_configs import DynamicConfigs
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from reference.protocol.messages.partition_record import PartitionRecord
from reference.protocol.messages.register_broker_record import RegisterBrokerRecord
from reference.protocol.messages.remove_topic_record import RemoveTopicRecord
from reference.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from reference.protocol.messages.topic_record import TopicRecord
from reference.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from reference.protocol.primitives import (
    NO_EPOCH,
    NO_NODE,
    BrokerEpoch,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionEpoch,
    TimestampMs,
    TopicName,
)
from reference.protocol.schema import Message
from reference.replication.partition import Trace

Order = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest
RESPONSES: dict[type[Message], type[Message]] = {
    LeaderAndIsrRequest: LeaderAndIsrResponse,
    UpdateMetadataRequest: UpdateMetadataResponse,
    StopReplicaRequest: StopReplicaResponse,
}
NAMES: dict[type[Message], str] = {
    LeaderAndIsrRequest: "LeaderAndIsr",
    UpdateMetadataRequest: "UpdateMetadata",
    StopReplicaRequest: "StopReplica",
}
OWN: ConnectionId = -1
"""The connection of requests from this node's own controller."""
MOST_EARLY = 1_000
"""The most requests that wait for this broker's registration."""

Answer = Callable[[Message, TimestampMs], None]
PartitionState = LeaderAndIsrRequest.LeaderAndIsrPartitionState
TopicError = LeaderAndIsrResponse.LeaderAndIsrTopicError
PartitionError = LeaderAndIsrResponse.LeaderAndIsrPartitionError
StopError = StopReplicaResponse.StopReplicaPartitionError


class Orders:
    """Handles the controller's requests to this broker."""

    def __init__(
        self,
        node: NodeId,
        image: MetadataImage,
        assigned: MetadataImage,
        configs: DynamicConfigs,
        broker_epoch: Callable[[], BrokerEpoch],
        trace: Trace | None,
    ) -> None:
        self.controller: NodeId = NO_NODE
        """The controller of the last accepted request."""
        self.controller_epoch = NO_EPOCH
        """The newest controller epoch that this broker has learned in this run."""
        self.roles_changed: Callable[[list[Key], TimestampMs], None] = lambda keys, now: None
        """Called when replicas of `assigned` have changed or were removed."""
        self.metadata_changed: Callable[[TopicChanges, set[NodeId], TimestampMs], None] = lambda changes, who, now: None
        """Called when `image` has changed, with the brokers that were added or removed."""
        self._node = node
        self._image = image
        self._assigned = assigned
        self._configs = configs
        self._broker_epoch = broker_epoch
        self._trace = trace
        self._early: list[tuple[Order, Answer, ConnectionId]] = []
        self._newest: ConnectionId = OWN
        """The connection of the newest controller's last request."""

    # ---- all three

    def take(self, body: Order, answer: Answer, now: TimestampMs, connection: ConnectionId = OWN) -> None:
        """Handle a request, or refuse it. Before this incarnation is registered it cannot be checked, and waits."""
        if self._has_to_wait():
            self._early.append((body, answer, connection))
            return
        refused = self._refused(body)
        if refused is ErrorCode.NONE and is_given_up(
            body.controller_epoch, connection, self.controller_epoch, self._newest
        ):
            refused = ErrorCode.REQUEST_TIMED_OUT
        if refused is not ErrorCode.NONE:
            answer(RESPONSES[type(body)](error_code=refused), now)
            return
        self.controller, self.controller_epoch, self._newest = body.controller_id, body.controller_epoch, connection
        if isinstance(body, LeaderAndIsrRequest):
            self._forget_settings(body)
            names = [topic.topic_name for topic in body.topic_states]
            self._configs.ensure(names, lambda then: self._lead_and_follow(body, answer, then), now)
        elif isinstance(body, UpdateMetadataRequest):
            self._step("TakeUpdateMetadata", body)
            answer(self._update_metadata(body, now), now)
        else:
            answer(self._stop_replicas(body, now), now)

    def _has_to_wait(self) -> bool:
        return self._broker_epoch() < 0 and len(self._early) < MOST_EARLY

    def registered(self, now: TimestampMs) -> None:
        """Handle the requests that waited for this broker's registration."""
        early, self._early = self._early, []
        for body, answer, connection in early:
            self.take(body, answer, now, connection)

    def handler(self, responder: Responder) -> Callable[[Request, Any, TimestampMs], Message | None]:
        """The handler of the three APIs."""

        def handle(request: Request, body: Any, now: TimestampMs) -> None:
            def answer(response: Message, then: TimestampMs) -> None:
                responder.respond(request, response)

            self.take(body, answer, now, request.client.connection)

        return handle

    def _refused(self, body: Order) -> ErrorCode:
        """STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH or NONE. A later broker epoch is accepted: this broker has not learned it
        yet."""
        error = ErrorCode.NONE
        if is_stale_broker_epoch(body.broker_epoch, self._broker_epoch()):
            error = ErrorCode.STALE_BROKER_EPOCH
        elif is_stale_controller_epoch(body, self.controller_epoch):
            error = ErrorCode.STALE_CONTROLLER_EPOCH
        if error is not ErrorCode.NONE:
            self._step("RefuseRequest", body, request=NAMES[type(body)], error=error.name)
        return error

    def _step(self, action: str, body: Order, **arguments: Any) -> None:
        if self._trace is not None:
            said: dict[str, Any] = {
                "broker": self._node,
                "controller": body.controller_id,
                "controllerEpoch": body.controller_epoch,
                "brokerEpoch": body.broker_epoch,
            }
            self._trace(action, {"node": self._node, "args": said | arguments})

    # ---- LeaderAndIsr

    def _lead_and_follow(self, body: LeaderAndIsrRequest, answer: Answer, now: TimestampMs) -> None:
        """Apply a LeaderAndIsr after all topics' settings were read; by then it may be out of date."""
        refused = self._refused(body)
        if refused is not ErrorCode.NONE:
            answer(LeaderAndIsrResponse(error_code=refused), now)
            return
        self._step("TakeLeaderAndIsr", body)
        response = LeaderAndIsrResponse()
        keys: list[Key] = []
        for topic in body.topic_states:
            result = TopicError(topic_id=topic.topic_id)
            for each in topic.partition_states:
                error = self._assign(topic.topic_name, topic, each)
                result.partition_errors.append(PartitionError(partition_index=each.partition_index, error_code=error))
                if error is ErrorCode.NONE:
                    keys.append((topic.topic_name, each.partition_index))
            response.topics.append(result)
        self._assigned.end_offset = Offset(self._assigned.end_offset + 1)
        self.roles_changed(keys, now)
        answer(response, now)

    def _assign(
        self, name: TopicName, asked: LeaderAndIsrRequest.LeaderAndIsrTopicState, state: PartitionState
    ) -> ErrorCode:
        """Assign a partition. Errors: UNKNOWN_TOPIC_OR_PARTITION; STALE_CONTROLLER_EPOCH for an older state of the partition."""
        known = self._assigned.topics.get(name)
        if known is not None and known.id != asked.topic_id:
            self._forget(known)
            known = None
        before = known.partitions.get(state.partition_index) if known is not None else None
        if before is not None and is_older_role(state, before):
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if self._node not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if known is None:
            known = TopicImage(name, asked.topic_id)
            self._assigned.topics[name] = self._assigned.topics_by_id[asked.topic_id] = known
        known.partitions[state.partition_index] = PartitionImage(
            replicas=[*state.replicas],
            isr=[*state.isr],
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            removing_replicas=[*state.removing_replicas],
            adding_replicas=[*state.adding_replicas],
            eligible_leader_replicas=[],
            last_known_elr=[],
            directories=[MIGRATING] * len(state.replicas),
            leader_recovery_state=state.leader_recovery_state,
        )
        return ErrorCode.NONE

    def _forget_settings(self, body: LeaderAndIsrRequest) -> None:
        """Drop the settings of topics that were created again, and so have other settings."""
        for topic in body.topic_states:
            for image in (self._assigned, self._image):
                known = image.topics.get(topic.topic_name)
                if known is not None and known.id != topic.topic_id:
                    self._configs.forget(topic.topic_name)

    def _forget(self, topic: TopicImage) -> None:
        del self._assigned.topics[topic.name]
        del self._assigned.topics_by_id[topic.id]

    def accepted(
        self, key: Key, leader_epoch: LeaderEpoch, partition_epoch: PartitionEpoch, isr: list[NodeId], now: TimestampMs
    ) -> None:
        """Apply a proposal that the controller has written: no request follows it."""
        partition = self._assigned.partition(*key)
        if (
            partition is not None
            and partition.leader_epoch == leader_epoch
            and partition.partition_epoch < partition_epoch
        ):
            partition.isr, partition.partition_epoch = isr, partition_epoch
            self.roles_changed([key], now)

    # ---- StopReplica

    def _stop_replicas(self, body: StopReplicaRequest, now: TimestampMs) -> StopReplicaResponse:
        response = StopReplicaResponse()
        keys: list[Key] = []
        for topic in body.topic_states:
            for each in topic.partition_states:
                key = topic.topic_name, each.partition_index
                error = self._stop(key, each.leader_epoch, each.delete_partition)
                response.partition_errors.append(StopError(topic_name=key[0], partition_index=key[1], error_code=error))
                if error is ErrorCode.NONE and each.delete_partition:
                    keys.append(key)
        self._step("TakeStopReplica", body, deleted=[[*key] for key in keys])
        self.roles_changed(keys, now)
        return response

    def _stop(self, key: Key, leader_epoch: LeaderEpoch, delete: bool) -> ErrorCode:
        """Remove a replica. Errors: FENCED_LEADER_EPOCH for an earlier leader epoch than the replica's (KIP-570)."""
        topic = self._assigned.topics.get(key[0])
        partition = topic.partitions.get(key[1]) if topic is not None else None
        if topic is None or partition is None:
            return ErrorCode.NONE
        if is_fenced_stop(leader_epoch, partition.leader_epoch):
            return ErrorCode.FENCED_LEADER_EPOCH
        if delete:
            del topic.partitions[key[1]]
            if not topic.partitions:
                self._forget(topic)
                if (
                    topic.name not in self._image.topics
                ):  # else it was reassigned: the controller needs the settings all the same
                    self._configs.forget(topic.name)
        return ErrorCode.NONE

    # ---- UpdateMetadata

    def _update_metadata(self, body: UpdateMetadataRequest, now: TimestampMs) -> UpdateMetadataResponse:
        image, changes = self._image, TopicChanges(self._image)
        before = {*image.brokers}
        self._take_brokers(body)
        for topic in body.topic_states:
            known = image.topics.get(topic.topic_name)
            if known is not None and known.id != topic.topic_id:
                self._apply(RemoveTopicRecord(topic_id=known.id), changes)
                self._configs.forget(topic.topic_name)
            for each in topic.partition_states:
                if each.leader == DELETED:
                    self._remove(topic.topic_name, each.partition_index, changes)
                else:
                    self._update(topic, each, changes)
        self._give_up_former(body, now)
        image.end_offset = Offset(image.end_offset + 1)
        self.metadata_changed(changes, before ^ {*image.brokers}, now)
        return UpdateMetadataResponse()

    def _give_up_former(self, body: UpdateMetadataRequest, now: TimestampMs) -> None:
        """Remove replicas that a reassignment dropped, if its controller could not send this broker a StopReplica."""
        given_up: list[Key] = []
        for topic in body.topic_states:
            held = self._assigned.topics.get(topic.topic_name)
            if held is None or held.id != topic.topic_id:
                continue
            for each in topic.partition_states:
                partition = held.partitions.get(each.partition_index)
                if partition is None or self._node in each.replicas or each.leader == DELETED:
                    continue
                if (each.leader_epoch, each.zk_version) > (partition.leader_epoch, partition.partition_epoch):
                    self._stop((topic.topic_name, each.partition_index), EPOCH_DURING_DELETE, True)
                    given_up.append((topic.topic_name, each.partition_index))
        if given_up:
            self.roles_changed(given_up, now)

    def _apply(self, record: Message, changes: TopicChanges) -> None:
        changes.see(record)
        self._image.apply(record)

    def _take_brokers(self, body: UpdateMetadataRequest) -> None:
        live: dict[NodeId, BrokerImage] = {}
        for each in body.live_brokers:
            endpoints = [Endpoint(end.listener, end.host, end.port, end.security_protocol) for end in each.endpoints]
            record = RegisterBrokerRecord(broker_id=each.id, broker_epoch=NO_EPOCH, rack=each.rack, fenced=False)
            live[each.id] = BrokerImage(each.id, BrokerEpoch(NO_EPOCH), endpoints, each.rack, False, False, record)
        self._image.brokers.clear()
        self._image.brokers.update(live)

    def _remove(self, name: TopicName, index: int, changes: TopicChanges) -> None:
        topic = self._image.topics.get(name)
        if topic is None or index not in topic.partitions:
            return
        if len(topic.partitions) == 1:
            self._apply(RemoveTopicRecord(topic_id=topic.id), changes)
            self._configs.forget(name)
        else:
            del topic.partitions[index]

    def _update(
        self,
        topic: UpdateMetadataRequest.UpdateMetadataTopicState,
        state: UpdateMetadataRequest.UpdateMetadataPartitionState,
        changes: TopicChanges,
    ) -> None:
        image = self._image
        if topic.topic_name not in image.topics:
            self._apply(TopicRecord(name=topic.topic_name, topic_id=topic.topic_id), changes)
        known = image.topics[topic.topic_name].partitions.get(state.partition_index)
        asked = state.leader_epoch, state.zk_version
        if known is not None and asked < (known.leader_epoch, known.partition_epoch):
            return  # a request that was abandoned and sent again arrives after later ones
        record = PartitionRecord(
            topic_id=topic.topic_id,
            partition_id=state.partition_index,
            replicas=[*state.replicas],
            isr=[*state.isr],
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            partition_epoch=PartitionEpoch(state.zk_version),
        )
        if known is not None:
            image.apply(record)
        else:
            self._apply(record, changes)


def is_stale_broker_epoch(asked: BrokerEpoch, own: BrokerEpoch) -> bool:
    """Whether a request is for an earlier incarnation of this broker (KIP-380); -1 is not checked."""
    return NO_EPOCH < asked < own


def is_stale_controller_epoch(body: Order, newest: LeaderEpoch) -> bool:
    """Whether a request is of an earlier controller than the newest that this broker has learned."""
    return body.controller_epoch < newest


def is_given_up(
    epoch: LeaderEpoch, connection: ConnectionId, newest_epoch: LeaderEpoch, newest_connection: ConnectionId
) -> bool:
    """Whether a request arrives on an earlier connection than the controller's last one, on which it was sent again."""
    return epoch == newest_epoch and connection < newest_connection


def is_older_role(state: PartitionState, known: PartitionImage) -> bool:
    """Whether a role is of an earlier state of the partition than the replica's."""
    return (state.leader_epoch, state.partition_epoch) < (known.leader_epoch, known.partition_epoch)


def is_fenced_stop(asked: LeaderEpoch, own: LeaderEpoch) -> bool:
    """Whether a StopReplica is of an earlier leader epoch (KIP-570); a deletion, or an older controller, has none."""
    return asked not in (NO_EPOCH, EPOCH_DURING_DELETE) and asked < own
