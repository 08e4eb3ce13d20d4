"""Lies about access control, authentication and quotas."""

from __future__ import annotations

from itertools import count
from typing import Any

from linearizability.mutants.wire.proxy import Exchange, ProxiedConnection
from linearizability.mutants.wire.rewriting import (
    Change,
    Lie,
    asks,
    both,
    errors,
    last_missing,
    lists,
    put,
    replied,
    shared,
    when,
)
from reference.protocol.acls import Operation, PatternType, Permission, ResourceType
from reference.protocol.errors import ErrorCode as E
from reference.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsResponse
from reference.protocol.messages.describe_cluster import DescribeClusterResponse
from reference.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from reference.protocol.messages.sasl_handshake import SaslHandshakeRequest

MAKE, LIST, REMOVE = "CreateAcls", "DescribeAcls", "DeleteAcls"
ALTER, QUOTAS = "AlterClientQuotas", "DescribeClientQuotas"
SHAKE, LOGIN, SET, SHOW = (
    "SaslHandshake", "SaslAuthenticate", "AlterUserScramCredentials", "DescribeUserScramCredentials",
)  # fmt: skip
OF_CONTROLLERS = 2
"""The endpoint type of controllers in DescribeCluster."""
ALL_OPERATIONS = sum(1 << operation for operation in Operation if operation > Operation.ALL)


def allowed_more(operation: Operation) -> Change:
    """Replace this operation by ALL in ACLs that allow it."""

    def apply(_: Exchange, message: Any) -> None:
        for one in message.creations:
            if one.operation == operation and one.permission_type == Permission.ALLOW:
                one.operation = Operation.ALL

    return apply


def numbered(path: str) -> Change:
    """Append a number to a text, a new one each time."""
    numbers = count(1)
    return put(path, lambda text: f"{text or ''} ({next(numbers)})")


def in_token(old: bytes, new: bytes) -> Change:
    """Replace bytes in a message of the SASL mechanism."""
    return put("auth_bytes", lambda token: bytes(token).replace(old, new, 1))


def open_after_login(connection: ProxiedConnection) -> bytes | None:
    """Keep the connection open if the broker closes it after a request of the authentication."""
    asked = connection.last.key if connection.last else None
    return b"" if asked in (SaslHandshakeRequest.KEY, SaslAuthenticateRequest.KEY) else None


def changed(exchange: Exchange, message: Any) -> AlterUserScramCredentialsResponse:
    """A response that reports all credentials of the request as changed."""
    result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
    users = dict.fromkeys(one.name for one in [*message.deletions, *message.upsertions])
    return AlterUserScramCredentialsResponse(results=[result(user=user) for user in users])


# fmt: off
LIES = [
    Lie("acl-prefix-is-literal", MAKE, "a prefixed ACL counts for its own name alone", "ACL-50 ACL-51 ACL-71 ACL-86", ask=put("creations.resource_pattern_type", {PatternType.PREFIXED: PatternType.LITERAL})),
    Lie("acl-for-any-host", MAKE, "an ACL for one host counts for all", "ACL-54 ACL-73", ask=put("creations.host", "*")),
    Lie("acl-for-any-user", MAKE, "an ACL for one user counts for all", "ACL-55 ACL-73 ACL-76", ask=put("creations.principal", "User:*")),
    Lie("acl-read-allows-all", MAKE, "an ACL that allows READ allows everything", "ACL-52 ACL-70 ACL-71 ACL-81 ACL-84", ask=allowed_more(Operation.READ)),
    Lie("acl-alter-configs-allows-all", MAKE, "an ACL that allows ALTER_CONFIGS allows everything", "ACL-53", ask=allowed_more(Operation.ALTER_CONFIGS)),
    Lie("impossible-acl-made", MAKE, "INVALID_REQUEST is reported as no error", "ACL-70 ACL-78", answer=errors(E.INVALID_REQUEST, 0)),
    Lie("acl-results-missing", MAKE, "the last of several ACLs has no result", "ACL ACL-70", answer=last_missing("results")),
    Lie("acl-filter-literal-is-any", LIST, "a filter LITERAL finds prefixes, too", "ACL-71", ask=put("pattern_type_filter", {PatternType.LITERAL: PatternType.ANY}), versions="1+"),
    Lie("acl-filter-match-is-any", LIST, "a filter MATCH finds no shorter prefix", "ACL-71 ACL-74", ask=put("pattern_type_filter", {PatternType.MATCH: PatternType.ANY}), versions="1+"),
    Lie("removed-acl-not-named", REMOVE, "the ACLs that were removed are not named", "ACL-70 ACL-76 ACL-77", answer=put("filter_results.matching_acls", [])),
    Lie("removals-named-in-part", REMOVE, "of several ACLs that a filter removed the last is not named", "ACL-76", answer=last_missing("filter_results.matching_acls")),
    Lie("removal-filter-unanswered", REMOVE, "the last of several filters has no result", "ACL-77", answer=last_missing("filter_results")),
    Lie("acl-filter-for-any-user", LIST, "a filter by a principal finds the ACLs of all", "ACL-73", ask=when(lambda x, m: m.operation == Operation.ANY, put("principal_filter", None))),
    Lie("acl-filter-for-any-operation", LIST, "a filter by an operation finds the ACLs for all", "ACL-73", ask=when(lambda x, m: m.principal_filter is None, put("operation", Operation.ANY))),
    Lie("acls-for-all-names-hidden", LIST, "ACLs for all names are not found by other names", "ACL-74", answer=asks(lambda m: m.resource_name_filter != "*", lists("resources", lambda found: [one for one in found if one.resource_name != "*"]))),
    Lie("acls-of-one-kind-found", LIST, "of ACLs for several things the last is not found", "ACL-71 ACL-74 ACL-75", answer=last_missing("resources")),
    Lie("acls-without-authorizer-made", MAKE, "SECURITY_DISABLED is reported as no error", "ACL-79", answer=errors(E.SECURITY_DISABLED, 0)),
    Lie("acl-for-all-names-literal", MAKE, "an ACL for all names counts for a topic `*` alone", "ACL-69 ACL-87", ask=when(lambda x, m: any(one.resource_type == ResourceType.TOPIC for one in m.creations), put("creations.resource_name", {"*": "no-name"}))),
    Lie("acl-denies-all-is-read", MAKE, "an ACL that denies ALL denies READ alone", "ACL-51 ACL-83", ask=put("creations.operation", {Operation.ALL: Operation.READ}, lambda one: one.permission_type == Permission.DENY)),

    Lie("denied-produce-taken", "Produce", "TOPIC_AUTHORIZATION_FAILED is reported as no error", "ACL-01 ACL-50 ACL-51 ACL-52 ACL-54 ACL-55 ACL-56 ACL-72 ACL-83 ACL-86 ACL-87 ACL-88", answer=errors(E.TOPIC_AUTHORIZATION_FAILED, 0)),
    Lie("denied-produce-unknown", "Produce", "TOPIC_AUTHORIZATION_FAILED is reported as UNKNOWN_TOPIC_OR_PARTITION", "ACL-01 ACL-50 ACL-51 ACL-52 ACL-54 ACL-55 ACL-56 ACL-72 ACL-83 ACL-86 ACL-87 ACL-88", answer=errors(E.TOPIC_AUTHORIZATION_FAILED, E.UNKNOWN_TOPIC_OR_PARTITION)),
    Lie("denied-id-produces", "Produce", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED is reported as no error", "ACL-02", answer=errors(E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, 0)),
    Lie("denied-fetch-empty", "Fetch", "TOPIC_AUTHORIZATION_FAILED is reported as no error", "ACL-03 ACL-52 ACL-58 ACL-80 ACL-83", answer=errors(E.TOPIC_AUTHORIZATION_FAILED, 0)),
    Lie("denied-offsets-unnoticed", "ListOffsets", "TOPIC_AUTHORIZATION_FAILED is reported as no error", "ACL-04 ACL-52 ACL-53 ACL-80 ACL-82 ACL-83", answer=errors(E.TOPIC_AUTHORIZATION_FAILED, 0)),
    Lie("denied-topic-unknown", "Metadata", "TOPIC_AUTHORIZATION_FAILED is reported as UNKNOWN_TOPIC_OR_PARTITION", "ACL-05 ACL-61 ACL-68", answer=errors(E.TOPIC_AUTHORIZATION_FAILED, E.UNKNOWN_TOPIC_OR_PARTITION)),
    Lie("denied-topic-named", "Metadata", "a topic that is hidden has a name", "ACL-61", answer=put("topics.name", "a-name", lambda topic: topic.error_code == E.TOPIC_AUTHORIZATION_FAILED), versions="12+"),
    Lie("all-operations-authorized", "Metadata", "every operation is reported as authorized", "ACL-62", answer=put("topics.topic_authorized_operations", ALL_OPERATIONS), versions="8+"),
    Lie("describe-not-authorized", "Metadata", "DESCRIBE is never reported as authorized", "ACL-62", answer=put("topics.topic_authorized_operations", lambda bits: bits & ~(1 << Operation.DESCRIBE)), versions="8+"),
    Lie("denied-group-joined", "JoinGroup", "GROUP_AUTHORIZATION_FAILED is reported as no error", "ACL-12", answer=errors(E.GROUP_AUTHORIZATION_FAILED, 0)),
    Lie("denied-partition-added", "AddPartitionsToTxn", "OPERATION_NOT_ATTEMPTED is reported as no error", "ACL-59 TXN-09", answer=errors(E.OPERATION_NOT_ATTEMPTED, 0)),
    Lie("hidden-configs-unmentioned", "CreateTopics", "that configurations are hidden is not reported", "ACL-67", answer=put("topics.topic_config_error_code", 0), versions="5+"),
    Lie("denied-creation-taken", "CreateTopics", "TOPIC_AUTHORIZATION_FAILED is reported as no error", "ACL-68", answer=errors(E.TOPIC_AUTHORIZATION_FAILED, 0)),
    Lie("denied-producer-id-given", "InitProducerId", "CLUSTER_AUTHORIZATION_FAILED is reported as no error", "ACL-69", answer=errors(E.CLUSTER_AUTHORIZATION_FAILED, 0)),
    Lie("denied-configs-shown", "DescribeConfigs", "TOPIC_AUTHORIZATION_FAILED is reported as no error", "ACL-27 ACL-81 ACL-83", answer=errors(E.TOPIC_AUTHORIZATION_FAILED, 0)),
    Lie("denied-id-begun", "InitProducerId", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED is reported as no error", "ACL-18 ACL-85", answer=errors(E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, 0)),
    Lie("denied-commit-taken", "OffsetCommit", "GROUP_AUTHORIZATION_FAILED is reported as no error", "ACL-07 ACL-84", answer=errors(E.GROUP_AUTHORIZATION_FAILED, 0)),
    Lie("denied-group-deleted", "DeleteGroups", "GROUP_AUTHORIZATION_FAILED is reported as no error", "ACL-30 ACL-84", answer=errors(E.GROUP_AUTHORIZATION_FAILED, 0)),

    Lie("sasl-apis-hidden", "ApiVersions", "the APIs of SASL are not listed", "SEC-01", answer=lists("api_keys", lambda keys: [one for one in keys if one.api_key not in (SaslHandshakeRequest.KEY, SaslAuthenticateRequest.KEY)])),
    Lie("mechanism-hidden", SHAKE, "the last mechanism is not listed", "SEC-02 SEC-03", answer=last_missing("mechanisms")),
    Lie("refusal-without-mechanisms", SHAKE, "a refusal lists no mechanisms", "SEC-03", answer=when(lambda x, m: m.error_code != 0, put("mechanisms", []))),
    Lie("unknown-mechanism-taken", SHAKE, "UNSUPPORTED_SASL_MECHANISM is reported as no error", "SEC-03", answer=errors(E.UNSUPPORTED_SASL_MECHANISM, 0)),
    Lie("handshake-anywhere", SHAKE, "ILLEGAL_SASL_STATE is reported as no error", "SEC-13", answer=errors(E.ILLEGAL_SASL_STATE, 0)),
    Lie("login-anywhere", LOGIN, "ILLEGAL_SASL_STATE is reported as no error", "SEC-13", answer=errors(E.ILLEGAL_SASL_STATE, 0)),
    Lie("served-before-login", "DescribeCluster", "a controllers' listener answers without authentication", "SEC-04 SEC-05", ask=when(lambda x, m: m.endpoint_type == OF_CONTROLLERS, replied(lambda x, m: DescribeClusterResponse())), versions="1+"),
    Lie("wrong-password-taken", LOGIN, "SASL_AUTHENTICATION_FAILED is reported as no error", "SEC-07 SEC-11 SEC-12 SEC-17 SEC-30 SEC-31 SEC-32 SEC-33 SEC-34 SEC-36 SEC-37 SEC-40 SEC-44", answer=errors(E.SASL_AUTHENTICATION_FAILED, 0)),
    Lie("wrong-password-error-other", LOGIN, "SASL_AUTHENTICATION_FAILED is reported as ILLEGAL_SASL_STATE", "SEC-07 SEC-11 SEC-17 SEC-30 SEC-31 SEC-32 SEC-33 SEC-34 SEC-36 SEC-37", answer=errors(E.SASL_AUTHENTICATION_FAILED, E.ILLEGAL_SASL_STATE)),
    Lie("failures-distinguished", LOGIN, "each refusal has words of its own", "SEC-07", answer=when(lambda x, m: m.error_code != 0, numbered("error_message"))),
    Lie("open-after-refused-login", "", "the connection stays open after a refusal of the authentication", "SEC-03 SEC-07 SEC-11 SEC-17 SEC-30 SEC-31 SEC-32 SEC-33 SEC-34 SEC-36 SEC-37", end=open_after_login),
    Lie("scram-nonce-other", LOGIN, "the server's nonce does not begin with the client's", "SEC-09 SEC-10", answer=in_token(b"r=", b"r=x")),
    Lie("scram-iterations-other", LOGIN, "another number of iterations is reported than was set", "SEC-09 SEC-10", answer=in_token(b"i=4096", b"i=8192")),
    Lie("scram-server-unproven", LOGIN, "the server does not prove that it knows the credential", "SEC-09", answer=in_token(b"v=", b"v=AAAA")),
    Lie("session-end-unmentioned", LOGIN, "no session has an end", "SEC-14 SEC-16", answer=put("session_lifetime_ms", 0), versions="1+"),
    Lie("session-end-everywhere", LOGIN, "every session has an end", "SEC-14", answer=put("session_lifetime_ms", 3_000), versions="1+"),
    Lie("credential-not-set", SET, "every change of credentials is agreed to, and none is made", "SEC-09 SEC-12 SEC-18 SEC-19 SEC-32 SEC-40 SEC-41 SEC-42 SEC-43 SEC-44", ask=replied(changed)),
    Lie("credential-not-deleted", SET, "a deletion is agreed to, and not done", "SEC-12 SEC-18 SEC-43 SEC-44", ask=when(lambda x, m: m.deletions and not m.upsertions, replied(changed))),
    Lie("impossible-credential-set", SET, "UNACCEPTABLE_CREDENTIAL is reported as no error", "SEC-18 SEC-41", answer=errors(E.UNACCEPTABLE_CREDENTIAL, 0)),
    Lie("credential-twice-set", SET, "DUPLICATE_RESOURCE is reported as no error", "SEC-18 SEC-42", answer=errors(E.DUPLICATE_RESOURCE, 0)),
    Lie("credential-not-shown", SHOW, "the last mechanism of a user is not shown", "SEC-19", answer=last_missing("results.credential_infos")),
    Lie("iterations-shown-wrong", SHOW, "another number of iterations is shown", "SEC-19 SEC-41", answer=put("results.credential_infos.iterations", 8192)),
    Lie("unknown-user-shown", SHOW, "RESOURCE_NOT_FOUND is reported as no error", "SEC-18 SEC-19", answer=both(errors(E.RESOURCE_NOT_FOUND, 0))),
    Lie("user-twice-shown", SHOW, "DUPLICATE_RESOURCE is reported as no error", "SEC-19", answer=errors(E.DUPLICATE_RESOURCE, 0)),
    Lie("users-judged-together", SET, "one user's error is that of all", "SEC-41", answer=shared("results")),
    Lie("user-of-several-not-shown", SHOW, "without names the first user alone is shown", "SEC-43", answer=asks(lambda m: not m.users, lists("results", lambda users: users[:1]))),

    Lie("impossible-quota-set", ALTER, "INVALID_REQUEST is reported as no error", "QTA-04 QTA-05 QTA-06 QTA-07 QTA-08 QTA-09 QTA-10 QTA-14 QTA-16 QTA-28", answer=errors(E.INVALID_REQUEST, 0)),
    Lie("quota-result-missing", ALTER, "the last of several entities has no result", "QTA-09 QTA-29", answer=last_missing("entries")),
    Lie("default-entity-named", ALTER, "the result of a default has a name", "QTA-29", answer=put("entries.entity.entity_name", {None: "<default>"})),
    Lie("quota-of-user-alone", ALTER, "a quota for a client id of a user is one for the user", "QTA-01 QTA-11 QTA-12 QTA-18 QTA-27", ask=last_missing("entries.entity")),
    Lie("quotas-set-in-part", ALTER, "of the quotas of an entity the last is ignored", "QTA-01 QTA-05 QTA-28", ask=last_missing("entries.ops")),
    Lie("throttled-hundredfold", "Produce", "a throttled producer is asked to wait a hundred times as long", "QTA-22 QTA-34", answer=put("throttle_time_ms", lambda ms: 100 * ms), versions="1+"),
    Lie("default-entity-described-by-name", QUOTAS, "a default is described with a name", "QTA-12 QTA-17", answer=put("entries.entity.entity_name", {None: "<default>"})),
    Lie("default-is-name", QUOTAS, "the name `<default>` means the default", "QTA-17", ask=when(lambda x, m: any(one.match == "<default>" for one in m.components), both(put("components.match_type", 1), put("components.match", None)))),
    Lie("impossible-filter-answered", QUOTAS, "INVALID_REQUEST is reported as no error", "QTA-13 QTA-15", answer=errors(E.INVALID_REQUEST, 0)),
    Lie("quota-entity-missing", QUOTAS, "of several entities the last is not described", "QTA-11 QTA-12 QTA-19", answer=last_missing("entries")),
]
# fmt: on

__all__ = ["LIES"]
