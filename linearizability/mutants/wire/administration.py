"""Lies about topics and configurations."""

from __future__ import annotations

from typing import Any

from linearizability.mutants.wire.proxy import Exchange
from linearizability.mutants.wire.rewriting import (
    Lie,
    both,
    doubled,
    errors,
    first_missing,
    last_missing,
    lists,
    put,
    replied,
    shared,
    when,
)
from reference.protocol.errors import ErrorCode as E
from reference.protocol.messages.delete_topics import DeleteTopicsResponse
from reference.protocol.primitives import NO_UUID

CREATE, REMOVE, GROW, RECORDS, REPORT, CHANGE, REPLACE = (
    "CreateTopics", "DeleteTopics", "CreatePartitions", "DeleteRecords", "DescribeConfigs", "IncrementalAlterConfigs",
    "AlterConfigs",
)  # fmt: skip
SET, DELETE, APPEND, SUBTRACT = range(4)
BROKER = 4
"""The resource type of brokers."""


def deleted(exchange: Exchange, message: Any) -> DeleteTopicsResponse:
    """A response that reports all topics of the request as deleted."""
    result = DeleteTopicsResponse.DeletableTopicResult
    named = [(topic.name, topic.topic_id) for topic in message.topics] or [(n, NO_UUID) for n in message.topic_names]
    return DeleteTopicsResponse(responses=[result(name=name, topic_id=id) for name, id in named])


# fmt: off
LIES = [
    Lie("illegal-name-made", CREATE, "INVALID_TOPIC_EXCEPTION is reported as no error", "TOP-01 TOP-02", answer=errors(E.INVALID_TOPIC_EXCEPTION, 0)),
    Lie("illegal-name-error-other", CREATE, "INVALID_TOPIC_EXCEPTION is reported as INVALID_REQUEST", "TOP-01 TOP-02", answer=errors(E.INVALID_TOPIC_EXCEPTION, E.INVALID_REQUEST)),
    Lie("existing-topic-made", CREATE, "TOPIC_ALREADY_EXISTS is reported as no error", "TOP-03 TOP-25", answer=errors(E.TOPIC_ALREADY_EXISTS, 0)),
    Lie("partition-count-unchecked", CREATE, "a partition count of 0 is taken for 1", "TOP-04", ask=put("topics.num_partitions", {0: 1})),
    Lie("partition-count-error-other", CREATE, "INVALID_PARTITIONS is reported as INVALID_REQUEST", "TOP-04", answer=errors(E.INVALID_PARTITIONS, E.INVALID_REQUEST)),
    Lie("replication-factor-unchecked", CREATE, "any replication factor is taken", "TOP-04", ask=put("topics.replication_factor", lambda count: count if count == -1 else 1)),
    Lie("default-counts-refused", CREATE, "-1 partitions are refused", "TOP-05", ask=put("topics.num_partitions", {-1: -2}), versions="4+"),
    Lie("hand-and-count-taken", CREATE, "INVALID_REQUEST is reported as no error", "TOP-06 TOP-10", answer=errors(E.INVALID_REQUEST, 0)),
    Lie("replicas-by-hand-unchecked", CREATE, "INVALID_REPLICA_ASSIGNMENT is reported as no error", "TOP-07", answer=errors(E.INVALID_REPLICA_ASSIGNMENT, 0)),
    Lie("bad-config-unnoticed", CREATE, "INVALID_CONFIG is reported as no error", "TOP-08", answer=errors(E.INVALID_CONFIG, 0)),
    Lie("bad-config-error-other", CREATE, "INVALID_CONFIG is reported as INVALID_REQUEST", "TOP-08", answer=errors(E.INVALID_CONFIG, E.INVALID_REQUEST)),
    Lie("checked-topic-made", CREATE, "validate_only makes the topic", "TOP-09", ask=put("validate_only", False), versions="1+"),
    Lie("checked-topic-not-checked", CREATE, "validate_only finds nothing wrong", "TOP-09", answer=when(lambda x, m: x.request.validate_only, put("topics.error_code", 0)), versions="1+"),
    Lie("topic-results-share-error", CREATE, "one topic's error is given for all", "TOP-12 TOP-10", answer=shared("topics")),
    Lie("topic-result-missing", CREATE, "the last of several topics has no result", "TOP-12 TOP-10", answer=last_missing("topics")),
    Lie("made-partitions-reported-wrong", CREATE, "one partition more is reported than was made", "TOP-11", answer=put("topics.num_partitions", lambda count: count + 1 if count > 0 else count), versions="5+"),
    Lie("made-configs-not-reported", CREATE, "no configurations are reported", "TOP-11", answer=put("topics.configs", []), versions="5+"),
    Lie("made-id-not-reported", CREATE, "no topic id is reported", "TOP-11", answer=put("topics.topic_id", NO_UUID), versions="7+"),
    Lie("made-replication-not-reported", CREATE, "the replication factor is reported as -1", "TOP-11", answer=put("topics.replication_factor", -1), versions="5+"),
    Lie("made-without-configs", CREATE, "configurations are not kept", "TOP-11 CFG-01 CFG-11 PRD-07", ask=put("topics.configs", [])),

    Lie("unknown-topic-deleted", REMOVE, "UNKNOWN_TOPIC_OR_PARTITION is reported as no error", "TOP-12 TOP-14", answer=errors(E.UNKNOWN_TOPIC_OR_PARTITION, 0)),
    Lie("unknown-id-deleted", REMOVE, "UNKNOWN_TOPIC_ID is reported as UNKNOWN_TOPIC_OR_PARTITION", "TOP-14", answer=errors(E.UNKNOWN_TOPIC_ID, E.UNKNOWN_TOPIC_OR_PARTITION)),
    Lie("deletion-twice-taken", REMOVE, "INVALID_REQUEST is reported as no error", "TOP-14 TOP-15", answer=errors(E.INVALID_REQUEST, 0)),
    Lie("deletion-disabled-unnoticed", REMOVE, "TOPIC_DELETION_DISABLED is reported as no error", "TOP-15", answer=errors(E.TOPIC_DELETION_DISABLED, 0)),
    Lie("never-deleted", REMOVE, "every deletion is agreed to, and none is done", "TOP-16 TOP-12 TOP-23 TOP-14 TOP-15", ask=replied(deleted)),
    Lie("deleted-name-missing", REMOVE, "a topic that is deleted has no name in the answer", "TOP-12 TOP-23", answer=put("responses.name", None), versions="6+"),
    Lie("deletions-share-errors", REMOVE, "one topic's error is given for all", "TOP-12 TOP-14", answer=shared("responses")),
    Lie("shrunk", GROW, "INVALID_PARTITIONS is reported as no error", "TOP-17 TOP-24", answer=errors(E.INVALID_PARTITIONS, 0)),
    Lie("unknown-topic-grows", GROW, "UNKNOWN_TOPIC_OR_PARTITION is reported as no error", "TOP-17", answer=errors(E.UNKNOWN_TOPIC_OR_PARTITION, 0)),
    Lie("growth-by-hand-unchecked", GROW, "INVALID_REPLICA_ASSIGNMENT is reported as INVALID_REQUEST", "TOP-17", answer=errors(E.INVALID_REPLICA_ASSIGNMENT, E.INVALID_REQUEST)),
    Lie("checked-growth-done", GROW, "validate_only grows the topic", "TOP-24", ask=put("validate_only", False)),
    Lie("growth-not-done", GROW, "the topic does not grow", "TOP-18 TOP-24", ask=put("validate_only", True)),
    Lie("growth-too-large", GROW, "the topic grows by one more", "TOP-17 TOP-18 TOP-24", ask=put("topics.count", lambda count: count + 1)),
    Lie("records-not-deleted", RECORDS, "nothing is deleted", "TOP-19", ask=put("topics.partitions.offset", 0)),
    Lie("low-watermark-minus-one", RECORDS, "the low watermark is reported one too low", "TOP-19", answer=put("topics.partitions.low_watermark", lambda offset: max(offset - 1, -1))),
    Lie("deletion-beyond-end", RECORDS, "OFFSET_OUT_OF_RANGE is reported as no error", "TOP-19", answer=errors(E.OFFSET_OUT_OF_RANGE, 0)),
    Lie("deletion-from-compacted", RECORDS, "POLICY_VIOLATION is reported as no error", "TOP-20 CMP-07", answer=errors(E.POLICY_VIOLATION, 0)),

    Lie("config-missing", REPORT, "the first configuration is not reported", "CFG-01 CFG-11 CFG-12", answer=first_missing("results.configs")),
    Lie("config-twice", REPORT, "the first configuration is reported twice", "CFG-01", answer=doubled("results.configs")),
    Lie("config-keys-ignored", REPORT, "all configurations are reported whatever was asked", "CFG-01", ask=put("resources.configuration_keys", None)),
    Lie("config-source-default", REPORT, "every source is the default", "CFG-01 CFG-03 CFG-12", answer=put("results.configs.config_source", 5), versions="1+"),
    Lie("config-values-missing", REPORT, "no values are reported", "CFG-01 CFG-03", answer=put("results.configs.value", None)),
    Lie("config-all-sensitive", REPORT, "every configuration is sensitive", "CFG-01", answer=put("results.configs.is_sensitive", True)),
    Lie("config-all-read-only", REPORT, "every configuration is read-only", "CFG-01 CFG-12", answer=put("results.configs.read_only", True)),
    Lie("config-of-unknown-topic", REPORT, "UNKNOWN_TOPIC_OR_PARTITION is reported as no error", "CFG-02", answer=errors(E.UNKNOWN_TOPIC_OR_PARTITION, 0)),
    Lie("config-of-illegal-name", REPORT, "INVALID_TOPIC_EXCEPTION is reported as UNKNOWN_TOPIC_OR_PARTITION", "CFG-02", answer=errors(E.INVALID_TOPIC_EXCEPTION, E.UNKNOWN_TOPIC_OR_PARTITION)),
    Lie("config-results-share-error", REPORT, "one resource's error is given for all", "CFG-02", answer=shared("results")),
    Lie("documentation-always", REPORT, "documentation is reported without being asked for", "CFG-14", ask=put("include_documentation", True), versions="3+"),
    Lie("documentation-never", REPORT, "documentation is never reported", "CFG-14", ask=put("include_documentation", False), versions="3+"),
    Lie("synonyms-never", REPORT, "synonyms are never reported", "CFG-01 CFG-12", ask=put("include_synonyms", False), versions="1+"),
    Lie("config-types-missing", REPORT, "types are not reported", "CFG-15", answer=put("results.configs.config_type", 0), versions="3+"),
    Lie("change-not-done", CHANGE, "nothing is changed", "CFG-03 CFG-09", ask=put("validate_only", True)),
    Lie("checked-change-done", CHANGE, "validate_only changes", "CFG-06", ask=put("validate_only", False)),
    Lie("append-is-set", CHANGE, "APPEND sets", "CFG-04", ask=put("resources.configs.config_operation", {APPEND: SET})),
    Lie("subtract-is-delete", CHANGE, "SUBTRACT deletes", "CFG-04", ask=put("resources.configs.config_operation", {SUBTRACT: DELETE})),
    Lie("delete-is-nothing", CHANGE, "DELETE does nothing", "CFG-03", ask=lists("resources.configs", lambda cs: [c for c in cs if c.config_operation != DELETE])),
    Lie("bad-change-unnoticed", CHANGE, "INVALID_CONFIG is reported as no error", "CFG-04 CFG-05 CFG-06", answer=errors(E.INVALID_CONFIG, 0)),
    Lie("bad-change-error-other", CHANGE, "INVALID_CONFIG is reported as INVALID_REQUEST", "CFG-04 CFG-05", answer=errors(E.INVALID_CONFIG, E.INVALID_REQUEST)),
    Lie("change-of-unknown-topic", CHANGE, "UNKNOWN_TOPIC_OR_PARTITION is reported as no error", "CFG-05", answer=errors(E.UNKNOWN_TOPIC_OR_PARTITION, 0)),
    Lie("change-twice-unnoticed", CHANGE, "INVALID_REQUEST is reported as no error", "CFG-05 CFG-08", answer=errors(E.INVALID_REQUEST, 0)),
    Lie("changes-share-error", CHANGE, "one resource's error is given for all", "CFG-05 CFG-08", answer=shared("responses")),
    Lie("unknown-deletion-refused", CHANGE, "DELETE of an unknown name is INVALID_CONFIG", "CFG-13", answer=when(lambda x, m: any(c.config_operation == DELETE and c.name.startswith("no.such") for r in x.request.resources for c in r.configs), errors(0, E.INVALID_CONFIG))),
    Lie("default-for-all-not-set", CHANGE, "a setting for all brokers is agreed to, and not made", "CFG-16", ask=when(lambda x, m: any(r.resource_type == BROKER and not r.resource_name for r in m.resources), put("validate_only", True))),
    Lie("own-settings-not-set", CHANGE, "a broker agrees to a setting of its own, and does not make it", "CFG-17", ask=when(lambda x, m: any(r.resource_type == BROKER and r.resource_name for r in m.resources), put("validate_only", True))),
    Lie("own-settings-are-defaults", REPORT, "a broker's own settings are described as those of all brokers", "CFG-17", answer=put("results.configs.config_source", {2: 3}), versions="1+"),
    Lie("legacy-change-not-done", REPLACE, "nothing is changed", "CFG-07", ask=put("validate_only", True)),
    Lie("legacy-change-unchecked", REPLACE, "INVALID_CONFIG is reported as no error", "CFG-07", answer=both(errors(E.INVALID_CONFIG, 0, E.INVALID_REQUEST, 0))),
]
# fmt: on

__all__ = ["LIES"]
