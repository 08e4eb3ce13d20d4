"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken and DescribeDelegationToken, and their access control.

A client needs CreateTokens on other users to create tokens for them (KIP-373). Owners and renewers see their tokens;
others need Describe on the token or DescribeTokens on its owner.
Source: kafka.server.KafkaApis, ControllerApis (handle…DelegationToken…, allowTokenRequests).
"""

from __future__ import annotations

from typing import Any

from reference.controller import delegation_tokens as tokens
from reference.controller.configs import Configuration
from reference.controller.decision import Decision
from reference.controller.delegation_tokens import FIRST_WITH_REQUESTER, TokenSettings
from reference.node.access import Access, Admission
from reference.node.active_controller import ActiveController
from reference.node.context import Context
from reference.node.listeners import PLAINTEXT, protocols_of
from reference.node.principals import ANONYMOUS
from reference.node.refusals import refusal
from reference.node.requests import Client, Request
from reference.protocol.acls import Operation, ResourceType
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from reference.protocol.messages.delegation_token_record import DelegationTokenRecord
from reference.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from reference.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from reference.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from reference.protocol.primitives import TimestampMs
from reference.protocol.schema import Message

NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


# ---- who may ask


def check_tokens(access: Access, request: Request, body: Any, admission: Admission) -> None:
    """The step of all four APIs: the client must have authenticated, and not by a token."""
    if not _may_ask(access.configuration, request.client):
        admission.refusal = _refusal(request, body, NOT_ALLOWED)
    elif isinstance(body, CreateDelegationTokenRequest):
        owner = tokens.owner_of(body, request.client.principal)
        if owner != request.client.principal and not access.may(
            request, Operation.CREATE_TOKENS, ResourceType.USER, owner
        ):
            admission.refusal = _refusal(request, body, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)


def _may_ask(configuration: Configuration, client: Client) -> bool:
    """Whether the client may request tokens. A forwarded request was checked by the broker, on the client's listener."""
    if client.by_token:
        return False
    protocol = protocols_of(configuration.static).get(client.listener)
    return protocol != PLAINTEXT and not (protocol == "SSL" and client.principal == ANONYMOUS)


def _refusal(request: Request, body: Message, code: ErrorCode) -> Message:
    if isinstance(body, CreateDelegationTokenRequest):
        requester = request.client.principal
        return tokens.refused(tokens.created_for(request.version, tokens.owner_of(body, requester), requester), code)
    return refusal(request.key, request.version, body, code)


# ---- on the active controller


def create_token(
    controller: ActiveController, version: int, body: CreateDelegationTokenRequest, now: TimestampMs
) -> Message:
    made = tokens.create_token(
        controller.image,
        TokenSettings.of(controller.configuration),
        controller.requester,
        version,
        body,
        controller.new_id,
        now,
    )
    return _made(controller, made, now)


def renew_token(
    controller: ActiveController, version: int, body: RenewDelegationTokenRequest, now: TimestampMs
) -> Message:
    settings = TokenSettings.of(controller.configuration)
    return _made(controller, tokens.renew_token(controller.image, settings, controller.requester, body, now), now)


def expire_token(
    controller: ActiveController, version: int, body: ExpireDelegationTokenRequest, now: TimestampMs
) -> Message:
    settings = TokenSettings.of(controller.configuration)
    return _made(controller, tokens.expire_token(controller.image, settings, controller.requester, body, now), now)


def _made(controller: ActiveController, decision: Decision[Any], now: TimestampMs) -> Message:
    controller.append(decision.records, now)
    return decision.response


# ---- on every node


def describe_tokens(
    context: Context, request: Request, body: DescribeDelegationTokenRequest, now: TimestampMs
) -> DescribeDelegationTokenResponse:
    """The tokens that the client may see, of these owners and renewers, or of all if the request names none."""
    settings = TokenSettings.of(context.configuration)
    if settings.secret is None:
        return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    named = [f"{each.principal_type}:{each.principal_name}" for each in body.owners or ()]
    shown = [
        _described(settings, request.version, record)
        for record in tokens.tokens(context.image)
        if (body.owners is None or any(tokens.concerns(record, each) for each in named))
        and _is_shown(context.access, request, record)
    ]
    return DescribeDelegationTokenResponse(tokens=shown)


def _is_shown(access: Access, request: Request, record: DelegationTokenRecord) -> bool:
    return (
        tokens.concerns(record, request.client.principal)
        or access.may(request, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, record.token_id)
        or access.may(request, Operation.DESCRIBE_TOKENS, ResourceType.USER, record.owner)
    )


def _described(
    settings: TokenSettings, version: int, record: DelegationTokenRecord
) -> DescribeDelegationTokenResponse.DescribedDelegationToken:
    owner_type, _, owner = record.owner.partition(":")
    requester_type, _, requester = record.requester.partition(":") if version >= FIRST_WITH_REQUESTER else ("", "", "")
    renewer = DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer
    pairs = [each.partition(":")[::2] for each in record.renewers]
    return DescribeDelegationTokenResponse.DescribedDelegationToken(
        principal_type=owner_type,
        principal_name=owner,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester,
        issue_timestamp=record.issue_timestamp,
        expiry_timestamp=record.expiration_timestamp,
        max_timestamp=record.max_timestamp,
        token_id=record.token_id,
        hmac=settings.hmac(record.token_id),
        renewers=[renewer(principal_type=kind, principal_name=name) for kind, name in pairs],
    )
