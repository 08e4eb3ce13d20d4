"""TOP: several clients create one topic at the same time."""

from conformance.answers import only
from conformance.broker import Broker
from conformance.requirement import requirement
from linearizability.client.requests import new_topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.create_topics import CreateTopicsRequest

CLIENTS, ROUNDS = 4, 10
TIMEOUT_MS = 10_000


@requirement(
    "TOP-25",
    notices="misread: instances of Streams or Connect that start together take a topic for theirs that has other partitions",
    source="ReplicationControlManager.createTopics; AdminZkClient.createTopicWithAssignment",
    sentence="Of clients that make a topic of one name at the same time one succeeds, the others are refused with "
    "TOPIC_ALREADY_EXISTS, and the topic is as the first one asked for.",
    accepted=f"ten times, {CLIENTS} clients with 1 to {CLIENTS} partitions: NONE(0) once, TOPIC_ALREADY_EXISTS(36) else; as many "
    "partitions as the one asked for that was answered NONE(0)",
    tolerated="UNKNOWN_SERVER_ERROR(-1) for those that do not make it, as Kafka with ZooKeeper now and then answers",
    requires=("TOP-03", "TOP-13"),
)
def made_at_once(broker: Broker) -> None:
    broker.topic(CLIENTS)
    version = broker.version_for(CreateTopicsRequest)
    controller = broker.controller()
    clients = {partitions: broker.connect(controller) for partitions in range(1, CLIENTS + 1)}
    for _ in range(ROUNDS):
        name = broker.unused_name()
        broker.subject.topics.append(name)
        for partitions, client in clients.items():
            request = CreateTopicsRequest(topics=[new_topic(name, partitions)], timeout_ms=TIMEOUT_MS)
            client.send(request, version)
        results = {asked: only(client.receive().topics, "result") for asked, client in clients.items()}
        made = [asked for asked, result in results.items() if result.error_code == ErrorCode.NONE]
        for asked, result in results.items():
            broker.expect_error(
                result.error_code,
                ErrorCode.NONE,
                ErrorCode.TOPIC_ALREADY_EXISTS,
                tolerated={ErrorCode.UNKNOWN_SERVER_ERROR},
                what=f"with {asked} partitions",
                message=result.error_message if version >= 1 else "",
            )
        broker.expect_equal("the number of clients that made the topic", len(made), 1)
        broker.expect_equal("its partitions", broker.await_topic(name, made[0]).partitions, made[0])
