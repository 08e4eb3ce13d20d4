"""Nodes for tests of the world itself: real replicas over real bytes, and above them a controller that nothing can hurt.

The controller is one object in memory that all nodes of a run share: who ticks is alive, whoever stays silent is fenced,
leaders come from the ISR or the eligible replicas. It stands in for what the quorum and the brokers' membership do.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from reference.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from reference.node.effects import Respond
from reference.node.peers import Peers
from reference.protocol.codec import decode_from
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.frames import decode_request, encode_response
from reference.protocol.messages.create_topics import CreateTopicsResponse
from reference.protocol.messages.fetch import FetchRequest, FetchResponse
from reference.protocol.messages.init_producer_id import InitProducerIdResponse
from reference.protocol.messages.list_offsets import ListOffsetsResponse
from reference.protocol.messages.metadata import MetadataResponse
from reference.protocol.messages.produce import ProduceResponse
from reference.replication.partition import Partition, PartitionState
from reference.replication.partition_state import Peer
from reference.storage.config import LogConfig
from reference.storage.errors import LogError
from reference.storage.log_manager import LogManager

SESSION_MS = 500
TICK_MS = 20
WAIT_MS = 60
FETCH_BYTES = 1 << 16


@dataclass
class FairController:
    """Decides at once, and never fails."""

    min_isr: int
    image: MetadataImage = field(default_factory=MetadataImage)
    received: dict[int, int] = field(default_factory=dict)
    next_epoch: int = 1
    next_producer_id: int = 1
    keeps_unclean_members: bool = False
    """A planted bug: whoever ended uncleanly stays in the ISR (before KIP-966)."""

    def register(self, node: int, now: int, clean: bool) -> None:
        image = self.image
        image.end_offset += 1
        self.next_epoch += 1
        image.brokers[node] = BrokerImage(node, self.next_epoch, [], None, False, False, None)  # type: ignore[arg-type]
        self.received[node] = now
        for partition in self._partitions():
            if not clean and not self.keeps_unclean_members:
                partition.eligible_leader_replicas = [x for x in partition.eligible_leader_replicas if x != node]
                self._without(partition, node, may_be_elected=False)
                if not partition.isr and not partition.eligible_leader_replicas and not partition.last_known_elr:
                    partition.last_known_elr = [node]
            self._elect(partition)

    def hear(self, node: int, now: int) -> None:
        self.received[node] = now
        if self.image.brokers[node].fenced:
            self.image.brokers[node].fenced = False
            self._changed()
        for other, at in self.received.items():
            if now - at > SESSION_MS and not self.image.brokers[other].fenced:
                self.image.brokers[other].fenced = True
                for partition in self._partitions():
                    self._without(partition, other, may_be_elected=True)
                    self._elect(partition)

    def _partitions(self) -> list[PartitionImage]:
        return [each for topic in self.image.topics.values() for each in topic.partitions.values()]

    def _changed(self) -> None:
        self.image.end_offset += 1
        for partition in self._partitions():
            self._elect(partition)

    def _without(self, partition: PartitionImage, node: int, may_be_elected: bool) -> None:
        if node in partition.isr:
            partition.isr = [member for member in partition.isr if member != node]
            short = len(partition.isr) < min(self.min_isr, len(partition.replicas))
            if short and may_be_elected:
                partition.eligible_leader_replicas.append(node)
            if not partition.isr and not partition.eligible_leader_replicas:
                partition.last_known_elr = [node]
            partition.partition_epoch += 1
            self.image.end_offset += 1
        if partition.leader == node:
            partition.leader = -1
            partition.leader_epoch += 1
            partition.partition_epoch += 1

    def _elect(self, partition: PartitionImage) -> None:
        """Whoever is in sync and alive; if nobody is, an eligible replica."""
        if partition.leader >= 0:
            return
        last = () if partition.isr or partition.eligible_leader_replicas else partition.last_known_elr
        for candidate in (*partition.isr, *partition.eligible_leader_replicas, *last):
            if not self.image.brokers[candidate].fenced:
                eligible = [each for each in partition.eligible_leader_replicas if each != candidate]
                partition.isr = partition.isr if candidate in partition.isr else [candidate]
                enough = len(partition.isr) >= min(self.min_isr, len(partition.replicas))
                partition.eligible_leader_replicas = [] if enough else eligible
                partition.leader = candidate
                partition.leader_epoch += 1
                partition.partition_epoch += 1
                self.image.end_offset += 1
                return

    def alter(self, partition: PartitionImage, proposal: Any) -> ErrorCode:
        if proposal.leader_epoch != partition.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if proposal.partition_epoch != partition.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        for member, epoch in zip(proposal.isr, proposal.broker_epochs, strict=True):
            broker = self.image.brokers[member]
            if broker.fenced or epoch not in (-1, broker.epoch):
                return ErrorCode.INELIGIBLE_REPLICA
        left = [member for member in partition.isr if member not in proposal.isr]
        enough = len(proposal.isr) >= min(self.min_isr, len(partition.replicas))
        eligible = [] if enough else [*partition.eligible_leader_replicas, *left]
        partition.eligible_leader_replicas = [each for each in eligible if each not in proposal.isr]
        partition.isr = [*proposal.isr]
        partition.partition_epoch += 1
        self.image.end_offset += 1
        return ErrorCode.NONE

    def create(self, name: str, count: int) -> UUID:
        """A topic on all nodes; its partitions' leaders go round."""
        if name in self.image.topics:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS)
        nodes = sorted(self.image.brokers)
        topic = TopicImage(name, UUID(int=len(self.image.topics) + 1))
        for index in range(count):
            order = nodes[index % len(nodes) :] + nodes[: index % len(nodes)]
            alive = [node for node in order if not self.image.brokers[node].fenced]
            topic.partitions[index] = PartitionImage(order, alive, alive[0], 0, 0, [], [], [], [])
        self.image.topics[name] = topic
        self.image.topics_by_id[topic.id] = topic
        self.image.end_offset += 1
        return topic.id


@dataclass
class Waiting:
    """A request that waits for the next step or its deadline."""

    connection: int
    deadline: int
    try_to_answer: Callable[[bool], Any]
    """Takes whether time is over; gives the answer, or None."""
    answer: Callable[[Any], None]


class FairNode:
    """Speaks the interface of `reference.node.node.Node`, as far as the world uses it."""

    controller: FairController

    def __init__(
        self, identity: Any, properties: Mapping[str, str], logs: LogManager, chance: Any, now: int, log: Any,
        tracer: Any,
    ) -> None:  # fmt: skip
        self.id = identity.node
        self.partitions: dict[tuple[str, int], Partition] = {}
        self._effects: list[Any] = []
        self._peers = Peers(self.id, self._effects_append)
        self._waiting: list[Waiting] = []
        self._tracer = tracer
        self._now = now
        self._applied = -1
        self._properties = properties
        self.logs = logs
        self.logs.load(now)
        self.replicas, self.is_broken = SimpleNamespace(offline={}), False
        clean = self.logs.last_broker_epoch is not None
        self.controller.register(self.id, now, clean)
        self.broker_epoch = self.controller.image.brokers[self.id].epoch
        self._next_tick = now
        self._asking: dict[int, bool] = {}
        self._apply(now)

    def _effects_append(self, effect: Any) -> None:
        self._effects.append(effect)

    @property
    def image(self) -> MetadataImage:
        return self.controller.image

    # ---- the interface

    def connected(self, connection: int, host: str, listener: str) -> None: ...

    def disconnected(self, connection: int) -> None:
        self._waiting = [each for each in self._waiting if each.connection != connection]

    def take_effects(self) -> list[Any]:
        effects = self._effects[:]
        self._effects.clear()
        return effects

    def next_deadline(self) -> int:
        return min([self._next_tick, *(each.deadline for each in self._waiting)])

    def tick(self, now: int) -> None:
        self._now = now
        self._peers.tick(now)
        if now >= self._next_tick:
            self._next_tick = now + TICK_MS
            self.controller.hear(self.id, now)
            self.logs.tick(now)
            for partition in self.partitions.values():
                partition.shrink_isr(now)
        self._step(now)

    def answered(self, peer: int, purpose: str, frame: bytes, now: int) -> None:
        self._now = now
        self._peers.answered(peer, purpose, frame, now)
        self._step(now)

    def unreachable(self, peer: int, purpose: str, now: int) -> None:
        self._now = now
        self._peers.unreachable(peer, purpose, now)

    def leave(self, now: int, timeout_ms: int) -> None: ...

    @property
    def may_stop(self) -> bool:
        return True

    @property
    def quorum(self) -> Any:
        """A member of a quorum that is not there."""
        log = SimpleNamespace(log_start_offset=0, log_end_offset=0, recovery_point=0)
        quorum = SimpleNamespace(log_end_offset=0, high_watermark=0, is_leader=False, epoch=0)
        quorum.records_log, quorum.latest_snapshot = log, None
        return quorum

    def shut_down(self, now: int) -> None:
        self.logs.shut_down({key: each.high_watermark for key, each in self.partitions.items()}, now, None)

    def receive(self, connection: int, frame: bytearray, now: int) -> None:
        self._now = now
        header, form, view, position = decode_request(frame)
        key, version = header.request_api_key, header.request_api_version
        body, _ = decode_from(form.request, version, view, position)

        def answer(response: Any) -> None:
            parts = None if response is None else encode_response(key, version, header.correlation_id, response)
            self._effects.append(Respond(connection, parts))

        handlers = {0: self._produce, 1: self._fetch, 2: self._list_offsets, 3: self._metadata, 19: self._create,
                    22: self._producer_id}  # fmt: skip
        found = handlers[key](body, version)
        if isinstance(found, Waiting):
            found.connection, found.answer = connection, answer
            self._waiting.append(found)
        else:
            answer(found)
        self._step(now)

    # ---- metadata

    def _apply(self, now: int) -> None:
        image = self.image
        if image.end_offset == self._applied:
            return
        self._applied = image.end_offset
        for topic in image.topics.values():
            for index, each in topic.partitions.items():
                state = PartitionState(
                    each.leader, each.leader_epoch, each.partition_epoch, (*each.replicas,), (*each.isr,)
                )
                key = (topic.name, index)
                if key not in self.partitions:
                    config = LogConfig.from_topic_config(
                        {
                            "segment.bytes": "3000",
                            "flush.messages": self._properties.get("flush.messages", str(1 << 60)),
                        }
                    )
                    log = self.logs.get_or_create(key, topic.id, config, now)
                    partition = Partition(topic.name, topic.id, index, log, self.id)
                    partition.trace = self._tracer
                    partition.brokers = self._broker
                    partition.min_isr, partition.lag_max_ms = self.controller.min_isr, 300
                    partition.restart(self.logs.high_watermark(key))
                    self.partitions[key] = partition
                self.partitions[key].take_up(state, now)

    def _broker(self, node: int) -> Peer | None:
        found = self.image.brokers.get(node)
        return Peer(found.epoch, found.fenced) if found is not None else None

    def _step(self, now: int) -> None:
        self._apply(now)
        for key, partition in self.partitions.items():
            proposal = partition.take_proposal()
            if proposal is not None:
                each = self.image.topics[key[0]].partitions[key[1]]
                error = self.controller.alter(each, proposal)
                partition.proposal_answered(
                    proposal, error, now, leader_epoch=each.leader_epoch, partition_epoch=each.partition_epoch,
                    isr=(*each.isr,),
                )  # fmt: skip
        self._apply(now)
        for waiting in [*self._waiting]:
            response = waiting.try_to_answer(now >= waiting.deadline)
            if response is not None:
                self._waiting.remove(waiting)
                waiting.answer(response)
        self._follow(now)

    # ---- following

    def _follow(self, now: int) -> None:
        leaders = {each.state.leader for each in self.partitions.values()} - {self.id, -1}
        for leader in sorted(leaders):
            if self._asking.get(leader):
                continue
            mine = [each for each in self.partitions.values() if each.state.leader == leader]
            topics: dict[str, Any] = {}
            asked = {}
            for each in mine:
                topic = topics.setdefault(each.topic, FetchRequest.FetchTopic(topic=each.topic))
                offset = each.log.log_end_offset
                asked[each.topic, each.index] = (each.state.leader_epoch, offset)
                topic.partitions.append(
                    FetchRequest.FetchPartition(
                        partition=each.index, fetch_offset=offset, partition_max_bytes=FETCH_BYTES,
                        current_leader_epoch=each.state.leader_epoch, last_fetched_epoch=each.last_fetched_epoch,
                    )
                )  # fmt: skip
            body = FetchRequest(
                replica_id=-1, max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=1 << 20, session_epoch=-1,
                topics=[*topics.values()],
                cluster_id=None,
            )  # fmt: skip
            body.replica_id = self.id
            self._asking[leader] = True
            self._ask(leader, body, asked, now)

    def _ask(self, leader: int, body: FetchRequest, asked: dict[tuple[str, int], tuple[int, int]], now: int) -> None:
        from reference.node import peers

        original = peers.versions_of
        peers.versions_of = lambda key: (0, 12)  # topics are asked for by name here
        try:
            self._peers.ask(
                leader, (f"node-{leader}", 9092), "fetch", body, now, 400,
                lambda response, at: self._fetched(leader, asked, response, at),
            )  # fmt: skip
        finally:
            peers.versions_of = original

    def _fetched(self, leader: int, asked: Any, response: Any, now: int) -> None:
        self._asking[leader] = False
        for topic in response.responses if response is not None else ():
            for each in topic.partitions:
                partition = self.partitions[topic.topic, each.partition_index]
                epoch, offset = asked[topic.topic, each.partition_index]
                if partition.state.leader_epoch != epoch or partition.is_leader or each.error_code:
                    continue
                try:
                    if each.diverging_epoch.epoch >= 0 or each.diverging_epoch.end_offset >= 0:
                        partition.truncate(leader, each.diverging_epoch.epoch, each.diverging_epoch.end_offset)
                    else:
                        records = bytes(each.records or b"")
                        partition.append_fetched(
                            leader, offset, records, each.high_watermark, each.log_start_offset, now
                        )
                except LogError:
                    continue

    # ---- clients

    def _metadata(self, body: Any, version: int) -> MetadataResponse:
        response = MetadataResponse(controller_id=self.id)
        for asked in body.topics:
            topic = self.image.topics.get(asked.name)
            if topic is None:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                response.topics.append(MetadataResponse.MetadataResponseTopic(error_code=code, name=asked.name))
                continue
            partitions = [
                MetadataResponse.MetadataResponsePartition(
                    partition_index=index, leader_id=each.leader, leader_epoch=each.leader_epoch
                )
                for index, each in topic.partitions.items()
            ]
            response.topics.append(
                MetadataResponse.MetadataResponseTopic(name=topic.name, topic_id=topic.id, partitions=partitions)
            )
        return response

    def _create(self, body: Any, version: int) -> CreateTopicsResponse:
        answer = CreateTopicsResponse.CreatableTopicResult(name=body.topics[0].name)
        try:
            answer.topic_id = self.controller.create(answer.name, body.topics[0].num_partitions)
        except KafkaError as error:
            answer.error_code = error.code
        return CreateTopicsResponse(topics=[answer])

    def _producer_id(self, body: Any, version: int) -> InitProducerIdResponse:
        self.controller.next_producer_id += 1
        return InitProducerIdResponse(producer_id=self.controller.next_producer_id, producer_epoch=0)

    def _produce(self, body: Any, version: int) -> Any:
        (topic,) = body.topic_data
        (each,) = topic.partition_data
        partition = self.partitions.get((topic.name, each.index))
        wrap = ProduceResponse.TopicProduceResponse
        part = ProduceResponse.PartitionProduceResponse

        def response(code: int, offset: int = -1) -> ProduceResponse:
            said = part(index=each.index, error_code=code, base_offset=offset)
            return ProduceResponse(responses=[wrap(name=topic.name, partition_responses=[said])])

        if partition is None:
            return response(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        try:
            info = partition.produce(bytearray(each.records), self._now, required_acks=body.acks)
        except (KafkaError, LogError) as error:
            return response(error.code) if body.acks else None
        if body.acks == 0:
            return None
        if body.acks == 1:
            return response(ErrorCode.NONE, info.first_offset)
        end, epoch = info.last_offset + 1, partition.state.leader_epoch

        def try_to_answer(is_over: bool) -> ProduceResponse | None:
            if partition.state.leader_epoch != epoch:
                return response(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            code = partition.answer_to_produce(end)
            if code is not None:
                return response(code, info.first_offset)
            return response(ErrorCode.REQUEST_TIMED_OUT) if is_over else None

        return Waiting(0, self._now + body.timeout_ms, try_to_answer, lambda response: None)

    def _fetch(self, body: Any, version: int) -> Any:
        if body.session_epoch > 0:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

        def read(is_over: bool) -> FetchResponse | None:
            response, has_news = FetchResponse(), False
            for topic in body.topics:
                answer = FetchResponse.FetchableTopicResponse(topic=topic.topic)
                for asked in topic.partitions:
                    said = self._read(body.replica_id, topic.topic, asked)
                    has_news |= bool(said.records) or said.error_code != 0 or said.diverging_epoch.end_offset >= 0
                    answer.partitions.append(said)
                response.responses.append(answer)
            return response if has_news or is_over else None

        return Waiting(0, self._now + min(WAIT_MS, body.max_wait_ms), read, lambda response: None)

    def _read(self, replica: int, topic: str, asked: Any) -> Any:
        said = FetchResponse.PartitionData(partition_index=asked.partition, high_watermark=-1)
        partition = self.partitions.get((topic, asked.partition))
        if partition is None:
            said.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return said
        try:
            if replica >= 0:
                broker = self.image.brokers[replica]
                found = partition.answer_fetch(
                    replica, broker.epoch, asked.fetch_offset, asked.last_fetched_epoch, asked.current_leader_epoch,
                    self._now, FETCH_BYTES, True,
                )  # fmt: skip
            else:
                found = partition.read(
                    asked.fetch_offset, max_bytes=asked.partition_max_bytes, minimum_one=True, committed=False,
                    asked_epoch=asked.current_leader_epoch, last_epoch=asked.last_fetched_epoch,
                )  # fmt: skip
        except (KafkaError, LogError) as error:
            said.error_code = error.code
            return said
        said.high_watermark = found.high_watermark
        said.log_start_offset = found.log_start_offset
        if found.diverging is not None:
            said.diverging_epoch.epoch, said.diverging_epoch.end_offset = found.diverging
        said.records = found.records if isinstance(found.records, bytes) else found.records.read()
        return said

    def _list_offsets(self, body: Any, version: int) -> ListOffsetsResponse:
        response = ListOffsetsResponse()
        for topic in body.topics:
            answer = ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name)
            for asked in topic.partitions:
                said = ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=asked.partition_index)
                try:
                    partition = self.partitions[topic.name, asked.partition_index]
                    found = partition.list_offset(asked.timestamp, False, asked.current_leader_epoch)
                    said.offset, said.leader_epoch = found.offset, found.leader_epoch
                except KafkaError as error:
                    said.error_code = error.code
                answer.partitions.append(said)
            response.topics.append(answer)
        return response


def fair_nodes(min_isr: int = 2, **planted: bool) -> Any:
    """A class of nodes for one run, with a controller of its own."""
    controller = FairController(min_isr, **planted)
    return type("FairNodeOfALife", (FairNode,), {"controller": controller})
