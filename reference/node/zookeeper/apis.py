"""The APIs of a broker with ZooKeeper: those of Apache Kafka 3.9.2 that are supported here."""

from __future__ import annotations

from functools import partial

from reference.controller.brokers import check_broker_epoch, controlled_shutdown
from reference.controller.elections import places
from reference.controller.image import NO_LEADER
from reference.node import metadata
from reference.node.active_controller import ActiveController, Decide
from reference.node.apis import (
    ADVERTISED_BELOW_SERVED,
    ALLOCATE_PRODUCER_IDS,
    ALTER_CONFIGS,
    ALTER_PARTITION,
    ALTER_PARTITION_REASSIGNMENTS,
    API_VERSIONS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DECIDED_HANDLERS,
    DELETE_TOPICS,
    DESCRIBE_ACLS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_DELEGATION_TOKEN,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    ELECT_LEADERS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_PARTITION_REASSIGNMENTS,
    QUIET,
    Api,
    BrokerParts,
    Handler,
    broker_handlers,
)
from reference.node.authentication import SASL_AUTHENTICATE, SASL_HANDSHAKE, illegal_state
from reference.node.release import RELEASE as NEWEST
from reference.node.release import versions_of
from reference.node.zookeeper.channel import ZooKeeperChannel
from reference.protocol.apis import APIS
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from reference.protocol.messages.partition_change_record import PartitionChangeRecord
from reference.protocol.primitives import TimestampMs
from reference.protocol.schema import Message

RELEASE = "3.9.2"
LISTENER = "zkBroker"
LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, CONTROLLED_SHUTDOWN = 4, 5, 6, 7
ORDERS = frozenset({LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA})
LOWEST_BETWEEN_BROKERS = {LEADER_AND_ISR: 5, STOP_REPLICA: 3, UPDATE_METADATA: 7, ALTER_PARTITION: 0}
"""The lowest versions of requests between brokers: those of inter-broker protocol 2.8. A broker of 2.8 has version 0 of
AlterPartition alone (then AlterIsr), and sends it again and again to a controller that does not advertise it."""

FOR_THE_CONTROLLER = frozenset({CONTROLLED_SHUTDOWN, ALTER_PARTITION, ALLOCATE_PRODUCER_IDS})
"""APIs that brokers send only to the controller."""


def shut_down_controlled(
    controller: ActiveController, version: int, body: ControlledShutdownRequest, now: TimestampMs
) -> Message:
    """A broker's controlled shutdown: other in-sync replicas become leaders, if there are any."""
    image, broker = controller.image, body.broker_id
    if body.broker_epoch >= 0:
        check_broker_epoch(image, broker, body.broker_epoch)
    elif broker not in image.brokers:
        return ControlledShutdownResponse(error_code=ErrorCode.BROKER_NOT_AVAILABLE)
    records = [
        record
        for record in controlled_shutdown(image, controller.configuration, broker)
        if not (isinstance(record, PartitionChangeRecord) and record.leader == NO_LEADER)
    ]
    moved = {(each.topic_id, each.partition_id) for each in records if isinstance(each, PartitionChangeRecord)}
    controller.append(records, now)
    remaining = ControlledShutdownResponse.RemainingPartition
    return ControlledShutdownResponse(
        remaining_partitions=[
            remaining(topic_name=topic.name, partition_index=index)
            for topic, index, partition in places(image, lambda each: each.leader == broker)
            if (topic.id, index) not in moved and len(partition.replicas) > 1
        ]
    )


NOT_READ = frozenset(
    {DESCRIBE_ACLS, DESCRIBE_CLIENT_QUOTAS, DESCRIBE_DELEGATION_TOKEN, DESCRIBE_USER_SCRAM_CREDENTIALS}
)
"""Kafka keeps these in znodes that are not read here, so a response would wrongly have none."""

DECIDED: dict[int, Decide] = {
    **{
        key: DECIDED_HANDLERS[key]
        for key in (
            CREATE_TOPICS, DELETE_TOPICS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS, CREATE_PARTITIONS, ELECT_LEADERS,
            LIST_PARTITION_REASSIGNMENTS, ALLOCATE_PRODUCER_IDS,
        )
    },
    CONTROLLED_SHUTDOWN: shut_down_controlled,
    ALTER_PARTITION: lambda controller, version, body, now: controller.alter_partition(version, body, now),
    ALTER_PARTITION_REASSIGNMENTS: lambda controller, version, body, now: controller.alter_partition_reassignments(
        version, body, now
    ),
}  # fmt: skip


def zookeeper_apis(parts: BrokerParts, channel: ZooKeeperChannel, orders: Handler) -> dict[int, Api]:
    """The APIs of the only kind of listener, by key; `orders` handles the controller's requests."""
    found: dict[int, Api] = {}
    handlers: dict[int, Handler | None] = {**broker_handlers(parts)}
    handlers |= dict.fromkeys(DECIDED) | dict.fromkeys(ORDERS, orders)
    handlers |= dict.fromkeys(FOR_THE_CONTROLLER, channel.decide_or_refuse)
    handlers[API_VERSIONS] = partial(metadata.api_versions, parts.context, found)
    for key in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
        handlers[key] = lambda request, body, now: illegal_state(request.key)
    for key, handler in sorted(handlers.items()):
        served = APIS[key].releases.get(RELEASE)
        if served is None or LISTENER not in served[3] or key in NOT_READ:
            continue
        lowest, highest = versions_of(key, RELEASE)
        if NEWEST in APIS[key].releases:
            ours = versions_of(key)
            lowest, highest = max(lowest, ours[0]), min(highest, ours[1])
        lowest = LOWEST_BETWEEN_BROKERS.get(key, lowest)
        found[key] = Api(handler, lowest, highest, ADVERTISED_BELOW_SERVED.get(key, lowest), key in QUIET)
    return found
