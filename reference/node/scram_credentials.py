"""SCRAM credentials of users: DescribeUserScramCredentials and AlterUserScramCredentials (KIP-554).

Source: org.apache.kafka.image.ScramImage, org.apache.kafka.controller.ScramControlManager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from reference.controller.image import MetadataImage
from reference.node.requests import Request
from reference.node.sasl_mechanisms import MIN_ITERATIONS, NAMES, credential
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from reference.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from reference.protocol.messages.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
from reference.protocol.messages.user_scram_credential_record import UserScramCredentialRecord
from reference.protocol.primitives import TimestampMs
from reference.protocol.schema import Message

if TYPE_CHECKING:
    from reference.node.active_controller import ActiveController

MAX_ITERATIONS = 16_384
Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
Described = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
Result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult


def _credentials(image: MetadataImage) -> Iterator[UserScramCredentialRecord]:
    for record in image.carried.values():
        if isinstance(record, UserScramCredentialRecord):
            yield record


def describe_user_scram_credentials(
    image: MetadataImage, request: Request, body: DescribeUserScramCredentialsRequest, now: TimestampMs
) -> DescribeUserScramCredentialsResponse:
    """The mechanisms and iterations of users' credentials; of all users if the request names none."""
    found: dict[str, list[DescribeUserScramCredentialsResponse.CredentialInfo]] = {}
    for record in _credentials(image):
        info = DescribeUserScramCredentialsResponse.CredentialInfo(
            mechanism=record.mechanism, iterations=record.iterations
        )
        found.setdefault(record.name, []).append(info)
    named = Counter(each.name for each in body.users or ())
    results = [_described(name, named[name], found) for name in named or found]
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


def _described(
    name: str, times: int, found: dict[str, list[DescribeUserScramCredentialsResponse.CredentialInfo]]
) -> Described:
    if times > 1:
        twice = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return Described(user=name, error_code=ErrorCode.DUPLICATE_RESOURCE, error_message=twice)
    if name not in found:
        missing = f"Attempt to describe a user credential that does not exist: {name}"
        return Described(user=name, error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message=missing)
    infos = sorted(found[name], key=lambda each: each.mechanism)
    return Described(user=name, error_message=None, credential_infos=infos)


def alter_user_scram_credentials(
    controller: ActiveController, version: int, body: AlterUserScramCredentialsRequest, now: TimestampMs
) -> AlterUserScramCredentialsResponse:
    """Set and delete credentials. No password is stored, and a user may be altered only once in a request."""
    results: dict[str, Result] = {}
    records: dict[str, Message] = {}
    for change in (*body.deletions, *body.upsertions):
        if change.name in results and results[change.name].error_code != ErrorCode.NONE:
            continue
        try:
            if change.name in records:
                del records[change.name]
                raise KafkaError(
                    ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
                )
            records[change.name] = _record(controller.image, change)
            results[change.name] = Result(user=change.name, error_message=None)
        except KafkaError as error:
            results[change.name] = Result(user=change.name, error_code=error.code, error_message=error.message)
    controller.append([*records.values()], now)
    return AlterUserScramCredentialsResponse(results=[*results.values()])


def _record(image: MetadataImage, change: Deletion | Upsertion) -> Message:
    """The record of one change. Errors: KafkaError."""
    if not change.name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if change.mechanism not in NAMES:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, Deletion):
        if (UserScramCredentialRecord, (change.name, change.mechanism)) not in image.carried:
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
        return RemoveUserScramCredentialRecord(name=change.name, mechanism=change.mechanism)
    if not MIN_ITERATIONS <= change.iterations <= MAX_ITERATIONS:
        few = "few" if change.iterations < MIN_ITERATIONS else "many"
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Too {few} iterations")
    if not change.salted_password:  # the key of an HMAC, for which Java refuses an empty one
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Empty salted password")
    return credential(
        change.name, change.mechanism, bytes(change.salt), change.iterations, bytes(change.salted_password)
    )
