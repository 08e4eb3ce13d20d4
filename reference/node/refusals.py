"""Error responses to a request, as a whole or for some of its items.

A response has its error where its schema has the field: at the top level, or once per item. Results of items repeat only the
items' names, and unknown values have the schema's placeholder.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

from reference.protocol.apis import APIS
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from reference.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from reference.protocol.messages.describe_client_quotas import DescribeClientQuotasResponse
from reference.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from reference.protocol.messages.join_group import JoinGroupResponse
from reference.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from reference.protocol.schema import Message

ALTER_REPLICA_LOG_DIRS, DELETE_TOPICS = 34, 20
FIRST_JOIN_WITHOUT_PROTOCOL = 7
"""The first version of JoinGroup in which the protocol may be null; before, it is empty."""
TWICE = frozenset({43, 45})
"""ElectLeaders and AlterPartitionReassignments have the error at the top level and in each partition."""

ITEMS: dict[int, tuple[str, str]] = {
    0: ("topic_data", "responses"),
    2: ("topics", "topics"),
    8: ("topics", "topics"),
    9: ("topics", "topics"),
    10: ("coordinator_keys", "coordinators"),
    15: ("groups", "groups"),
    19: ("topics", "topics"),
    20: ("topics", "responses"),
    21: ("topics", "topics"),
    23: ("topics", "topics"),
    24: ("v3_and_below_topics", "results_by_topic_v3_and_below"),
    27: ("markers", "markers"),
    28: ("topics", "topics"),
    30: ("creations", "results"),
    31: ("filters", "filter_results"),
    32: ("resources", "results"),
    33: ("resources", "responses"),
    37: ("topics", "results"),
    42: ("groups_names", "results"),
    43: ("topic_partitions", "replica_election_results"),
    44: ("resources", "responses"),
    45: ("topics", "responses"),
    47: ("topics", "topics"),
    49: ("entries", "entries"),
    61: ("topics", "topics"),
    65: ("transactional_ids", "transaction_states"),
    69: ("group_ids", "groups"),
}
"""API key -> the request's list of items, and the response's list of results, one per item."""

NAMES = frozenset({
    "name", "topic", "topic_id", "index", "partition_index", "partition", "partition_id", "group_id", "resource_type",
    "resource_name", "key", "transactional_id", "producer_id", "user", "entity_type", "entity_name",
})  # fmt: skip
"""Fields that name an item."""

NESTED = frozenset(
    {"partitions", "partition_responses", "partition_result", "results_by_partition", "topics", "entity"}
)
NESTED_IN_REQUEST = ("partitions", "partition_data", "partition_indexes", "topics", "entity")

UNKNOWN = {
    "base_offset": -1,
    "committed_offset": -1,
    "expiry_timestamp_ms": -1,
    "low_watermark": -1,
    "node_id": -1,
    "port": -1,
}
"""Fields whose schema default would be a valid value."""
NO_EPOCH = {"producer_epoch": -1}
"""The same of a response as a whole (InitProducerId); a transaction that is not described has epoch 0 in Kafka."""

MESSAGES = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
    ErrorCode.SECURITY_DISABLED: "No Authorizer is configured.",
}
"""Messages of org.apache.kafka.common.protocol.Errors; for other codes the message is null."""


def refusal(key: int, version: int, body: Message, code: ErrorCode) -> Message:
    """The response that refuses a whole request with one error.

    For the APIs in `TWICE` each item has the error too.
    """
    response = APIS[key].response
    at_the_top = {field.name for field in response.FIELDS if version in field.versions}
    if "error_code" not in at_the_top:
        return refused_items(key, body, code)
    refused = refused_items(key, body, code) if key in TWICE else response()
    for name, value in {**UNKNOWN, **NO_EPOCH, "error_code": code, "error_message": MESSAGES.get(code)}.items():
        if name in at_the_top:
            setattr(refused, name, value)
    if (of_one_api := OF_ONE_API.get(key)) is not None:
        of_one_api(refused, body, version)
    return refused


def _name_partitions(
    refused: ListPartitionReassignmentsResponse, body: ListPartitionReassignmentsRequest, version: int
) -> None:
    topic = ListPartitionReassignmentsResponse.OngoingTopicReassignment
    partition = ListPartitionReassignmentsResponse.OngoingPartitionReassignment
    refused.topics = [
        topic(name=each.name, partitions=[partition(partition_index=index) for index in each.partition_indexes])
        for each in body.topics or ()
    ]


def _count_users(
    refused: DescribeUserScramCredentialsResponse, body: DescribeUserScramCredentialsRequest, version: int
) -> None:
    """A result for each user, but not its name."""
    result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
    code, message = refused.error_code, refused.error_message
    refused.results = [result(error_code=code, error_message=message) for _ in body.users or ()]


def _have_no_entries(refused: DescribeClientQuotasResponse, body: Message, version: int) -> None:
    refused.entries = None


def _have_no_protocol(refused: JoinGroupResponse, body: Message, version: int) -> None:
    refused.protocol_name = "" if version < FIRST_JOIN_WITHOUT_PROTOCOL else None


OF_ONE_API: dict[int, Callable[[Any, Any, int], None]] = {
    JoinGroupResponse.KEY: _have_no_protocol,
    ListPartitionReassignmentsRequest.KEY: _name_partitions,
    DescribeClientQuotasResponse.KEY: _have_no_entries,
    DescribeUserScramCredentialsRequest.KEY: _count_users,
}
"""What a response that is refused as a whole has beside its error, as Kafka's getErrorResponse makes it."""


def refused_items(key: int, body: Any, code: ErrorCode) -> Message:
    """The response with the error for every item of the request."""
    response = APIS[key].response()
    renamed: dict[str, str] = {}
    results = "results"
    if isinstance(body, AlterReplicaLogDirsRequest):
        items: Iterable[Any] = [topic for directory in body.dirs for topic in directory.topics]
        renamed = {"topic_name": "name"}
    elif isinstance(body, AlterUserScramCredentialsRequest):
        items = dict.fromkeys(each.name for each in (*body.deletions, *body.upsertions))
    elif key in ITEMS:
        results, items = ITEMS[key][1], items_of(key, body)
    else:
        return response
    table = next(field.element for field in response.FIELDS if field.name == results)
    refused = [_refused(item, table, code, **{to: getattr(item, of) for to, of in renamed.items()}) for item in items]
    setattr(response, results, refused)
    return response


def items_of(key: int, body: Any) -> list[Any]:
    """The items of a request. Before version 6 DeleteTopics has only names."""
    items = getattr(body, ITEMS[key][0])
    return body.topic_names if key == DELETE_TOPICS and not items else items or []


def with_items(key: int, body: Message, items: Iterable[Any]) -> Message:
    """A copy of the request with these items only."""
    name = ITEMS[key][0]
    if key == DELETE_TOPICS and not getattr(body, name):
        name = "topic_names"
    changed = copy.copy(body)
    setattr(changed, name, [*items])
    return changed


def _refused(item: Any, table: type[Message], code: ErrorCode, **more: Any) -> Message:
    """A result of type `table` for an item, which is a message or a bare name."""
    values: dict[str, Any] = dict(more)
    for field in table.FIELDS:
        if field.name in ("error_code", "partition_error_code"):
            values[field.name] = code
        elif field.name == "error_message":
            is_in_every_version = field.ignorable or field.versions.lowest == 0
            values[field.name] = MESSAGES.get(code) if is_in_every_version else None
        elif field.name in UNKNOWN:
            values[field.name] = UNKNOWN[field.name]
        elif isinstance(item, Message):
            if field.name in NESTED:
                values[field.name] = [_refused(each, field.element, code) for each in _nested(item)]
            elif field.name in NAMES and hasattr(item, field.name):
                values[field.name] = getattr(item, field.name)
        elif field.name in NAMES and field.kind == ("string" if isinstance(item, str) else "int32"):
            values[field.name] = item
    return table(**values)


def _nested(item: Message) -> list[Any]:
    return getattr(item, next(name for name in NESTED_IN_REQUEST if hasattr(item, name)))
