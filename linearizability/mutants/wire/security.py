"""Lies about access control and authentication."""

from __future__ import annotations

from itertools import count
from typing import Any

from linearizability.mutants.wire.proxy import Exchange, ProxiedConnection
from linearizability.mutants.wire.rewriting import (
    Change,
    Lie,
    both,
    errors,
    last_missing,
    lists,
    put,
    replied,
    when,
)
from reference.protocol.acls import Operation, PatternType, Permission
from reference.protocol.errors import ErrorCode as E
from reference.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsResponse
from reference.protocol.messages.describe_cluster import DescribeClusterResponse
from reference.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from reference.protocol.messages.sasl_handshake import SaslHandshakeRequest

MAKE, LIST, REMOVE = "CreateAcls", "DescribeAcls", "DeleteAcls"
SHAKE, LOGIN, SET, SHOW = (
    "SaslHandshake", "SaslAuthenticate", "AlterUserScramCredentials", "DescribeUserScramCredentials",
)  # fmt: skip
OF_CONTROLLERS = 2
"""The endpoint type of DescribeCluster that a controllers' listener is asked for."""
ALL_OPERATIONS = sum(1 << operation for operation in Operation if operation > Operation.ALL)


def allowed_more(operation: Operation) -> Change:
    """What allows one operation allows all of them."""

    def apply(_: Exchange, message: Any) -> None:
        for one in message.creations:
            if one.operation == operation and one.permission_type == Permission.ALLOW:
                one.operation = Operation.ALL

    return apply


def numbered(path: str) -> Change:
    """A text ends with a number that is another each time."""
    numbers = count(1)
    return put(path, lambda text: f"{text or ''} ({next(numbers)})")


def in_token(old: bytes, new: bytes) -> Change:
    """Bytes of a mechanism's message are others."""
    return put("auth_bytes", lambda token: bytes(token).replace(old, new, 1))


def open_after_login(connection: ProxiedConnection) -> bytes | None:
    """The connection stays open where the broker closes it after an answer of the authentication."""
    asked = connection.last.key if connection.last else None
    return b"" if asked in (SaslHandshakeRequest.KEY, SaslAuthenticateRequest.KEY) else None


def changed(exchange: Exchange, message: Any) -> AlterUserScramCredentialsResponse:
    """An answer that says that all credentials are changed."""
    result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
    users = dict.fromkeys(one.name for one in [*message.deletions, *message.upsertions])
    return AlterUserScramCredentialsResponse(results=[result(user=user) for user in users])


# fmt: off
LIES = [
    Lie("acl-prefix-is-literal", MAKE, "a prefixed ACL counts for its own name alone", "ACL-50 ACL-51 ACL-71", ask=put("creations.resource_pattern_type", {PatternType.PREFIXED: PatternType.LITERAL})),
    Lie("acl-for-any-host", MAKE, "an ACL for one host counts for all", "ACL-54", ask=put("creations.host", "*")),
    Lie("acl-for-any-user", MAKE, "an ACL for one user counts for all", "ACL-55", ask=put("creations.principal", "User:*")),
    Lie("acl-read-allows-all", MAKE, "an ACL that allows READ allows everything", "ACL-52 ACL-70 ACL-71", ask=allowed_more(Operation.READ)),
    Lie("acl-alter-configs-allows-all", MAKE, "an ACL that allows ALTER_CONFIGS allows everything", "ACL-53", ask=allowed_more(Operation.ALTER_CONFIGS)),
    Lie("impossible-acl-made", MAKE, "INVALID_REQUEST is reported as no error", "ACL-70", answer=errors(E.INVALID_REQUEST, 0)),
    Lie("acl-results-missing", MAKE, "the last of several ACLs has no result", "ACL ACL-70", answer=last_missing("results")),
    Lie("acl-filter-literal-is-any", LIST, "a filter LITERAL finds prefixes, too", "ACL-71", ask=put("pattern_type_filter", {PatternType.LITERAL: PatternType.ANY}), versions="1+"),
    Lie("acl-filter-match-is-any", LIST, "a filter MATCH finds no shorter prefix", "ACL-71", ask=put("pattern_type_filter", {PatternType.MATCH: PatternType.ANY}), versions="1+"),
    Lie("removed-acl-not-named", REMOVE, "the ACLs that were removed are not named", "ACL-70", answer=put("filter_results.matching_acls", [])),

    Lie("denied-produce-taken", "Produce", "TOPIC_AUTHORIZATION_FAILED is reported as no error", "ACL-01 ACL-50 ACL-51 ACL-52 ACL-54 ACL-55 ACL-56 ACL-72", answer=errors(E.TOPIC_AUTHORIZATION_FAILED, 0)),
    Lie("denied-produce-unknown", "Produce", "TOPIC_AUTHORIZATION_FAILED is reported as UNKNOWN_TOPIC_OR_PARTITION", "ACL-01 ACL-50 ACL-51 ACL-52 ACL-54 ACL-55 ACL-56 ACL-72", answer=errors(E.TOPIC_AUTHORIZATION_FAILED, E.UNKNOWN_TOPIC_OR_PARTITION)),
    Lie("denied-id-produces", "Produce", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED is reported as no error", "ACL-02", answer=errors(E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, 0)),
    Lie("denied-fetch-empty", "Fetch", "TOPIC_AUTHORIZATION_FAILED is reported as no error", "ACL-03 ACL-52 ACL-58", answer=errors(E.TOPIC_AUTHORIZATION_FAILED, 0)),
    Lie("denied-offsets-unnoticed", "ListOffsets", "TOPIC_AUTHORIZATION_FAILED is reported as no error", "ACL-04 ACL-52 ACL-53", answer=errors(E.TOPIC_AUTHORIZATION_FAILED, 0)),
    Lie("denied-topic-unknown", "Metadata", "TOPIC_AUTHORIZATION_FAILED is reported as UNKNOWN_TOPIC_OR_PARTITION", "ACL-05 ACL-61 ACL-68", answer=errors(E.TOPIC_AUTHORIZATION_FAILED, E.UNKNOWN_TOPIC_OR_PARTITION)),
    Lie("denied-topic-named", "Metadata", "a topic that is hidden has a name", "ACL-61", answer=put("topics.name", "a-name", lambda topic: topic.error_code == E.TOPIC_AUTHORIZATION_FAILED), versions="12+"),
    Lie("all-operations-authorized", "Metadata", "every operation is reported as authorized", "ACL-62", answer=put("topics.topic_authorized_operations", ALL_OPERATIONS), versions="8+"),
    Lie("denied-group-joined", "JoinGroup", "GROUP_AUTHORIZATION_FAILED is reported as no error", "ACL-12", answer=errors(E.GROUP_AUTHORIZATION_FAILED, 0)),
    Lie("denied-partition-added", "AddPartitionsToTxn", "OPERATION_NOT_ATTEMPTED is reported as no error", "ACL-59 TXN-09", answer=errors(E.OPERATION_NOT_ATTEMPTED, 0)),
    Lie("hidden-configs-unmentioned", "CreateTopics", "that configurations are hidden is not reported", "ACL-67", answer=put("topics.topic_config_error_code", 0), versions="5+"),
    Lie("denied-creation-taken", "CreateTopics", "TOPIC_AUTHORIZATION_FAILED is reported as no error", "ACL-68", answer=errors(E.TOPIC_AUTHORIZATION_FAILED, 0)),
    Lie("denied-producer-id-given", "InitProducerId", "CLUSTER_AUTHORIZATION_FAILED is reported as no error", "ACL-69", answer=errors(E.CLUSTER_AUTHORIZATION_FAILED, 0)),

    Lie("sasl-apis-hidden", "ApiVersions", "the APIs of SASL are not listed", "SEC-01", answer=lists("api_keys", lambda keys: [one for one in keys if one.api_key not in (SaslHandshakeRequest.KEY, SaslAuthenticateRequest.KEY)])),
    Lie("mechanism-hidden", SHAKE, "the last mechanism is not listed", "SEC-02 SEC-03", answer=last_missing("mechanisms")),
    Lie("refusal-without-mechanisms", SHAKE, "a refusal lists no mechanisms", "SEC-03", answer=when(lambda x, m: m.error_code != 0, put("mechanisms", []))),
    Lie("unknown-mechanism-taken", SHAKE, "UNSUPPORTED_SASL_MECHANISM is reported as no error", "SEC-03", answer=errors(E.UNSUPPORTED_SASL_MECHANISM, 0)),
    Lie("handshake-anywhere", SHAKE, "ILLEGAL_SASL_STATE is reported as no error", "SEC-13", answer=errors(E.ILLEGAL_SASL_STATE, 0)),
    Lie("login-anywhere", LOGIN, "ILLEGAL_SASL_STATE is reported as no error", "SEC-13", answer=errors(E.ILLEGAL_SASL_STATE, 0)),
    Lie("served-before-login", "DescribeCluster", "a controllers' listener answers without authentication", "SEC-04 SEC-05", ask=when(lambda x, m: m.endpoint_type == OF_CONTROLLERS, replied(lambda x, m: DescribeClusterResponse())), versions="1+"),
    Lie("wrong-password-taken", LOGIN, "SASL_AUTHENTICATION_FAILED is reported as no error", "SEC-07 SEC-11 SEC-12 SEC-17", answer=errors(E.SASL_AUTHENTICATION_FAILED, 0)),
    Lie("wrong-password-error-other", LOGIN, "SASL_AUTHENTICATION_FAILED is reported as ILLEGAL_SASL_STATE", "SEC-07 SEC-11 SEC-17", answer=errors(E.SASL_AUTHENTICATION_FAILED, E.ILLEGAL_SASL_STATE)),
    Lie("failures-distinguished", LOGIN, "each refusal has words of its own", "SEC-07", answer=when(lambda x, m: m.error_code != 0, numbered("error_message"))),
    Lie("open-after-refused-login", "", "the connection stays open after a refusal of the authentication", "SEC-03 SEC-07 SEC-11 SEC-17", end=open_after_login),
    Lie("scram-nonce-other", LOGIN, "the server's nonce does not begin with the client's", "SEC-09 SEC-10", answer=in_token(b"r=", b"r=x")),
    Lie("scram-iterations-other", LOGIN, "another number of iterations is reported than was set", "SEC-09 SEC-10", answer=in_token(b"i=4096", b"i=8192")),
    Lie("scram-server-unproven", LOGIN, "the server does not prove that it knows the credential", "SEC-09", answer=in_token(b"v=", b"v=AAAA")),
    Lie("session-end-unmentioned", LOGIN, "no session has an end", "SEC-14 SEC-16", answer=put("session_lifetime_ms", 0), versions="1+"),
    Lie("session-end-everywhere", LOGIN, "every session has an end", "SEC-14", answer=put("session_lifetime_ms", 3_000), versions="1+"),
    Lie("credential-not-set", SET, "every change of credentials is agreed to, and none is made", "SEC-09 SEC-12 SEC-18 SEC-19", ask=replied(changed)),
    Lie("credential-not-deleted", SET, "a deletion is agreed to, and not done", "SEC-12 SEC-18", ask=when(lambda x, m: m.deletions and not m.upsertions, replied(changed))),
    Lie("impossible-credential-set", SET, "UNACCEPTABLE_CREDENTIAL is reported as no error", "SEC-18", answer=errors(E.UNACCEPTABLE_CREDENTIAL, 0)),
    Lie("credential-twice-set", SET, "DUPLICATE_RESOURCE is reported as no error", "SEC-18", answer=errors(E.DUPLICATE_RESOURCE, 0)),
    Lie("credential-not-shown", SHOW, "the last mechanism of a user is not shown", "SEC-19", answer=last_missing("results.credential_infos")),
    Lie("iterations-shown-wrong", SHOW, "another number of iterations is shown", "SEC-19", answer=put("results.credential_infos.iterations", 8192)),
    Lie("unknown-user-shown", SHOW, "RESOURCE_NOT_FOUND is reported as no error", "SEC-18 SEC-19", answer=both(errors(E.RESOURCE_NOT_FOUND, 0))),
    Lie("user-twice-shown", SHOW, "DUPLICATE_RESOURCE is reported as no error", "SEC-19", answer=errors(E.DUPLICATE_RESOURCE, 0)),
]
# fmt: on

__all__ = ["LIES"]
