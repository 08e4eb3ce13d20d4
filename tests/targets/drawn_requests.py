"""The same drawn requests to Apache Kafka and to the reference, in every API and version that both serve to clients.

Each field is drawn by its name: from names of a few topics, groups and transactional ids, from small numbers, and from wrong
values. So most requests are about something that exists, and many are refused. What a broker names for itself (topic ids,
producer ids, member ids, sessions) is drawn and compared by its place among those that it has given.

    python -m tests.targets.drawn_requests 0 20 --requests 700          # seeds 0 to 19
    python -m tests.targets.drawn_requests 7 8 --show                    # one, with each request and Kafka's answer
    python -m tests.targets.drawn_requests 0 5 --nodes 3                 # each request to one of three brokers
    python -m tests.targets.drawn_requests 0 5 --tokens                  # delegation tokens, by clients that authenticate
    python -m tests.targets.drawn_requests 0 5 --settings                # brokers whose settings are drawn, too
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple

from conformance.batches import RECENT_MS, batches
from linearizability.client.requests import GROUP, TRANSACTION, new_topic
from linearizability.targets import open_target
from linearizability.targets.wire import WireClosed, WireError
from reference.controller.configs import DYNAMIC_BROKER_LOGGER
from reference.node.release import versions_of
from reference.protocol.apis import APIS
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.find_coordinator import FindCoordinatorRequest
from reference.protocol.messages.init_producer_id import InitProducerIdRequest
from reference.protocol.messages.metadata import MetadataRequest
from reference.protocol.messages.offset_commit import OffsetCommitRequest
from reference.protocol.primitives import NO_UUID
from reference.protocol.schema import Message
from tests.targets.drawn_broker_settings import drawn_settings
from tests.targets.drawn_fields import NO_ONES_PRODUCER, Side, drawn
from tests.targets.drawn_placement import INTERNAL_TOPICS, OWN_OF_SEVERAL, PLACED_BY_CHANCE, place
from tests.targets.secured_kafka import PASSWORD, USER, SecuredKafka, SecuredReference

KAFKA, REFERENCE = "kafka:4.3.1", "reference"
CONFIG = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "background.threads": "10",
    "num.io.threads": "8",
    "auto.create.topics.enable": "false",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
}
NOT_DRAWN = {
    "ApiVersions",
    "SaslHandshake",
    "SaslAuthenticate",
}
SETTLES_IN_S = 0.2
"""After a request that changes metadata."""
CHANGES = {
    "CreateTopics", "DeleteTopics", "CreatePartitions", "AlterConfigs", "IncrementalAlterConfigs", "AlterClientQuotas",
    "AlterUserScramCredentials", "CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken", "CreateAcls",
    "DeleteAcls", "AlterPartitionReassignments", "ElectLeaders", "UpdateFeatures",
    "DeleteRecords", "EndTxn", "InitProducerId", "DeleteGroups", "AlterReplicaLogDirs", "Metadata",
}  # fmt: skip
TOKENS = {"CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken"}
SELDOM = {"DeleteTopics", "DeleteGroups"}
OFTEN = {
    "Produce": 8,
    "CreateTopics": 4,
    "Fetch": 3,
    "InitProducerId": 3,
    "OffsetCommit": 2,
    "JoinGroup": 2,
    "EndTxn": 2,
}


OWN = {
    "throttle_time_ms", "error_message", "batch_index_error_message", "port", "host", "cluster_id", "documentation",
    "log_append_time_ms", "rack", "last_timestamp", "total_bytes", "usable_bytes", "last_caught_up_timestamp", "last_fetch_timestamp",
    "transaction_start_time_ms", "client_host", "subscription_id", "partition_size", "incarnation_id",
}  # fmt: skip
"""Fields whose values differ between any two brokers."""
PLACED = {
    "topic_id": "topic", "producer_id": "producer", "member_id": "member", "session_id": "session", "leader": "member",
    "client_instance_id": "instance", "replica_directory_id": "directory", "log_dir": "folder",
    "hmac": "hmac", "token_id": "token",
}  # fmt: skip
TIMES = {
    "issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms", "issue_timestamp", "expiry_timestamp", "max_timestamp",
}  # fmt: skip
"""Of delegation tokens: compared by how many times ten minutes they are from now."""
IDENTIFYING = {
    "name", "topic", "topic_name", "topic_id", "resource_type", "resource_name", "partition_index", "partition", "index",
    "group_id", "transactional_id", "producer_id", "user", "key", "path", "entity", "mechanism", "token_id", "principal",
    "host", "operation", "permission_type",
}  # fmt: skip
ERRORS = {each.name for each in ErrorCode} - {"NONE"}
NOTHING = (None, "", b"", -1, NO_UUID, NO_ONES_PRODUCER)


class Clusters(NamedTuple):
    """What is compared with Kafka, how many nodes both have, and settings that they do not have otherwise."""

    other: str = REFERENCE
    nodes: int = 1
    settings: Mapping[str, str] = MappingProxyType({})


ONE_NODE = Clusters()


def plain(value: Any, side: Side, name: str = "") -> Any:
    """An answer as it is compared."""
    if isinstance(value, Message):
        found = {
            each.name: plain(getattr(value, each.name), side, each.name)
            for each in value.FIELDS
            if each.name not in OWN and not (len(side.addresses) > 1 and each.name in OWN_OF_SEVERAL)
        }
        if getattr(value, "topic_id", None) in side.internal_ids or getattr(value, "topic", None) in INTERNAL_TOPICS:
            for partition in found.get(
                "partitions", ()
            ):  # of a Fetch: how coordinators batch their records is their own
                if isinstance(partition, dict):
                    partition.pop("records", None)
        return found
    if isinstance(value, list):
        served = sorted((each for each in value if not _is_not_served(each)), key=_order_of_placing)
        listed = (plain(each, side, name) for each in served)
        return sorted(_joined(listed), key=_identity)
    if name == "records":
        return _read(value)
    if isinstance(value, memoryview | bytearray):
        value = bytes(value)
    if name in TIMES and value > 0:
        return round((value - time.time() * 1000) / 600_000)
    if name in PLACED and value not in NOTHING and not isinstance(value, list):
        return side.place(PLACED[name], value)
    if name == "timestamp" and isinstance(value, int) and value > RECENT_MS + 100_000:
        return "now"
    if name.endswith("error_code"):
        return ErrorCode(value).name if value in set(ErrorCode) else value
    return value


def _joined(listed: Iterable[Any]) -> list[Any]:
    """A topic's partitions in one entry: Kafka answers those that it refuses apart."""
    found: dict[str, Any] = {}
    for each in listed:
        partitions = each.get("partitions") if isinstance(each, dict) else None
        known = found.setdefault(repr(each) if partitions is None else _identity(each), each)
        if known is not each and partitions is not None:
            known["partitions"] = sorted([*known["partitions"], *partitions], key=_identity)
    return list(found.values())


def _is_not_served(setting: Any) -> bool:
    """Whether it is a setting of a group of a kind that the reference does not serve, or one of Kafka's loggers: its classes."""
    if not isinstance(setting, Message):
        return False
    is_logger = getattr(setting, "config_source", None) == DYNAMIC_BROKER_LOGGER
    return is_logger or str(getattr(setting, "name", "")).startswith(("share.", "streams."))


def _order_of_placing(value: Any) -> tuple[int, str]:
    """Producer ids grow in the order in which they were given, so that each side places the same ones alike; topics have names."""
    return getattr(value, "producer_id", -1), str(getattr(value, "name", ""))


def _identity(value: Any) -> str:
    """What lists are sorted by: brokers list what was asked in an order of their own."""
    return repr([value[name] for name in value if name in IDENTIFYING] if isinstance(value, dict) else value)


def _read(data: Any) -> Any:
    if not data:
        return []
    return [
        (
            each.base_offset,
            each.partition_leader_epoch,
            each.attributes,
            each.last_offset_delta,
            each.producer_id,
            each.producer_epoch,
            each.base_sequence if each.producer_id >= 0 else -1,
            each.count,
        )
        for each in batches(bytes(data))
    ]


def is_alike(name: str, kafka: Any, ours: Any) -> bool:
    """Whether two values that differ are alike to every client."""
    if not isinstance(kafka, str) or not isinstance(ours, str):
        return False
    if kafka == "UNKNOWN_SERVER_ERROR":  # an exception that Kafka did not expect: any error will do
        return ours != "NONE"
    return name == "Produce" and kafka in ERRORS and ours in ERRORS  # which of two errors is found first


def differences(api: str, kafka: Any, ours: Any, path: str = "") -> Iterator[str]:
    if isinstance(kafka, dict) and isinstance(ours, dict):
        is_same_error = kafka.get("error_code") == ours.get("error_code")
        for name in kafka:
            if name == "log_start_offset" and not is_same_error:
                continue  # by which error it is
            yield from differences(api, kafka[name], ours.get(name), f"{path}.{name}")
    elif isinstance(kafka, list) and isinstance(ours, list) and len(kafka) == len(ours):
        for number, (left, right) in enumerate(zip(kafka, ours, strict=True)):
            yield from differences(api, left, right, f"{path}[{number}]")
    elif kafka != ours and not is_alike(api, kafka, ours):
        yield f"{path}: Kafka {kafka!r}, ours {ours!r}"


def asked(side: Side, request: Message, version: int) -> Any:
    try:
        return plain(side.wire.call(request, version), side)
    except WireError as error:
        side.ask_again()
        return "closed" if isinstance(error, WireClosed) else str(error)


def prepare(side: Side) -> None:
    """Two topics, and coordinators that answer."""
    topics, nodes = [new_topic("t0"), new_topic("t1", 2)], range(len(side.addresses))
    if len(nodes) > 1:
        topics += [new_topic(name, len(nodes)) for name in INTERNAL_TOPICS]
    made = CreateTopicsRequest(topics=topics, timeout_ms=20_000)
    if len(nodes) > 1:
        place(made, side)
    answered = side.wire.call(made).topics
    for name in ("t0", "t1"):
        side.place("topic", next(topic.topic_id for topic in answered if topic.name == name))
    for node in nodes:
        for kind in (GROUP, TRANSACTION):
            _await_answer(side, [node], FindCoordinatorRequest(coordinator_keys=["any"], key_type=kind))
        _await_answer(side, [node], InitProducerIdRequest(transactional_id=None))
    _await_answer(side, nodes, InitProducerIdRequest(transactional_id="first", transaction_timeout_ms=60_000))
    _await_answer(side, nodes, OffsetCommitRequest(group_id="first", generation_id_or_member_epoch=-1), 9)
    for name in INTERNAL_TOPICS:
        named = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)])
        found = side.wire.call(named).topics[0].topic_id
        side.place("topic", found)
        side.internal_ids.add(found)


def _await_answer(side: Side, nodes: Sequence[int], request: Message, version: int | None = None) -> None:
    """Until one of the nodes, of which one may be the coordinator, does not refuse the request."""
    for _ in range(200):
        for side.node in nodes:
            if not _refused(side.wire.call(request, version)):
                return
        time.sleep(0.3)
    raise WireError(f"not ready: {brief(request)}")


def _refused(answer: Any) -> bool:
    listed = getattr(answer, "coordinators", [answer])
    return any(getattr(each, "error_code", 0) for each in listed)


def compare(
    sides: Sequence[Side],
    seed: int,
    requests: int,
    settles_in_s: float,
    show: bool = False,
    apis: Collection[str] | None = None,
) -> list[str]:
    """The differences of the answers. If `apis` are named, only these are drawn."""
    both, nodes = set.intersection(*(set(side.wire.versions()) for side in sides)), len(sides[0].addresses)
    left_out = NOT_DRAWN if nodes == 1 else NOT_DRAWN | PLACED_BY_CHANCE
    names = [
        key for key in APIS if key in both and APIS[key].name not in left_out and (not apis or APIS[key].name in apis)
    ]
    often = [key for key in names for _ in range(OFTEN.get(APIS[key].name, 1))]
    rng, found = Random(seed), list[str]()
    for side in sides:
        prepare(side)
    for number in range(requests):
        key, name = (chosen := rng.choice(often)), APIS[chosen].name
        if name in SELDOM and rng.random() < 0.7:
            continue
        lowest, highest = versions_of(key)
        version = rng.choice([highest, rng.randint(lowest, highest)])
        state = rng.randrange(1 << 30)
        for side in sides:
            side.node = number % nodes
        made = [drawn(APIS[key].request, version, side, Random(state), name) for side in sides]
        if nodes > 1 and not min([place(request, side) for request, side in zip(made, sides, strict=True)]):
            continue
        answers = [asked(side, request, version) for side, request in zip(sides, made, strict=True)]
        if name in CHANGES or nodes > 1:
            time.sleep(settles_in_s)
        differ = list(differences(name, *answers))
        if differ:
            found.append(f"seed {seed}, request {number}: {name} v{version}{''.join(sorted(differ))}"[:1000])
        if show or differ:
            print(f"seed {seed}, {number}: {name} v{version}", *map(brief, made), *differ[:4], sep="\n    ", flush=True)
        if show:
            print(f"    {answers[0]}")
    return found


def compared(
    folder: Path,
    seed: int,
    requests: int,
    settles_in_s: float = SETTLES_IN_S,
    show: bool = False,
    clusters: Clusters = ONE_NODE,
) -> list[str]:
    """As `compare`, on two clusters that are started for it."""
    counts = ("offsets.topic.num.partitions", "transaction.state.log.num.partitions")
    other, nodes, settings = clusters
    config = CONFIG | dict.fromkeys(counts, str(nodes)) | dict(settings)
    with (
        open_target(KAFKA, folder=folder / "kafka", config=config, nodes=nodes) as kafka,
        open_target(other, folder=folder / "other", config=config, nodes=nodes) as reference,
    ):
        sides = [Side([(node.host, node.port) for node in target.nodes]) for target in (kafka, reference)]
        return compare(sides, seed, requests, settles_in_s, show)


def compared_tokens(folder: Path, seed: int, requests: int, settles_in_s: float = SETTLES_IN_S) -> list[str]:
    """As `compared`, for the APIs of delegation tokens, with brokers whose clients authenticate."""
    secured = SecuredKafka, SecuredReference
    with ExitStack() as opened:
        sides: list[Side] = []
        for kind in secured:
            own = folder / kind.__name__
            (own / "secrets").mkdir(parents=True)
            target = kind(own / "target", own / "secrets")
            target.given |= CONFIG
            opened.enter_context(target)
            address = "127.0.0.1", target.ports["SASL_PLAINTEXT"]
            sides.append(Side([address], login=b"\0".join([b"", USER.encode(), PASSWORD.encode()])))
        return compare(sides, seed, requests, settles_in_s, apis=TOKENS)


def brief(request: Any) -> str:
    """A request without its defaults; of batches their headers."""

    def shown(value: Any) -> str:
        if isinstance(value, Message):
            inner = (
                f"{each.name}={shown(getattr(value, each.name))}"
                for each in value.FIELDS
                if getattr(value, each.name) != each.default
            )
            return "(" + " ".join(inner) + ")"
        if isinstance(value, list):
            return "[" + ", ".join(map(shown, value)) + "]"
        if isinstance(value, bytes) and len(value) > 60:
            return str(_read(value)) if value[16] == 2 else f"magic {value[16]}"
        return repr(value)[:120]

    return shown(request)[:900]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=int, help="the first seed")
    parser.add_argument("end", type=int, help="the seed after the last")
    parser.add_argument("--requests", type=int, default=300, help="of each seed")
    parser.add_argument("--nodes", type=int, default=1, help="of each cluster")
    parser.add_argument(
        "--beside", default=REFERENCE, help="what is compared; kafka:4.3.1 shows what differs by chance"
    )
    parser.add_argument("--tokens", action="store_true", help="draw requests for delegation tokens alone")
    parser.add_argument("--settings", action="store_true", help="draw settings of the brokers")
    parser.add_argument("--show", action="store_true", help="each request and Kafka's answer")
    options = parser.parse_args()
    found: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.first, options.end):
            if options.tokens:
                found += compared_tokens(Path(folder) / str(seed), seed, options.requests)
                continue
            settings = drawn_settings(seed) if options.settings else {}
            if settings:
                print(f"seed {seed}: {settings}", flush=True)
            found += compared(
                Path(folder) / str(seed),
                seed,
                options.requests,
                show=options.show,
                clusters=Clusters(options.beside, options.nodes, settings),
            )
    print(f"{len(found)} answers differ")


if __name__ == "__main__":
    main()
