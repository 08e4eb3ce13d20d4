"""QTA: throttling of clients that have exceeded their quotas."""

from __future__ import annotations

import time
from typing import Any

from conformance.answers import only
from conformance.broker import Broker
from conformance.quotas import (
    APIS,
    CLIENT_ID,
    CONNECTIONS,
    CONSUME,
    IP,
    MUTATIONS,
    PRODUCE,
    REQUESTS,
    USER,
    client,
    counts_for_s,
    expect_throttled,
    produce,
    throttled_after,
)
from conformance.quotas import acting_quota as quota
from conformance.quotas import set_acting_quota as set_quota
from conformance.requirement import requirement
from conformance.wire import BrokerConnection, Closed
from linearizability.client.requests import Topic, fetch_request, new_topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.api_versions import ApiVersionsRequest
from reference.protocol.messages.create_partitions import CreatePartitionsRequest
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.delete_topics import DeleteTopicsRequest
from reference.protocol.messages.fetch import FetchRequest
from reference.protocol.messages.metadata import MetadataRequest

UNLIMITED = "operator: a client that uses more than its share slows down all others"
LIMITED = "client: clients are throttled that have used little, and fall behind for no reason that they can find"
SINCE: dict[str, Any] = {"since": "2.6", "apis": APIS, "deadline_s": 60.0}
BATCH = 20_000
"""The size of a batch in bytes: over ten seconds it is twice LOW a second."""
LOW, HIGH = 1000.0, 1e9
SECOND = 1800.0
"""A quota that one batch exceeds so far that the client waits for about a second."""


def produce_throttle(broker: Broker, client_id: str, topic: Topic, size: int = BATCH) -> int:
    return produce(broker, client_id, topic, size).throttle_time_ms


@requirement(
    "QTA-20",
    notices=UNLIMITED,
    source="KIP-13, KIP-219; KafkaApis.handleProduceRequest",
    sentence="A producer that has sent more than producer_byte_rate learns at once for how long it is throttled; its "
    "batch is written.",
    accepted="throttle_time_ms above 0, no error; where quotas are in force, for a client's first batch beyond its own",
    **SINCE,
)
def producer_throttled(broker: Broker) -> None:
    topic, client_id, other = broker.topic(), broker.unused_name("client"), broker.unused_name("client")
    with quota(broker, {CLIENT_ID: other}, {PRODUCE: LOW}), quota(broker, {CLIENT_ID: client_id}, {PRODUCE: LOW}):
        expect_throttled(broker, lambda: produce_throttle(broker, client_id, topic), "the producer")
        if counts_for_s(broker) * LOW < BATCH:
            throttle_ms = produce_throttle(broker, other, topic)
            broker.expect(throttle_ms > 0, f"the first batch of another client throttles it for {throttle_ms} ms")
    broker.expect(broker.end_offset(topic) > 0, "the batches are written")


@requirement(
    "QTA-21",
    notices=LIMITED,
    source="KIP-13; ClientQuotaManager",
    sentence="A producer below its quota is not throttled, nor is one without a quota while another is.",
    accepted="throttle_time_ms 0",
    **SINCE,
)
def others_not_throttled(broker: Broker) -> None:
    topic, client_id, other = broker.topic(), broker.unused_name("client"), broker.unused_name("client")
    with quota(broker, {CLIENT_ID: client_id}, {PRODUCE: LOW}), quota(broker, {CLIENT_ID: other}, {PRODUCE: HIGH}):
        expect_throttled(broker, lambda: produce_throttle(broker, client_id, topic), "the producer")
        broker.expect_equal("below its quota", produce_throttle(broker, other, topic), 0)
        broker.expect_equal("without a quota", produce_throttle(broker, broker.unused_name("client"), topic), 0)


@requirement(
    "QTA-22",
    notices=UNLIMITED,
    source="KIP-219; SocketServer, ThrottledChannel",
    sentence="The next request of a throttled connection is answered when the throttle time is over, and not before.",
    accepted="an answer, after nine tenths of throttle_time_ms at the earliest",
    **SINCE,
)
def muted(broker: Broker) -> None:
    topic, client_id = broker.topic(), broker.unused_name("client")

    def longer_than_it_says() -> bool:
        """Whether the producer was throttled. The server cannot have begun to wait before the request was sent."""
        connection, began = client(broker, client_id, topic), time.monotonic()
        throttle_ms = produce(broker, client_id, topic, BATCH, on=connection).throttle_time_ms
        if throttle_ms == 0:
            return False
        connection.call(ApiVersionsRequest(), 0, timeout_s=throttle_ms / 1000 + 20)
        waited_ms = (time.monotonic() - began) * 1000
        broker.expect(
            waited_ms >= 0.9 * throttle_ms,
            f"{waited_ms:.0f} ms passed before the next answer, of throttle_time_ms {throttle_ms}",
        )
        return True

    with quota(broker, {CLIENT_ID: client_id}, {PRODUCE: SECOND}):
        broker.eventually(longer_than_it_says, "the producer is throttled")


@requirement(
    "QTA-23",
    notices=UNLIMITED,
    source="KIP-13; ClientQuotaManager",
    sentence="All connections of a client id share its quota: what one has used throttles the other.",
    accepted="throttle_time_ms above 0 for a batch of a few bytes, after another connection's",
    **SINCE,
)
def shared(broker: Broker) -> None:
    topic, client_id = broker.topic(), broker.unused_name("client")
    with quota(broker, {CLIENT_ID: client_id}, {PRODUCE: LOW}):
        throttle_ms = throttled_after(
            broker,
            lambda: expect_throttled(broker, lambda: produce_throttle(broker, client_id, topic), "the first"),
            lambda: produce_throttle(broker, client_id, topic, size=1),
        )
        broker.expect(throttle_ms > 0, "the second connection is throttled")


@requirement(
    "QTA-24",
    notices=UNLIMITED,
    source="KIP-13; KafkaApis.handleProduceRequest",
    sentence="What is sent with acks=0 counts for the quota.",
    accepted="throttle_time_ms above 0 for the next batch of a few bytes",
    **SINCE,
)
def without_acknowledgement(broker: Broker) -> None:
    topic, client_id = broker.topic(), broker.unused_name("client")

    def throttled() -> bool:
        return (
            throttled_after(
                broker,
                lambda: produce(broker, client_id, topic, 2 * BATCH, acks=0),
                lambda: produce_throttle(broker, client_id, topic, size=1),
            )
            > 0
        )

    with quota(broker, {CLIENT_ID: client_id}, {PRODUCE: LOW}):
        broker.eventually(throttled, "the next batch is throttled")


@requirement(
    "QTA-25",
    notices=LIMITED,
    source="KIP-55; documentation, Setting quotas",
    sentence="A quota for a client id of any user goes before one for the client id.",
    accepted="no throttle by a low quota of the client id under a high one of any user's; a throttle the other way round",
    **SINCE,
)
def more_specific(broker: Broker) -> None:
    topic = broker.topic()
    for specific, general in ((HIGH, LOW), (LOW, HIGH)):
        client_id = broker.unused_name("client")
        by_id, by_both = {CLIENT_ID: client_id}, {USER: None, CLIENT_ID: client_id}
        with (
            broker.case(f"{specific:g} before {general:g}"),
            quota(broker, by_both, {PRODUCE: specific}),
            quota(broker, by_id, {PRODUCE: general}),
        ):
            if specific == LOW:
                expect_throttled(broker, lambda id=client_id: produce_throttle(broker, id, topic), "the producer")
            else:
                broker.expect_equal("the throttle", produce_throttle(broker, client_id, topic), 0)


@requirement(
    "QTA-26",
    notices=LIMITED,
    source="KIP-546; ClientQuotaManager.updateQuota",
    sentence="A quota that is removed, or raised, throttles no more.",
    accepted="throttle_time_ms 0 afterwards",
    **SINCE,
)
def removed(broker: Broker) -> None:
    topic = broker.topic()
    for name, later in (("removed", None), ("raised", HIGH)):
        client_id = broker.unused_name("client")
        with broker.case(name):
            set_quota(broker, {CLIENT_ID: client_id}, {PRODUCE: LOW})
            expect_throttled(broker, lambda id=client_id: produce_throttle(broker, id, topic), "the producer")
            set_quota(broker, {CLIENT_ID: client_id}, {PRODUCE: later})
            broker.eventually(
                lambda id=client_id: produce_throttle(broker, id, topic, size=1) == 0,
                "the client is no longer throttled",
            )
            set_quota(broker, {CLIENT_ID: client_id}, {PRODUCE: None})


# ---- consumers


def fetch(
    broker: Broker,
    connection: BrokerConnection,
    topic: Topic,
    *,
    session_id: int = 0,
    session_epoch: int = -1,
    muted_ms: int = 0,
) -> Any:
    """A consumer's fetch. Its timeout includes `muted_ms`, for which the broker may not read from the connection."""
    wanted = {} if session_epoch > 0 else {(topic, 0): 0}
    request = fetch_request(wanted, max_wait_ms=500, session_id=session_id, session_epoch=session_epoch)
    return connection.call(request, broker.version_for(FetchRequest), timeout_s=muted_ms / 1000 + 20)


def sizes(answer: Any) -> int:
    return sum(len(part.records or b"") for topic in answer.responses for part in topic.partitions)


@requirement(
    "QTA-30",
    notices=UNLIMITED,
    source="KIP-13, KIP-219; KafkaApis.processResponseCallback",
    sentence="A consumer that would get more than consumer_byte_rate gets no records, and learns for how long it is throttled.",
    accepted="throttle_time_ms above 0, no error, no records",
    **SINCE,
)
def consumer_throttled(broker: Broker) -> None:
    topic, client_id = broker.topic(), broker.unused_name("client")
    produce(broker, broker.unused_name("client"), topic, BATCH)

    def throttled() -> bool:
        answer = fetch(broker, client(broker, client_id, topic), topic)
        if answer.throttle_time_ms == 0:
            return False
        broker.expect_error(answer.error_code, ErrorCode.NONE)
        broker.expect_equal("the bytes of records", sizes(answer), 0)
        return True

    with quota(broker, {CLIENT_ID: client_id}, {CONSUME: LOW}):
        broker.eventually(throttled, "the consumer is throttled")


@requirement(
    "QTA-31",
    notices="data: a consumer's session goes on behind records that it did not get",
    source="KIP-219, KIP-227; FetchContext.getThrottledResponse",
    sentence="A session goes on after a throttled answer as if nothing had been asked: its next epoch brings the records.",
    accepted="the records, once the quota is removed",
    **SINCE,
)
def session_goes_on(broker: Broker) -> None:
    topic, client_id = broker.topic(), broker.unused_name("client")
    entity = {CLIENT_ID: client_id}
    connection = client(broker, client_id, topic)
    begun = fetch(broker, connection, topic, session_id=0, session_epoch=0)
    if not begun.session_id:
        broker.skip("needs a fetch session, and the target gave none")
    epoch = throttle_ms = 0
    with quota(broker, entity, {CONSUME: SECOND}):
        produce(broker, broker.unused_name("client"), topic, BATCH)
        while not throttle_ms and epoch < 20:
            epoch += 1
            answer = fetch(broker, connection, topic, session_id=begun.session_id, session_epoch=epoch)
            broker.expect_error(answer.error_code, ErrorCode.NONE, what=f"epoch {epoch}")
            throttle_ms = answer.throttle_time_ms
            if throttle_ms:
                broker.expect_equal("the bytes of records", sizes(answer), 0)
            elif sizes(answer):
                broker.skip("the broker did not act on the quota in time, and the records are fetched")
    broker.expect(throttle_ms > 0, "the consumer is throttled")
    session = {"session_id": begun.session_id, "session_epoch": epoch + 1}
    answer = fetch(broker, connection, topic, **session, muted_ms=throttle_ms)
    broker.expect(sizes(answer) > 0, "the next epoch brings the records")


@requirement(
    "QTA-32",
    notices=LIMITED,
    source="KIP-13; ClientQuotaManager",
    sentence="A quota for producing does not throttle fetches, one for fetching no produce request.",
    accepted="throttle_time_ms 0 for the other kind",
    **SINCE,
)
def kinds_apart(broker: Broker) -> None:
    topic, producer, consumer = broker.topic(), broker.unused_name("client"), broker.unused_name("client")
    with quota(broker, {CLIENT_ID: producer}, {PRODUCE: LOW}), quota(broker, {CLIENT_ID: consumer}, {CONSUME: LOW}):
        expect_throttled(broker, lambda: produce_throttle(broker, producer, topic), "the producer")
        answer = fetch(broker, client(broker, producer, topic), topic)
        broker.expect_equal("the producer's fetch", answer.throttle_time_ms, 0)
        broker.expect(sizes(answer) > 0, "it brings records")
        broker.expect_equal("the consumer's batch", produce_throttle(broker, consumer, topic), 0)


@requirement(
    "QTA-33",
    notices=UNLIMITED,
    source="KIP-124; ClientRequestQuotaManager",
    sentence="A client whose requests take more than request_percentage of a thread's time is throttled.",
    accepted="throttle_time_ms above 0 in time; each request is answered without an error",
    **SINCE,
)
def requests_throttled(broker: Broker) -> None:
    client_id = broker.unused_name("client")
    with quota(broker, {CLIENT_ID: client_id}, {REQUESTS: 0.001}):
        connection = client(broker, client_id)
        version = broker.version_for(MetadataRequest)

        def is_throttled() -> bool:
            """With ZooKeeper a broker learns of a quota after it is described."""
            answers = (connection.call(MetadataRequest(topics=[]), version) for _ in range(500))
            return any(answer.throttle_time_ms > 0 for answer in answers)

        broker.eventually(is_throttled, "a request is throttled")


# ---- mutations of partitions

FEW = 0.1
"""A quota in partitions a second: eleven windows allow one, so a topic of five leaves a debt of half a minute."""
MANY = 5
STRICT: dict[str, Any] = {"since": "3.6", "deadline_s": 60.0}
"""Since 3.6: Kafka 3.3.2 with KRaft does not limit mutations, 3.6.2 does."""
EXCEEDED = "THROTTLING_QUOTA_EXCEEDED(89), throttle_time_ms above 0, and nothing is changed"
STORM = "operator: a client that creates and deletes topics without end keeps the controller busy for all others"


def create(broker: Broker, client_id: str, name: str, partitions: int, version: int) -> Any:
    """The response of CreateTopics on a new connection."""
    request = CreateTopicsRequest(topics=[new_topic(name, partitions)], timeout_ms=10_000)
    return client(broker, client_id).call(request, broker.version_for(request, version))


def exhaust(broker: Broker, client_id: str) -> str:
    """Create a topic that uses up the client's quota, and is itself not refused; return its name."""
    name = broker.unused_name()
    answer = create(broker, client_id, name, MANY, 7)
    broker.expect_error(only(answer.topics, "topic").error_code, ErrorCode.NONE, what="the first topic")
    return name


def names(broker: Broker) -> dict[str, int]:
    answer = broker.call(MetadataRequest(topics=None))
    return {topic.name: len(topic.partitions) for topic in answer.topics}


@requirement(
    "QTA-40",
    notices=STORM,
    source="KIP-599; ControllerApis.handleCreateTopics",
    sentence="CreateTopics v6 of a client that has used up controller_mutation_rate is refused.",
    accepted=EXCEEDED,
    apis={**APIS, "CreateTopics": 7},
    **STRICT,
)
def creation_refused(broker: Broker) -> None:
    client_id = broker.unused_name("client")

    def refused() -> bool:
        exhaust(broker, client_id)
        name = broker.unused_name()
        answer = create(broker, client_id, name, 1, 7)
        code = only(answer.topics, "topic").error_code
        if code == ErrorCode.NONE:
            return False
        broker.expect_error(code, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        broker.expect(answer.throttle_time_ms > 0, "the response has a throttle time")
        broker.expect(name not in names(broker), "the topic is not created")
        return True

    with quota(broker, {CLIENT_ID: client_id}, {MUTATIONS: FEW}):
        broker.eventually(refused, "the second topic is refused")


@requirement(
    "QTA-41",
    notices="tool: an old admin client takes a topic for created that is not",
    source="KIP-599; ControllerMutationQuotaManager.newQuotaFor",
    sentence="CreateTopics v5, whose clients do not know the error, is carried out; it says for how long the client is "
    "throttled.",
    accepted="no error, throttle_time_ms above 0",
    apis={**APIS, "CreateTopics": 5},
    **STRICT,
)
def old_creation_throttled(broker: Broker) -> None:
    client_id = broker.unused_name("client")

    def throttled() -> bool:
        answer = create(broker, client_id, broker.unused_name(), MANY, 5)
        broker.expect_error(only(answer.topics, "topic").error_code, ErrorCode.NONE)
        return answer.throttle_time_ms > 0

    with quota(broker, {CLIENT_ID: client_id}, {MUTATIONS: FEW}):
        broker.eventually(throttled, "the client is throttled")


@requirement(
    "QTA-42",
    notices=STORM,
    source="KIP-599; ControllerApis.handleCreatePartitions, handleDeleteTopics",
    sentence="CreatePartitions v3 and DeleteTopics v5 of a client that has used up controller_mutation_rate are refused.",
    accepted=EXCEEDED,
    apis={**APIS, "CreateTopics": 7, "CreatePartitions": 3, "DeleteTopics": 5},
    **STRICT,
)
def others_refused(broker: Broker) -> None:
    broker.needs_deletion()
    client_id = broker.unused_name("client")

    def refused() -> bool:
        name = exhaust(broker, client_id)
        broker.eventually(lambda: names(broker).get(name) == MANY, "the topic is there")
        more = CreatePartitionsRequest(
            topics=[CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=MANY + 1, assignments=None)],
            timeout_ms=10_000,
        )
        grown = client(broker, client_id).call(more, broker.version_for(more, 3))
        code = only(grown.results, "topic").error_code
        if code == ErrorCode.NONE:
            return False
        broker.expect_error(code, ErrorCode.THROTTLING_QUOTA_EXCEEDED, what="CreatePartitions")
        broker.expect(grown.throttle_time_ms > 0, "the response to CreatePartitions has a throttle time")
        gone = DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000)
        deleted = client(broker, client_id).call(gone, broker.version_for(gone, 5))
        broker.expect_error(
            only(deleted.responses, "topic").error_code, ErrorCode.THROTTLING_QUOTA_EXCEEDED, what="DeleteTopics"
        )
        broker.expect_equal("the topic's partitions", names(broker).get(name), MANY)
        return True

    with quota(broker, {CLIENT_ID: client_id}, {MUTATIONS: FEW}):
        broker.eventually(refused, "the client is refused")


@requirement(
    "QTA-43",
    notices=LIMITED,
    source="KIP-599",
    sentence="A client that may change no partition for a while is not hindered from reading metadata, nor others from changing.",
    accepted="throttle_time_ms 0 for Metadata; no error for another client's topic",
    apis={**APIS, "CreateTopics": 7},
    **STRICT,
)
def other_requests(broker: Broker) -> None:
    client_id = broker.unused_name("client")
    with quota(broker, {CLIENT_ID: client_id}, {MUTATIONS: FEW}):
        exhaust(broker, client_id)
        answer = client(broker, client_id).call(MetadataRequest(topics=[]), broker.version_for(MetadataRequest))
        broker.expect_equal("the throttle of Metadata", answer.throttle_time_ms, 0)
        other = create(broker, broker.unused_name("client"), broker.unused_name(), MANY, 7)
        broker.expect_error(only(other.topics, "topic").error_code, ErrorCode.NONE, what="another client's topic")


# ---- connections


@requirement(
    "QTA-50",
    notices="operator: one address that connects without end keeps all others from being accepted",
    source="KIP-612; ConnectionQuotas.recordIpConnectionMaybeThrottle",
    sentence="Connections from an address beyond connection_creation_rate are closed without an answer.",
    accepted="of 60 connections within half a minute at a rate of one a second at least one is closed, at least ten are served",
    since="2.8",
    apis=APIS,
    configs={"max.connections.per.ip": "1000"},
    alone=True,
    exclusive=True,
    deadline_s=120.0,
)
def connections_refused(broker: Broker) -> None:
    served = closed = 0
    own_address = broker.connect().socket.getsockname()[0]
    with quota(broker, {IP: own_address}, {CONNECTIONS: 1.0}):
        began = time.monotonic()
        connections = [broker.connect() for _ in range(60)]
        took_s = time.monotonic() - began
        for connection in connections:
            try:
                connection.call(ApiVersionsRequest(), 0)
                served += 1
            except Closed:
                closed += 1
            connection.close()
    if not closed and took_s > 30:
        broker.skip("this machine was too slow to connect faster than once a second")
    broker.expect(closed > 0, f"of 60 connections {closed}, at least one, were closed")
    broker.expect(served >= 10, f"of 60 connections {served}, at least ten, were served")
