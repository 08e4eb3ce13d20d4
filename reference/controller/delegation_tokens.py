"""Delegation tokens: temporary credentials that an authenticated client requests and passes on (KIP-48, KIP-900, KIP-373).

A token has an id; its password is the HMAC of the id by the cluster's secret. The metadata have only the id, so every node with
the secret can check a token. The owner and renewers may extend a token up to its maximum lifetime; its bearer acts as the
owner. Decisions take the committed metadata, the requester's principal and the time, and return records and a response.
Source: org.apache.kafka.controller.DelegationTokenControlManager.
"""

from __future__ import annotations

import copy
import hmac
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from reference.controller.configs import Configuration
from reference.controller.decision import Decision
from reference.controller.image import MetadataImage
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from reference.protocol.messages.delegation_token_record import DelegationTokenRecord
from reference.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from reference.protocol.messages.remove_delegation_token_record import RemoveDelegationTokenRecord
from reference.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from reference.protocol.primitives import NO_TIMESTAMP, Buffer, TimestampMs

FIRST_LEVEL = 14
"""The metadata.version 3.6-IV2, the first with records of tokens (MetadataVersion.isDelegationTokenSupported)."""

FIRST_WITH_REQUESTER = 3
"""The first version of CreateDelegationToken and DescribeDelegationToken with a requester and an owner (KIP-373)."""

USER = "User"
LARGEST_TIMESTAMP = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """delegation.token.* of a node."""

    secret: str | None = field(repr=False)
    """None if tokens are disabled."""
    max_lifetime_ms: int
    renewed_for_ms: int
    """delegation.token.expiry.time.ms."""

    @classmethod
    def of(cls, configuration: Configuration) -> TokenSettings:
        """The settings of the node's file; an empty secret means None."""
        integer = configuration.integer
        return cls(
            configuration.static.get("delegation.token.secret.key") or None,
            integer("delegation.token.max.lifetime.ms"),
            integer("delegation.token.expiry.time.ms"),
        )

    def hmac(self, token_id: str) -> bytes:
        assert self.secret is not None
        return hmac.digest(self.secret.encode(), token_id.encode(), "sha512")


def tokens(image: MetadataImage) -> Iterator[DelegationTokenRecord]:
    """All tokens of the metadata."""
    for record in image.carried.values():
        if isinstance(record, DelegationTokenRecord):
            yield record


def token(image: MetadataImage, token_id: str) -> DelegationTokenRecord | None:
    found = image.carried.get((DelegationTokenRecord, token_id))
    return found if isinstance(found, DelegationTokenRecord) else None


def is_expired(record: DelegationTokenRecord, now: TimestampMs) -> bool:
    return record.max_timestamp < now or record.expiration_timestamp < now


def is_of(record: DelegationTokenRecord, principal: str) -> bool:
    """Whether the principal owns the token, or may renew it."""
    return principal == record.owner or principal in record.renewers


def concerns(record: DelegationTokenRecord, principal: str) -> bool:
    """Whether DescribeDelegationToken lists a token for a principal: also one that it requested for another owner, which it may
    not renew (TokenInformation.ownerOrRenewer)."""
    return principal == record.requester or is_of(record, principal)


def owner_of(body: CreateDelegationTokenRequest, requester: str) -> str:
    """The owner of a requested token: the requester, unless the request names another principal (KIP-373)."""
    if not body.owner_principal_name or body.owner_principal_type is None:
        return requester
    return f"{body.owner_principal_type}:{body.owner_principal_name}"


def created_for(version: int, owner: str, requester: str) -> CreateDelegationTokenResponse:
    """A response with the token's owner, and since version 3 also its requester."""
    response = CreateDelegationTokenResponse()
    response.principal_type, _, response.principal_name = owner.partition(":")
    if version >= FIRST_WITH_REQUESTER:
        response.token_requester_principal_type, _, response.token_requester_principal_name = requester.partition(":")
    return response


def refused(response: CreateDelegationTokenResponse, code: ErrorCode) -> CreateDelegationTokenResponse:
    """The response with an error and without a token."""
    response.error_code = code
    response.issue_timestamp_ms = response.expiry_timestamp_ms = response.max_timestamp_ms = NO_TIMESTAMP
    return response


def create_token(
    image: MetadataImage,
    settings: TokenSettings,
    requester: str,
    version: int,
    body: CreateDelegationTokenRequest,
    new_id: Callable[[], str],
    now: TimestampMs,
) -> Decision[CreateDelegationTokenResponse]:
    owner = owner_of(body, requester)
    response = created_for(version, owner, requester)
    try:
        _require_enabled(image, settings)
        if body.owner_principal_name and body.owner_principal_type is None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)  # half a principal: Kafka has no error for it
        if any(each.principal_type != USER for each in body.renewers):
            raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    except KafkaError as error:
        return Decision([], refused(response, error.code))
    lifetime_ms = min(settings.max_lifetime_ms, body.max_lifetime_ms) if body.max_lifetime_ms > 0 else None
    ends = _after(now, settings.max_lifetime_ms if lifetime_ms is None else lifetime_ms)
    record = DelegationTokenRecord(
        owner=owner,
        requester=requester,
        renewers=[f"{each.principal_type}:{each.principal_name}" for each in body.renewers],
        issue_timestamp=now,
        max_timestamp=ends,
        expiration_timestamp=min(ends, _after(now, settings.renewed_for_ms)),
        token_id=new_id(),
    )
    response.issue_timestamp_ms, response.max_timestamp_ms = record.issue_timestamp, record.max_timestamp
    response.expiry_timestamp_ms = record.expiration_timestamp
    response.token_id, response.hmac = record.token_id, settings.hmac(record.token_id)
    return Decision([record], response)


def renew_token(
    image: MetadataImage,
    settings: TokenSettings,
    requester: str,
    body: RenewDelegationTokenRequest,
    now: TimestampMs,
) -> Decision[RenewDelegationTokenResponse]:
    """Extend a token's expiry time, counted from now."""
    try:
        found = _of_hmac(image, settings, body.hmac)
        if is_expired(found, now):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        _require_of(found, requester)
    except KafkaError as error:
        return Decision([], RenewDelegationTokenResponse(error_code=error.code))
    asked = body.renew_period_ms
    changed = _until(found, _after(now, min(settings.renewed_for_ms, asked) if asked > 0 else settings.renewed_for_ms))
    return Decision([changed], RenewDelegationTokenResponse(expiry_timestamp_ms=changed.expiration_timestamp))


def expire_token(
    image: MetadataImage,
    settings: TokenSettings,
    requester: str,
    body: ExpireDelegationTokenRequest,
    now: TimestampMs,
) -> Decision[ExpireDelegationTokenResponse]:
    """Set a token's expiry time, counted from now; a negative period removes the token at once."""
    try:
        found = _of_hmac(image, settings, body.hmac)
        _require_of(found, requester)
        if body.expiry_time_period_ms < 0:
            removal = RemoveDelegationTokenRecord(token_id=found.token_id)
            return Decision([removal], ExpireDelegationTokenResponse(expiry_timestamp_ms=now))
        if is_expired(found, now):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    except KafkaError as error:
        return Decision([], ExpireDelegationTokenResponse(error_code=error.code))
    changed = _until(found, _after(now, body.expiry_time_period_ms))
    return Decision([changed], ExpireDelegationTokenResponse(expiry_timestamp_ms=changed.expiration_timestamp))


def remove_expired(image: MetadataImage, now: TimestampMs) -> Decision[None]:
    """Remove expired tokens; the controller does so every delegation.token.expiry.check.interval.ms."""
    over = [each.token_id for each in tokens(image) if is_expired(each, now)]
    return Decision([RemoveDelegationTokenRecord(token_id=each) for each in over], None)


def _require_enabled(image: MetadataImage, settings: TokenSettings) -> None:
    """Check that tokens are enabled and supported. Errors: KafkaError."""
    if settings.secret is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    if image.metadata_level < FIRST_LEVEL:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


def _of_hmac(image: MetadataImage, settings: TokenSettings, wanted: Buffer) -> DelegationTokenRecord:
    """The token with an HMAC. Errors: KafkaError."""
    _require_enabled(image, settings)
    for record in tokens(image):
        if hmac.compare_digest(settings.hmac(record.token_id), bytes(wanted)):
            return record
    raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)


def _require_of(record: DelegationTokenRecord, requester: str) -> None:
    """Check that the requester owns or may renew the token. Errors: KafkaError."""
    if not is_of(record, requester):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _until(record: DelegationTokenRecord, time: TimestampMs) -> DelegationTokenRecord:
    changed = copy.copy(record)
    changed.expiration_timestamp = min(record.max_timestamp, time)
    return changed


def _after(now: TimestampMs, duration_ms: int) -> TimestampMs:
    return TimestampMs(min(LARGEST_TIMESTAMP, now + duration_ms))
