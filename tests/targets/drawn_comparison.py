"""What drawn comparisons of two brokers share: the requests are drawn alike for both, and their answers are compared.

A field that a broker names for itself (topic ids, producer ids, member ids, sessions) is compared by its place among those that
it has given; what differs between any two brokers is left out.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from conformance.batches import RECENT_MS, batches
from linearizability.client.requests import GROUP, TRANSACTION, new_topic
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
from tests.targets.drawn_fields import NO_ONES_PRODUCER, Side, drawn
from tests.targets.drawn_placement import INTERNAL_TOPICS, OWN_OF_SEVERAL, place

KAFKA, REFERENCE = "kafka:4.3.1", "reference"
CONFIG = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "background.threads": "10",
    "broker.session.timeout.ms": "60000",
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
    "error_message", "batch_index_error_message", "port", "host", "cluster_id", "documentation",
    "log_append_time_ms", "rack", "last_timestamp", "total_bytes", "usable_bytes", "last_caught_up_timestamp", "last_fetch_timestamp",
    "transaction_start_time_ms", "client_host", "subscription_id", "partition_size", "incarnation_id",
}  # fmt: skip
"""Fields whose values differ between any two brokers."""
OWN_VALUE = re.compile(r"127\.0\.0\.1:|^/")
"""Settings with such values have addresses or paths of one broker."""
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
THROTTLES_WITHIN_MS = 3_000
"""How much throttle times may differ, besides a tenth."""
ERRORS = {each.name for each in ErrorCode} - {"NONE"}
NOTHING = (None, "", b"", -1, NO_UUID, NO_ONES_PRODUCER)


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
        return sorted(_joined(listed), key=identity)
    if name == "records":
        return _read(value)
    if isinstance(value, memoryview | bytearray):
        value = bytes(value)
    if name in TIMES and value > 0:
        return round((value - time.time() * 1000) / 600_000)
    if name in PLACED and value not in NOTHING and not isinstance(value, list):
        return side.place(PLACED[name], value)
    if name == "value" and isinstance(value, str) and OWN_VALUE.search(value):
        return "own"
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
        known = found.setdefault(repr(each) if partitions is None else identity(each), each)
        if known is not each and partitions is not None:
            known["partitions"] = sorted([*known["partitions"], *partitions], key=identity)
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


def identity(value: Any) -> str:
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


def is_alike(name: str, field: str, kafka: Any, ours: Any) -> bool:
    """Whether two values that differ are alike to every client."""
    if field == "throttle_time_ms":
        return min(kafka, ours) > 0 and abs(kafka - ours) < THROTTLES_WITHIN_MS + max(kafka, ours) / 10
    if not isinstance(kafka, str) or not isinstance(ours, str):
        return False
    if kafka == "UNKNOWN_SERVER_ERROR":  # an exception that Kafka did not expect: any error will do
        return ours != "NONE"
    if name == "CreatePartitions" and ours == "POLICY_VIOLATION":  # of too many partitions, as Kafka 4.4.0
        return kafka != "NONE"
    return name == "Produce" and kafka in ERRORS and ours in ERRORS  # which of two errors is found first


def differences(api: str, kafka: Any, ours: Any, path: str = "") -> Iterator[str]:
    if isinstance(kafka, dict) and isinstance(ours, dict):
        is_same_error = kafka.get("error_code") == ours.get("error_code")
        for name in kafka:
            if name == "log_start_offset" and not is_same_error:
                continue  # by which error it is
            if name == "throttle_time_ms" and "'UNKNOWN_SERVER_ERROR'" in repr(kafka):
                continue  # after an exception that Kafka did not expect it charges nothing
            yield from differences(api, kafka[name], ours.get(name), f"{path}.{name}")
    elif isinstance(kafka, list) and isinstance(ours, list) and len(kafka) == len(ours):
        for number, (left, right) in enumerate(zip(kafka, ours, strict=True)):
            yield from differences(api, left, right, f"{path}[{number}]")
    elif kafka != ours and not is_alike(api, path.rpartition(".")[2], kafka, ours):
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


class Options(NamedTuple):
    """How many requests of a seed, how long metadata takes to settle after a change, and whether each request is shown."""

    requests: int
    settles_in_s: float = SETTLES_IN_S
    show: bool = False


class Drawn(NamedTuple):
    """A request for each side."""

    key: int
    version: int
    made: list[Any]

    @property
    def api(self) -> str:
        return APIS[self.key].name

    def __str__(self) -> str:
        return f"{self.api} v{self.version}"


class Comparison:
    """The requests of one seed, of the APIs that all sides serve but those left out, and what differs."""

    def __init__(
        self,
        sides: Sequence[Side],
        seed: int,
        options: Options,
        left_out: Collection[str] = NOT_DRAWN,
        apis: Mapping[str, int] | None = None,
    ) -> None:
        """`apis`: the only ones that are drawn, with how often each is."""
        self.seed, self.options = seed, options
        self.rng = Random(seed)
        self.found: list[str] = []
        both = set.intersection(*(set(side.wire.versions()) for side in sides))
        often = OFTEN if apis is None else apis
        names = [key for key in APIS if key in both and APIS[key].name not in left_out]
        names = [key for key in names if apis is None or APIS[key].name in apis]
        self._often = [key for key in names for _ in range(often.get(APIS[key].name, 1))]

    def draw(self, sides: Sequence[Side]) -> Drawn | None:
        """The next request; None where a seldom one is left out."""
        name = APIS[key := self.rng.choice(self._often)].name
        if name in SELDOM and self.rng.random() < 0.7:
            return None
        lowest, highest = versions_of(key)
        version, state = self.rng.choice([highest, self.rng.randint(lowest, highest)]), self.rng.randrange(1 << 30)
        return Drawn(key, version, [drawn(APIS[key].request, version, side, Random(state), name) for side in sides])

    def judge(self, place: str, request: Drawn, answers: Sequence[Any], *shown: str, settles: bool = False) -> None:
        """Keep and print what differs. `place` says which request it is, `shown` is printed below it."""
        if settles or request.api in CHANGES:
            time.sleep(self.options.settles_in_s)
        differ = list(differences(request.api, *answers))
        if differ:
            self.found.append(f"seed {self.seed}, {place} {request}{''.join(sorted(differ))}"[:1000])
        if self.options.show or differ:
            lines = [f"seed {self.seed}, {place} {request}", *map(brief, request.made), *shown, *differ[:4]]
            print(*lines, sep="\n    ", flush=True)
        if self.options.show:
            print(f"    {answers[0]}")


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


Compared = Callable[[Path, int, Options], list[str]]
"""Compares brokers that it starts in a folder, by the requests of a seed."""


def lasting(compared: Compared, folder: Path, seed: int, requests: int) -> list[str]:
    """What differs again when both have more time to settle: the rest is a slow machine's."""
    found = compared(folder / "first", seed, Options(requests))
    if found:
        again = compared(folder / "again", seed, Options(requests, settles_in_s=2.0))
        found = [each for each in found if each in again]
    return found


def parser(document: str | None) -> argparse.ArgumentParser:
    """The command line that all comparisons have."""
    made = argparse.ArgumentParser(description=document, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("first", type=int, help="the first seed")
    made.add_argument("end", type=int, help="the seed after the last")
    made.add_argument("--requests", type=int, default=300, help="of each seed")
    made.add_argument("--show", action="store_true", help="each request and Kafka's answer")
    return made


def run(compared: Compared, given: argparse.Namespace) -> None:
    """Compare by each of the seeds, and print how many answers differ."""
    found: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(given.first, given.end):
            try:
                found += compared(Path(folder) / str(seed), seed, Options(given.requests, show=given.show))
            except WireError as error:
                found.append(f"seed {seed}: {error}")
                print(found[-1])
    print(f"{len(found)} answers differ")
