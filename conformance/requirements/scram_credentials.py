"""SEC: SCRAM credentials as they are set and described."""

from __future__ import annotations

from typing import Any

from conformance.answers import only
from conformance.broker import Broker
from conformance.requirement import requirement
from conformance.sasl import (
    EXPOSED,
    ITERATIONS,
    PASSWORD,
    SALT,
    SCRAM,
    set_password,
)
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from reference.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest


@requirement(
    "SEC-18",
    notices=EXPOSED,
    source="KIP-554; ScramControlManager.alterCredentials",
    sentence="AlterUserScramCredentials refuses, user by user, what it cannot do: iterations below 4096 or above 16384, an "
    "empty user name, an unknown mechanism, a deletion of what is not there, the same credential twice.",
    accepted="UNACCEPTABLE_CREDENTIAL(93), UNSUPPORTED_SASL_MECHANISM(33), RESOURCE_NOT_FOUND(91), DUPLICATE_RESOURCE(92)",
    apis={"AlterUserScramCredentials": 0, "DescribeUserScramCredentials": 0},
)
def credentials_refused(broker: Broker) -> None:
    def upsertion(name: str, mechanism: int = 1, iterations: int = ITERATIONS) -> Any:
        return AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
            name=name, mechanism=mechanism, iterations=iterations, salt=SALT, salted_password=bytes(32)
        )

    user = broker.unused_name("user")
    deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion(name=user, mechanism=1)
    for name, deletions, upsertions, error in (
        ("too few iterations", [], [upsertion(user, iterations=4095)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ("too many iterations", [], [upsertion(user, iterations=16_385)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ("no user name", [], [upsertion("")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ("unknown mechanism", [], [upsertion(user, mechanism=3)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ("nothing to delete", [deletion], [], ErrorCode.RESOURCE_NOT_FOUND),
        ("twice", [], [upsertion(user), upsertion(user)], ErrorCode.DUPLICATE_RESOURCE),
    ):
        with broker.case(name):
            answer = broker.call(AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions))
            broker.expect_error(only(answer.results, "result").error_code, error)
    described = describe(broker, user)
    broker.expect_error(described.error_code, ErrorCode.RESOURCE_NOT_FOUND, what="DescribeUserScramCredentials")


def describe(broker: Broker, *users: str) -> Any:
    names = [DescribeUserScramCredentialsRequest.UserName(name=name) for name in users]
    answer = broker.call(DescribeUserScramCredentialsRequest(users=names))
    broker.expect_error(answer.error_code, ErrorCode.NONE, what="DescribeUserScramCredentials")
    return only(answer.results, "result")


@requirement(
    "SEC-19",
    notices="tool: kafka-configs --describe and user interfaces show wrong users, or none",
    source="KIP-554; ScramImage.describe",
    sentence="DescribeUserScramCredentials says each mechanism and iteration count of a user; a user without credentials is "
    "RESOURCE_NOT_FOUND, one that is named twice DUPLICATE_RESOURCE.",
    accepted="the credentials that were set; RESOURCE_NOT_FOUND(91), DUPLICATE_RESOURCE(92)",
    apis={"AlterUserScramCredentials": 0, "DescribeUserScramCredentials": 0},
)
def credentials_described(broker: Broker) -> None:
    user = broker.unused_name("user")
    broker.expect_error(describe(broker, user).error_code, ErrorCode.RESOURCE_NOT_FOUND, what="before")
    for mechanism in SCRAM:
        set_password(broker, user, PASSWORD, mechanism)

    def complete() -> bool:
        result = describe(broker, user)
        found = {each.mechanism: each.iterations for each in result.credential_infos}
        return result.error_code == ErrorCode.NONE and found == {1: ITERATIONS, 2: ITERATIONS}

    broker.eventually(complete, "both credentials are described")
    broker.expect_error(describe(broker, user, user).error_code, ErrorCode.DUPLICATE_RESOURCE, what="twice")
