"""Lies about frames, versions, Metadata, DescribeCluster and FindCoordinator."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any
from uuid import UUID

from linearizability.mutants.wire.proxy import Answer, Exchange, ProxiedConnection
from linearizability.mutants.wire.rewriting import (
    Lie,
    asks,
    both,
    closed,
    cut,
    doubled,
    errors,
    extended,
    first_missing,
    held_back,
    last_missing,
    lists,
    put,
    replied,
    shared,
    silent,
    structures,
    turned,
    twice,
    when,
)
from reference.protocol.errors import ErrorCode as E
from reference.protocol.messages.metadata import MetadataResponse
from reference.protocol.primitives import NO_UUID

METADATA, CLUSTER, PAGES, COORDINATOR, VERSIONS = (
    "Metadata", "DescribeCluster", "DescribeTopicPartitions", "FindCoordinator", "ApiVersions",
)  # fmt: skip


def stays_open(
    holds: Callable[[ProxiedConnection], bool], said: bytes = b""
) -> Callable[[ProxiedConnection], bytes | None]:
    """Keep the connection open, and send `said`, if `holds` for a connection that the broker closed."""
    return lambda connection: said if holds(connection) else None


def correlation(change: Callable[[int], int]) -> Callable[[Exchange, bytes], bytes]:
    """Change the correlation id of the response."""
    return lambda exchange, frame: struct.pack(">I", change(exchange.correlation_id) & 0xFFFFFFFF) + frame[4:]


def other_header(exchange: Exchange, frame: bytes) -> bytes:
    """Remove the tagged fields from the header of a flexible response."""
    return frame[:4] + frame[5:]


def tagged_header(exchange: Exchange, frame: bytes) -> bytes:
    """Add tagged fields to a header that has none."""
    return frame[:4] + b"\x00" + frame[4:]


def has_unknown_tags(exchange: Exchange, message: Any) -> bool:
    """Whether the request has tagged fields that the schemas do not define."""
    return any(each.unknown_tagged_fields for each in structures(message))


def without_client_id(exchange: Exchange, message: Any) -> bool:
    """Whether the request's header has no client id."""
    return exchange.frame[8:10] == b"\xff\xff"


def second_time(exchange: Exchange, message: Any) -> bool:
    """Whether the connection has sent a request of this API before; notes it."""
    seen = exchange.connection.memory.setdefault("asked", set[str]())
    again = exchange.api in seen
    seen.add(exchange.api)
    return again


def for_api(key: int, name: str, change: Any) -> Any:
    """Change the advertised range of one API."""
    return put(f"api_keys.{name}", change, where=lambda each: each.api_key == key)


def unknown_api(connection: ProxiedConnection) -> bool:
    """Whether the last request's API key is unknown."""
    return connection.last is not None and not connection.last.api


def known_api(connection: ProxiedConnection) -> bool:
    """Whether the last request was of a known API, and no frame had an impossible size."""
    return connection.last is not None and bool(connection.last.api) and not connection.malformed


def out_of_range(connection: ProxiedConnection) -> bool:
    """Whether the last request was of a known API in an unknown version."""
    from reference.protocol.apis import APIS

    return known_api(connection) and connection.last.version not in APIS[connection.last.key].request.VERSIONS  # type: ignore[union-attr]


def all_found(exchange: Exchange, request: Any) -> MetadataResponse:
    """A response with the requested topics, without errors and without partitions."""
    entry = MetadataResponse.MetadataResponseTopic
    return MetadataResponse(topics=[entry(name=each.name or "", topic_id=each.topic_id) for each in request.topics])


# fmt: off
LIES = [
    Lie("correlation-id-unsigned", "", "negative correlation ids lose their sign", "FRM-01", raw=correlation(lambda id: id & 0x7FFFFFFF)),
    Lie("correlation-id-of-another-request", "ListGroups", "the correlation id is one too high", "FRM GAD API", raw=correlation(lambda id: id + 1)),
    Lie("answers-swapped", "Metadata", "of two pipelined answers the second comes first", "FRM-02 FRM-01", answer=held_back),
    Lie("answer-doubled", "DescribeCluster", "the answer comes twice", "MET-14 FRM API", answer=twice),
    Lie("answer-missing", "DescribeCluster", "no answer comes", "MET-14 MET-02 API-05", answer=silent),
    Lie("answer-closed", "DescribeCluster", "the connection is closed instead of an answer", "MET-14 API-05", answer=closed),
    Lie("answer-cut", "DescribeTopicPartitions", "the answer is a byte too short", "MET-15 API-05", answer=cut(1)),
    Lie("answer-too-long", "DescribeTopicPartitions", "the answer goes on for a byte", "MET-15 API-05", answer=extended()),
    Lie("negative-size-tolerated", "", "after a negative size the connection stays open", "FRM-04 FRM-05 FRM-14", end=stays_open(lambda c: c.malformed[:1] >= b"\x80")),
    Lie("oversize-tolerated", "", "after an announced 2 GB the connection stays open", "FRM-05 FRM-04 FRM-14", end=stays_open(lambda c: b"" < c.malformed[:1] < b"\x80")),
    Lie("unknown-api-tolerated", "", "after an unknown API key the connection stays open", "FRM-06", end=stays_open(unknown_api)),
    Lie("unknown-api-answered", "", "an unknown API key is answered with six bytes", "FRM-06", end=stays_open(unknown_api, b"\x00\x00\x00\x06" + bytes(6))),
    Lie("unserved-version-tolerated", "", "after a version that is not served the connection stays open", "FRM-07 API-06", end=stays_open(out_of_range)),
    Lie("malformed-body-tolerated", "", "after a body that cannot be parsed the connection stays open", "FRM-08 FRM-09 FRM-07 API-06", end=stays_open(known_api)),
    Lie("nothing-closes", "", "the broker never closes a connection", "FRM ACK-03 API-06", end=stays_open(lambda c: True)),
    Lie("header-without-tags", "Metadata", "flexible answers have no tagged fields in the header", "FRM-12 API-05", raw=other_header, versions="9+"),
    Lie("header-with-tags", "Metadata", "inflexible answers have tagged fields in the header", "FRM-12 API-05", raw=tagged_header, versions="0-8"),
    Lie("api-versions-with-tags", "ApiVersions", "ApiVersions v3 has tagged fields in the header", "FRM-12 API-05", raw=tagged_header, versions="3+"),
    Lie("unknown-tags-refused", "", "a request with unknown tagged fields closes the connection", "FRM-10", ask=when(has_unknown_tags, put("unknown_tagged_fields", ())), answer=when(lambda x, m: bool(x.frame) and has_unknown_tags(x, x.request), closed)),
    Lie("null-client-id-refused", "", "a request without a client id is not answered", "FRM-11", answer=when(without_client_id, closed)),
    Lie("versions-without-itself", VERSIONS, "ApiVersions is not in its list", "API-01", answer=lists("api_keys", lambda keys: [k for k in keys if k.api_key != 18]), versions="0"),
    Lie("versions-v0-error", VERSIONS, "ApiVersions v0 bears an error", "API-01", answer=both(put("error_code", E.UNSUPPORTED_VERSION)), versions="0"),
    Lie("versions-too-new-closed", VERSIONS, "a version above the broker's closes the connection", "API-02", raw=lambda x, frame: Answer([], close=True) if x.version > 4 else None, versions="5+"),
    Lie("versions-too-new-without-range", VERSIONS, "the refusal of a version has no range", "API-02", raw=lambda x, frame: frame[:6] + bytes(4), versions="6+"),
    Lie("versions-too-new-without-error", VERSIONS, "the refusal of a version bears no error", "API-02", raw=lambda x, frame: frame[:4] + bytes(2) + frame[6:], versions="6+"),
    Lie("versions-upside-down", VERSIONS, "a range has its lowest version above its highest", "API-04", answer=for_api(16, "min_version", 9)),
    Lie("versions-twice", VERSIONS, "an API is listed twice", "API-04", answer=doubled("api_keys")),
    Lie("versions-above-served", VERSIONS, "DeleteGroups is advertised one version too high", "API-05", answer=for_api(42, "max_version", lambda version: version + 1)),
    Lie("versions-below-served", VERSIONS, "Fetch is advertised one version too low", "API-05 API-06", answer=for_api(1, "min_version", lambda version: version - 1)),
    Lie("versions-hidden-high", VERSIONS, "the highest version of DescribeGroups is not advertised", "", answer=for_api(15, "max_version", lambda version: version - 1), unseen="a broker that only resembles a release may serve a part of its versions: API-11 tolerates that"),
    Lie("versions-hidden-low", VERSIONS, "the lowest version of Heartbeat is not advertised", "API-06 API-11", answer=for_api(12, "min_version", 1)),
    Lie("versions-hidden-api", VERSIONS, "OffsetDelete is not advertised", "", answer=lists("api_keys", lambda keys: [k for k in keys if k.api_key != 47]), unseen="what is not advertised is not served: the profile lists it as lacking, and its requirements are not judged"),
    Lie("software-name-unchecked", VERSIONS, "any client software name is taken", "API-03", ask=both(put("client_software_name", "x"), put("client_software_version", "1")), versions="3+"),
    Lie("versions-change", VERSIONS, "asked again, the list is another one", "API-07", answer=when(second_time, first_missing("api_keys"))),
    Lie("features-not-reported", VERSIONS, "no finalized features are reported", "API-08", answer=put("finalized_features", []), versions="3+"),
    Lie("feature-above-supported", VERSIONS, "a finalized level is above the supported ones", "API-08", answer=put("finalized_features.max_version_level", 99), versions="3+"),
    Lie("features-epoch-unknown", VERSIONS, "the epoch of the finalized features is -1", "API-08", answer=put("finalized_features_epoch", -1), versions="3+"),
    Lie("features-from-zero-below-v4", VERSIONS, "ApiVersions v3 reports features from level 0 on", "API-10", answer=put("supported_features.min_version", 0), versions="3"),
    Lie("old-layout", "ListGroups", "ListGroups v0 has a byte too many", "API-05", answer=extended(), versions="0"),
    Lie("old-version-fails", "DescribeConfigs", "DescribeConfigs v1 answers with an error", "API-05 CFG-01", answer=put("results.error_code", E.UNKNOWN_SERVER_ERROR), versions="1"),

    Lie("no-topics-means-none", METADATA, "a null topic array asks for none", "MET-01", answer=asks(lambda r: r.topics is None, put("topics", []))),
    Lie("empty-topics-mean-all", METADATA, "an empty topic array asks for all", "", ask=when(lambda x, m: m.topics == [], put("topics", None)), versions="1+", unseen="clients leave aside topics that they did not ask for (ProducerMetadata.retainTopic); MET-01 tolerates it"),
    Lie("brokers-not-reported", METADATA, "no brokers are reported with topics", "MET-01 MET-07 MET-02", answer=when(lambda x, m: bool(m.topics), put("brokers", []))),
    Lie("wrong-port", METADATA, "the broker's port is one too high", "MET-02", answer=put("brokers.port", lambda port: port + 1)),
    Lie("wrong-host", METADATA, "the broker's host is another", "MET-02", answer=put("brokers.host", "192.0.2.1")),
    Lie("wrong-node-id", METADATA, "the broker has another id than its partitions' leader", "MET-02 MET-07 MET-14 COO-01", answer=put("brokers.node_id", lambda id: id + 1)),
    Lie("no-cluster-id", METADATA, "there is no cluster id", "MET-02 MET-14", answer=put("cluster_id", None), versions="2+"),
    Lie("controller-unknown", METADATA, "no controller is reported", "MET-19", answer=put("controller_id", -1), versions="1+"),
    Lie("unknown-topic-without-error", METADATA, "an unknown topic bears no error", "MET-03 TOP-16", answer=errors(E.UNKNOWN_TOPIC_OR_PARTITION, E.NONE)),
    Lie("unknown-topic-is-leaderless", METADATA, "an unknown topic is LEADER_NOT_AVAILABLE", "MET-03 MET-05 TOP-16", answer=errors(E.UNKNOWN_TOPIC_OR_PARTITION, E.LEADER_NOT_AVAILABLE)),
    Lie("always-created", METADATA, "topics are created although the request forbids it", "MET-03", ask=put("allow_auto_topic_creation", True), versions="4+"),
    Lie("never-created", METADATA, "topics are not created although the request allows it", "MET-05", ask=put("allow_auto_topic_creation", False), versions="4+"),
    Lie("illegal-name-unknown", METADATA, "an illegal name is an unknown topic", "MET-04", answer=errors(E.INVALID_TOPIC_EXCEPTION, E.UNKNOWN_TOPIC_OR_PARTITION)),
    Lie("isr-empty", METADATA, "no replica is in sync", "MET-07", answer=put("topics.partitions.isr_nodes", [])),
    Lie("isr-with-strangers", METADATA, "a broker is in sync that is no replica", "MET-07", answer=put("topics.partitions.isr_nodes", lambda ids: [*ids, 99])),
    Lie("replicas-empty", METADATA, "a partition has no replicas", "MET-07", answer=put("topics.partitions.replica_nodes", [])),
    Lie("replica-twice", METADATA, "a partition's first replica is reported twice", "MET-07", answer=put("topics.partitions.replica_nodes", lambda ids: [*ids[:1], *ids])),
    Lie("leader-epoch-unknown", METADATA, "the leader epoch is -1", "", answer=put("topics.partitions.leader_epoch", -1), versions="7+", unseen="clients take -1 for no epoch (RequestUtils.getLeaderEpoch); MET-07 tolerates it"),
    Lie("partitions-from-one", METADATA, "partitions are numbered from 1 on", "MET-07", answer=put("topics.partitions.partition_index", lambda index: index + 1)),
    Lie("partition-missing", METADATA, "the last of several partitions is not reported", "MET-07 MET-15 TOP-13 TOP-18", answer=last_missing("topics.partitions")),
    Lie("partition-twice", METADATA, "the first partition is reported twice", "MET-07 MET-15", answer=doubled("topics.partitions")),
    Lie("topic-id-zero", METADATA, "the topic id is zero", "MET-09 TOP-11", answer=put("topics.topic_id", NO_UUID), versions="10+"),
    Lie("topic-id-of-name", METADATA, "a topic that is made again has the same id", "MET-09 TOP-16 TOP-11", answer=put("topics.topic_id", lambda id: UUID(int=7) if id.int else id), versions="10+"),
    Lie("unknown-id-is-unknown-name", METADATA, "an unknown topic id is UNKNOWN_TOPIC_OR_PARTITION", "MET-10 TOP-16", answer=errors(E.UNKNOWN_TOPIC_ID, E.UNKNOWN_TOPIC_OR_PARTITION)),
    Lie("asked-by-id-without-name", METADATA, "asked for by id, a topic has no name", "MET-10", answer=asks(lambda r: any(t.topic_id.int for t in r.topics or ()), put("topics.name", None)), versions="12+"),
    Lie("id-too-early-answered", METADATA, "a topic id in v10 and v11 bears no error", "MET-11", ask=when(lambda x, m: any(t.topic_id.int or t.name is None for t in m.topics or ()), replied(all_found)), versions="10-11"),
    Lie("nothing-is-internal", METADATA, "no topic is internal", "MET-12", answer=put("topics.is_internal", False)),
    Lie("all-is-internal", METADATA, "every topic is internal", "MET-12", answer=put("topics.is_internal", True)),
    Lie("operations-always-reported", METADATA, "the authorized operations are reported without being asked for", "MET-13", answer=put("topics.topic_authorized_operations", 3576), versions="8+"),
    Lie("operations-never-reported", METADATA, "the authorized operations are never reported", "MET-13", answer=put("topics.topic_authorized_operations", -2147483648), versions="8+"),
    Lie("bad-topic-spoils-all", METADATA, "the first topic's error is given for all", "MET-18", answer=shared("topics")),
    Lie("topic-missing", METADATA, "the last of several topics is not reported", "MET-18 MET-01", answer=last_missing("topics")),
    Lie("topic-twice", METADATA, "a topic is reported twice", "MET-18 MET-01", answer=doubled("topics")),
    Lie("throttled", METADATA, "every answer asks the client to wait for ten minutes", "API-12", answer=put("throttle_time_ms", 600_000)),

    Lie("cluster-of-another-id", CLUSTER, "DescribeCluster has another cluster id", "MET-14", answer=put("cluster_id", "another")),
    Lie("cluster-without-brokers", CLUSTER, "DescribeCluster has no brokers", "MET-14", answer=put("brokers", [])),
    Lie("cluster-with-other-port", CLUSTER, "DescribeCluster has another port", "MET-14", answer=put("brokers.port", 1)),
    Lie("cluster-with-error", CLUSTER, "DescribeCluster bears an error", "MET-14 API-05", answer=put("error_code", E.UNKNOWN_SERVER_ERROR)),
    Lie("page-without-cursor", PAGES, "a page has no cursor to the next", "MET-15", answer=put("next_cursor", None)),
    Lie("page-without-partition", PAGES, "a page lacks its last partition", "MET-15", answer=last_missing("topics.partitions")),
    Lie("page-from-the-start", PAGES, "the cursor is not looked at", "MET-15", ask=put("cursor", None)),
    Lie("page-unlimited", PAGES, "the limit of a page is not looked at", "MET-15", ask=put("response_partition_limit", 2000)),

    Lie("coordinator-is-unknown", COORDINATOR, "the coordinator is a broker that Metadata does not list", "COO-01 COO-08 COO-09", answer=both(put("node_id", {1: 99}), put("coordinators.node_id", {1: 99}))),
    Lie("coordinator-at-another-port", COORDINATOR, "the coordinator's port is another", "COO-01", answer=both(put("port", lambda port: port + 1 if port > 0 else port), put("coordinators.port", lambda port: port + 1 if port > 0 else port))),
    Lie("coordinator-v0-fails", COORDINATOR, "v0 finds no coordinator", "COO-07", answer=put("error_code", E.COORDINATOR_NOT_AVAILABLE), versions="0"),
    Lie("coordinator-single-key-fails", COORDINATOR, "v3 finds no coordinator", "COO-07", answer=put("error_code", E.COORDINATOR_NOT_AVAILABLE), versions="3"),
    Lie("coordinators-turned", COORDINATOR, "several keys are answered in the reverse order", "COO-10", answer=turned("coordinators"), versions="4+"),
    Lie("coordinator-missing", COORDINATOR, "the last of several keys is not answered", "COO-03", answer=last_missing("coordinators"), versions="4+"),
    Lie("coordinator-key-missing", COORDINATOR, "the answers have no keys", "COO-03", answer=put("coordinators.key", ""), versions="4+"),
    Lie("coordinator-type-unchecked", COORDINATOR, "any type of keys has a coordinator", "COO-06", ask=put("key_type", lambda kind: kind if kind in (0, 1) else 0)),
    Lie("coordinator-type-error", COORDINATOR, "an unknown type of keys is COORDINATOR_NOT_AVAILABLE", "COO-06 COO-03", answer=errors(E.INVALID_REQUEST, E.COORDINATOR_NOT_AVAILABLE)),
    Lie("no-transaction-coordinator", COORDINATOR, "transactional ids have no coordinator below v4", "COO-09", answer=asks(lambda r: r.key_type == 1, put("error_code", E.COORDINATOR_NOT_AVAILABLE)), versions="1-3"),
]
# fmt: on

__all__ = ["LIES"]
