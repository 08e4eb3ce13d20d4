"""SEC: setting and describing SCRAM credentials."""

from __future__ import annotations

from typing import Any

from conformance.answers import only
from conformance.broker import Broker
from conformance.requirement import WITHOUT_ZOOKEEPER, requirement
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

CREDENTIALS = {"AlterUserScramCredentials": 0, "DescribeUserScramCredentials": 0}


def upsertion(name: str, mechanism: int = 1, iterations: int = ITERATIONS) -> Any:
    """A credential to set. Its salted password is as long as the mechanism's hash, which a broker may check."""
    length = 64 if mechanism == SCRAM["SCRAM-SHA-512"][0] else 32
    return AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=SALT, salted_password=bytes(length)
    )


def deletion(name: str, mechanism: int = 1) -> Any:
    return AlterUserScramCredentialsRequest.ScramCredentialDeletion(name=name, mechanism=mechanism)


@requirement(
    "SEC-18",
    notices=EXPOSED,
    source="KIP-554; ScramControlManager.alterCredentials",
    sentence="AlterUserScramCredentials refuses, user by user, what it cannot do: iterations below 4096 or above 16384, an "
    "empty user name, an unknown mechanism, a deletion of what is not there, the same credential twice.",
    accepted="UNACCEPTABLE_CREDENTIAL(93), UNSUPPORTED_SASL_MECHANISM(33), RESOURCE_NOT_FOUND(91), DUPLICATE_RESOURCE(92)",
    apis=CREDENTIALS,
)
def credentials_refused(broker: Broker) -> None:
    user = broker.unused_name("user")
    for name, deletions, upsertions, error in (
        ("too few iterations", [], [upsertion(user, iterations=4095)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ("too many iterations", [], [upsertion(user, iterations=16_385)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ("no user name", [], [upsertion("")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ("unknown mechanism", [], [upsertion(user, mechanism=3)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ("nothing to delete", [deletion(user)], [], ErrorCode.RESOURCE_NOT_FOUND),
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
    apis=CREDENTIALS,
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


# ---- requests for several users


def altered(broker: Broker, upsertions: list[Any], deletions: list[Any]) -> dict[str, int]:
    """Change credentials; return the error of each user."""
    answer = broker.call(AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions))
    codes = {each.user: each.error_code for each in answer.results}
    broker.expect_equal("the number of results, one for each user", len(answer.results), len(codes))
    return codes


def iterations_of(broker: Broker, user: str) -> dict[int, int]:
    """Mechanism -> iterations of a user's credentials; empty if the user has none."""
    return {each.mechanism: each.iterations for each in describe(broker, user).credential_infos}


@requirement(
    "SEC-41",
    notices="tool: one wrong user of kafka-configs hinders the others, or is believed to be set",
    source="KIP-554; ScramControlManager.alterCredentials",
    sentence="AlterUserScramCredentials answers once for each user: one that is refused hinders no other.",
    accepted="UNACCEPTABLE_CREDENTIAL(93) for the one, error NONE(0) for the other, whose credential is described",
    apis=CREDENTIALS,
)
def each_user_by_itself(broker: Broker) -> None:
    bad, good = broker.unused_name("user"), broker.unused_name("user")
    codes = altered(broker, [upsertion(bad, iterations=1), upsertion(good)], [])
    broker.expect_equal("the errors by user", codes, {bad: ErrorCode.UNACCEPTABLE_CREDENTIAL, good: ErrorCode.NONE})
    broker.eventually(lambda: iterations_of(broker, good) == {1: ITERATIONS}, "the other user's is described")
    broker.expect_equal("the credentials of the refused user", iterations_of(broker, bad), {})


@requirement(
    "SEC-42",
    notices="tool: kafka-configs reports an error for a user whose password it has changed",
    source="KIP-554; ScramControlManager.alterCredentials",
    sentence="A user that one request alters twice, for two mechanisms or to set and delete, is refused, and keeps the "
    "credentials that it had.",
    accepted="DUPLICATE_RESOURCE(92) once for the user, and the credential that was there before",
    since=WITHOUT_ZOOKEEPER,
    kraft=True,  # brokers with ZooKeeper accept more
    apis=CREDENTIALS,
)
def altered_twice(broker: Broker) -> None:
    user, other = broker.unused_name("user"), broker.unused_name("user")
    altered(broker, [upsertion(user, 1)], [])
    broker.eventually(lambda: iterations_of(broker, user) == {1: ITERATIONS}, "the credential is described")
    for name, upsertions, deletions in (
        ("two mechanisms", [upsertion(user, 1, 8192), upsertion(user, 2)], []),
        ("one set, the other deleted", [upsertion(user, 2)], [deletion(user, 1)]),
        ("set and deleted", [upsertion(user, 1, 8192)], [deletion(user, 1)]),
    ):
        with broker.case(name):
            codes = altered(broker, upsertions, deletions)
            broker.expect_equal("the errors by user", codes, {user: ErrorCode.DUPLICATE_RESOURCE})
    altered(broker, [upsertion(other)], [])
    broker.eventually(lambda: iterations_of(broker, other) == {1: ITERATIONS}, "a later request is carried out")
    broker.expect_equal("the credentials", iterations_of(broker, user), {1: ITERATIONS})


@requirement(
    "SEC-43",
    notices="tool: kafka-configs --describe without a name shows no users, or only some",
    source="KIP-554; ScramImage.describe",
    sentence="DescribeUserScramCredentials without names, or with none, describes all users that have credentials.",
    accepted="both users with their mechanisms, and not one whose credential was deleted",
    apis=CREDENTIALS,
)
def all_users(broker: Broker) -> None:
    one, other, gone = (broker.unused_name("user") for _ in range(3))
    altered(broker, [upsertion(one, 1), upsertion(other, 2), upsertion(gone, 1)], [])
    broker.eventually(lambda: iterations_of(broker, gone) == {1: ITERATIONS}, "the credentials are described")
    altered(broker, [], [deletion(gone)])
    broker.eventually(lambda: iterations_of(broker, gone) == {}, "the third user's is deleted")
    cases: tuple[tuple[str, list[DescribeUserScramCredentialsRequest.UserName] | None], ...]
    cases = (("null", None), ("an empty list", []))
    for name, users in cases:
        with broker.case(name):
            answer = broker.call(DescribeUserScramCredentialsRequest(users=users))
            broker.expect_error(answer.error_code, ErrorCode.NONE)
            seen = {each.user: [info.mechanism for info in each.credential_infos] for each in answer.results}
            ours = {user: mechanisms for user, mechanisms in seen.items() if user in (one, other, gone)}
            broker.expect_equal("the users described, of the three", ours, {one: [1], other: [2]})
