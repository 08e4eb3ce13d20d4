"""Where Kafka keeps what in ZooKeeper, and the JSON in each znode.

Source: kafka.zk.ZkData of Apache Kafka 3.9.2.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

from reference.controller.image import BROKER_RESOURCE, TOPIC_RESOURCE, Endpoint, PartitionImage
from reference.protocol.primitives import NO_UUID, LeaderEpoch, NodeId, ProducerId, TimestampMs, TopicName

CLUSTER_ID = "/cluster/id"
BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE = f"{CONFIG_CHANGES}/config_change_"
ISR_CHANGES = "/isr_change_notification"
PRODUCER_IDS = "/latest_producer_id_block"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGNMENTS = "/admin/reassign_partitions"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
FEATURE = "/feature"
DEFAULT_ENTITY = "<default>"

PERSISTENT = (
    "/consumers", BROKER_IDS, TOPICS, CONFIG_CHANGES, DELETE_TOPICS, "/brokers/seqid", ISR_CHANGES, PRODUCER_IDS,
    "/log_dir_event_notification", "/config/topics", "/config/clients", "/config/users", "/config/brokers", "/config/ips",
)  # fmt: skip
"""The znodes that each broker makes, if they are not there, before it registers."""

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""By number (org.apache.kafka.common.security.auth.SecurityProtocol)."""

FIRST_CONTROLLER_EPOCH = LeaderEpoch(0)
"""Before there was a controller."""

CONFIG_FOLDERS = {TOPIC_RESOURCE: "topics", BROKER_RESOURCE: "brokers"}


class DamagedZnode(ValueError):
    """A znode's data are not what Kafka writes there; the message names the znode."""


def broker_path(broker: NodeId) -> str:
    return f"{BROKER_IDS}/{broker}"


def topic_path(topic: TopicName) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: TopicName) -> str:
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: TopicName, index: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{index}"


def state_path(topic: TopicName, index: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{index}/state"


def config_path(resource_type: int, name: str) -> str:
    return f"/config/{CONFIG_FOLDERS[resource_type]}/{name or DEFAULT_ENTITY}"


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _read(path: str, data: bytes) -> dict[str, Any]:
    """Errors: DamagedZnode."""
    try:
        value = json.loads(data)
    except ValueError as error:
        raise DamagedZnode(f"{path} holds no JSON: {data[:40]!r}") from error
    if not isinstance(value, dict):
        raise DamagedZnode(f"{path} holds no JSON object: {data[:40]!r}")
    return cast(dict[str, Any], value)


# ---- brokers and the controller


@dataclass(frozen=True, slots=True)
class Registration:
    """/brokers/ids/N."""

    endpoints: tuple[Endpoint, ...]
    rack: str | None = None


def encode_registration(registration: Registration, now: TimestampMs) -> bytes:
    """Version 5, with the fields that versions 1 to 4 read."""
    first = registration.endpoints[0]
    plain = next((each for each in registration.endpoints if each.protocol == 0), None)
    value: dict[str, Any] = {
        "features": {},
        "listener_security_protocol_map": {each.listener: PROTOCOLS[each.protocol] for each in registration.endpoints},
        "endpoints": [f"{each.listener}://{each.host}:{each.port}" for each in registration.endpoints],
        "jmx_port": -1,
        "port": plain.port if plain is not None else -1,
        "host": plain.host if plain is not None else None,
        "version": 5,
        "timestamp": str(now),
    }
    if registration.rack is not None:
        value["rack"] = registration.rack
    assert first.host
    return _json(value)


def decode_registration(path: str, data: bytes) -> Registration:
    """Errors: DamagedZnode."""
    value = _read(path, data)
    try:
        protocols = cast(dict[str, str], value.get("listener_security_protocol_map") or {})
        endpoints: list[Endpoint] = []
        for text in value["endpoints"]:
            name, _, address = str(text).partition("://")
            host, _, port = address.rpartition(":")
            protocol = PROTOCOLS.index(protocols.get(name, name))
            endpoints.append(Endpoint(name, host.strip("[]"), int(port), protocol))
        return Registration(tuple(endpoints), value.get("rack"))
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise DamagedZnode(f"{path} is no broker's registration: {error!r}") from error


def encode_controller(broker: NodeId, now: TimestampMs) -> bytes:
    return _json({"version": 2, "brokerid": broker, "timestamp": str(now), "kraftControllerEpoch": -1})


def decode_controller(path: str, data: bytes) -> NodeId:
    """Errors: DamagedZnode."""
    broker = _read(path, data).get("brokerid")
    if not isinstance(broker, int):
        raise DamagedZnode(f"{path} names no broker: {data[:60]!r}")
    return NodeId(broker)


def decode_number(path: str, data: bytes) -> int:
    """Errors: DamagedZnode."""
    try:
        return int(data)
    except ValueError as error:
        raise DamagedZnode(f"{path} holds no number: {data[:40]!r}") from error


# ---- topics


@dataclass(frozen=True, slots=True)
class Assignment:
    """/brokers/topics/T: the replicas of each partition, and of those that are reassigned, which come and go."""

    partitions: Mapping[int, Sequence[NodeId]]
    topic_id: UUID = NO_UUID
    adding: Mapping[int, Sequence[NodeId]] = field(default_factory=dict[int, Sequence[NodeId]])
    removing: Mapping[int, Sequence[NodeId]] = field(default_factory=dict[int, Sequence[NodeId]])


def encode_uuid(value: UUID) -> str:
    """Kafka's `Uuid.toString`."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def decode_uuid(text: str) -> UUID:
    """Errors: ValueError."""
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def encode_assignment(assignment: Assignment) -> bytes:
    def shown(replicas: Mapping[int, Sequence[NodeId]]) -> dict[str, list[int]]:
        return {str(index): [*each] for index, each in replicas.items() if each}

    return _json(
        {
            "removing_replicas": shown(assignment.removing),
            "partitions": shown(assignment.partitions),
            "topic_id": encode_uuid(assignment.topic_id),
            "adding_replicas": shown(assignment.adding),
            "version": 3,
        }
    )


def decode_assignment(path: str, data: bytes) -> Assignment:
    """Versions 1 to 3; the first two name no topic id. Errors: DamagedZnode."""
    value = _read(path, data)
    try:

        def of(name: str) -> dict[int, list[NodeId]]:
            found = cast(dict[str, list[int]], value.get(name) or {})
            return {int(index): [*map(NodeId, each)] for index, each in found.items()}

        topic_id = decode_uuid(value["topic_id"]) if "topic_id" in value else NO_UUID
        if not (partitions := of("partitions")):
            raise ValueError("no partitions")
        return Assignment(partitions, topic_id, of("adding_replicas"), of("removing_replicas"))
    except (ValueError, TypeError, AttributeError) as error:
        raise DamagedZnode(f"{path} is no assignment: {error!r}") from error


@dataclass(frozen=True, slots=True)
class State:
    """/brokers/topics/T/partitions/P/state; its version is the partition epoch."""

    leader: NodeId
    leader_epoch: LeaderEpoch
    isr: tuple[NodeId, ...]
    controller_epoch: LeaderEpoch
    recovery_state: int = 0


def encode_state(partition: PartitionImage, controller_epoch: LeaderEpoch) -> bytes:
    value = {
        "controller_epoch": controller_epoch,
        "leader": partition.leader,
        "version": 1,
        "leader_epoch": partition.leader_epoch,
        "isr": partition.isr,
    }
    if partition.leader_recovery_state:
        value["leader_recovery_state"] = partition.leader_recovery_state
    return _json(value)


def decode_state(path: str, data: bytes) -> State:
    """Errors: DamagedZnode."""
    value = _read(path, data)
    try:
        return State(
            NodeId(int(value["leader"])),
            LeaderEpoch(int(value["leader_epoch"])),
            tuple(NodeId(int(each)) for each in value["isr"]),
            LeaderEpoch(int(value["controller_epoch"])),
            int(value.get("leader_recovery_state", 0)),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise DamagedZnode(f"{path} is no partition's state: {error!r}") from error


# ---- settings and numbers


def encode_config(config: Mapping[str, str]) -> bytes:
    return _json({"version": 1, "config": dict(config)})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """Errors: DamagedZnode."""
    config = _read(path, data).get("config")
    if not isinstance(config, dict):
        raise DamagedZnode(f"{path} holds no settings: {data[:60]!r}")
    return {str(name): str(value) for name, value in cast(dict[str, Any], config).items()}


def encode_config_change(entity: str) -> bytes:
    """`entity` is the path below /config."""
    return _json({"version": 2, "entity_path": entity})


def decode_config_change(path: str, data: bytes) -> str:
    """The changed entity's path below /config, in both versions. Errors: DamagedZnode."""
    value = _read(path, data)
    if "entity_path" in value:
        return str(value["entity_path"])
    if "entity_type" in value and "entity_name" in value:
        return f"{value['entity_type']}/{value['entity_name']}"
    raise DamagedZnode(f"{path} names no changed entity: {data[:60]!r}")


def encode_producer_block(broker: NodeId, start: ProducerId, end: ProducerId) -> bytes:
    """`end` is the block's last id."""
    return _json({"version": 1, "broker": broker, "block_start": str(start), "block_end": str(end)})


def decode_next_producer_id(path: str, data: bytes) -> ProducerId:
    """Errors: DamagedZnode."""
    if not data:
        return ProducerId(0)
    try:
        return ProducerId(int(_read(path, data)["block_end"]) + 1)
    except (KeyError, ValueError) as error:
        raise DamagedZnode(f"{path} is no block of producer ids: {error!r}") from error


def encode_cluster_id(cluster_id: str) -> bytes:
    return _json({"version": "1", "id": cluster_id})


def decode_cluster_id(path: str, data: bytes) -> str:
    """Errors: DamagedZnode."""
    found = _read(path, data).get("id")
    if not isinstance(found, str):
        raise DamagedZnode(f"{path} names no cluster: {data[:60]!r}")
    return found


def encode_partitions(partitions: Sequence[tuple[TopicName, int]]) -> bytes:
    """/admin/preferred_replica_election."""
    return _json({"version": 1, "partitions": [{"topic": topic, "partition": index} for topic, index in partitions]})


def encode_reassignments(partitions: Mapping[tuple[TopicName, int], Sequence[NodeId]]) -> bytes:
    """/admin/reassign_partitions."""
    listed = [
        {"topic": topic, "partition": index, "replicas": [*replicas]} for (topic, index), replicas in partitions.items()
    ]
    return _json({"version": 1, "partitions": listed})


def _broker_id(value: Any) -> NodeId:
    if not 0 <= int(value) < 1 << 31:
        raise ValueError(f"{value} is no broker id")
    return NodeId(int(value))


def decode_partitions(path: str, data: bytes) -> list[tuple[TopicName, int, list[NodeId]]]:
    """/admin/preferred_replica_election; of /admin/reassign_partitions the wanted replicas too. Errors: DamagedZnode."""
    try:
        return [
            (str(each["topic"]), int(each["partition"]), [*map(_broker_id, each.get("replicas", ()))])
            for each in _read(path, data)["partitions"]
        ]
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise DamagedZnode(f"{path} is no list of partitions: {error!r}") from error
