"""Bugs in authentication: clients that the broker admits, or keeps, although it must not."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from linearizability.mutants.registry import mutant
from reference.controller import delegation_tokens
from reference.node import sasl_mechanisms
from reference.node.authentication import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from reference.protocol.apis import APIS
from reference.protocol.errors import KafkaError


@mutant(
    "reference.node.authentication:SaslSession._lifetime_ms",
    "A session goes on after the end of the token that it began with, and one begins with a token that has ended.",
    caught_by=("SEC-25", "SEC-29"),
)
def expired_token_taken(original: Any, session: Any, credential_ends: int | None, now: int) -> int | None:
    return original(session, None, now)


@mutant(
    "reference.controller.delegation_tokens:_require_of",
    "Any user that knows a token's HMAC renews it and ends it.",
    caught_by=("SEC-22", "SEC-23"),
)
def token_renewed_by_anyone(original: Any, record: Any, requester: str) -> None:
    return None


@mutant(
    "reference.node.delegation_tokens:_may_ask",
    "A client that has authenticated by a token gets further tokens, so that its right never ends.",
    caught_by=("SEC-24",),
)
def token_for_a_token(original: Any, configuration: Any, client: Any) -> bool:
    return True


@mutant(
    "reference.controller.delegation_tokens:token",
    "A token that was ended is still taken: what was known of it is kept.",
    caught_by=("SEC-23",),
)
def removed_token_taken(original: Any, image: Any, token_id: str) -> Any:
    known = _KNOWN.setdefault(id(image), {})
    found = original(image, token_id)
    return known.setdefault(token_id, found) if found is not None else known.get(token_id)


_KNOWN: dict[int, dict[Any, Any]] = {}
"""Id of an image or an authenticator -> credentials that were removed or replaced since; bugs still accept these."""


@mutant(
    "reference.node.authentication:Authenticator._credential",
    "After a change of its password a user logs in by the old one.",
    caught_by=("SEC-12",),
)
def old_password_taken(original: Any, authenticator: Any, user: str, mechanism: int) -> Any:
    known = _KNOWN.setdefault(id(authenticator), {})
    found = original(authenticator, user, mechanism)
    return found if found is None else known.setdefault((user, mechanism), found)


@mutant(
    "reference.node.scram_credentials:_record",
    "A credential with few iterations is taken, which a reader of the metadata soon breaks.",
    caught_by=("SEC-18",),
)
def weak_scram_credential(original: Any, image: Any, change: Any) -> Any:
    try:
        return original(image, change)
    except KafkaError as error:
        if "few iterations" not in (error.message or ""):
            raise
        salted = bytes(change.salted_password)
        return sasl_mechanisms.credential(change.name, change.mechanism, bytes(change.salt), change.iterations, salted)


@mutant(
    "reference.node.authentication:SaslSession.handshake",
    "A client that authenticates again may choose a weaker mechanism than before.",
    caught_by=("SEC-17",),
)
def mechanism_changed(original: Any, session: Any, body: Any, version: int) -> Any:
    if body.mechanism in session.settings.mechanisms:
        session._name = body.mechanism
    return original(session, body, version)


@mutant(
    "reference.controller.delegation_tokens:_until",
    "A token is renewed beyond its largest lifetime.",
    caught_by=("SEC-22",),
)
def token_renewed_for_ever(original: Any, record: Any, time: int) -> Any:
    changed = original(record, time)
    changed.expiration_timestamp = delegation_tokens.TimestampMs(time)
    return changed


@mutant(
    "reference.controller.delegation_tokens:renew_token",
    "A token is renewed from its issue on, and not from now on.",
    caught_by=("SEC-22",),
)
def token_renewed_from_its_issue(original: Any, image: Any, settings: Any, requester: str, body: Any, now: int) -> Any:
    try:
        issued = delegation_tokens._of_hmac(image, settings, body.hmac).issue_timestamp
    except KafkaError:
        issued = now
    return original(image, settings, requester, body, issued)


@mutant(
    "reference.security.signed_tokens:_signed_claims",
    "A token of OAUTHBEARER counts without a look at its signature.",
    caught_by=("SEC-28",),
)
def unsigned_token_taken(original: Any, token: str, keys: Any) -> Any:
    _, body, _ = token.split(".")
    return json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))


@mutant(
    "reference.security.signed_tokens:_check_audience",
    "A token that was made for other services is taken.",
    caught_by=("SEC-28",),
)
def token_of_another_audience(original: Any, audience: Any, expected: Any) -> None:
    return None


@mutant(
    "reference.node.sasl_mechanisms:_check_acts_as",
    "A user that knows its own password is served under the name of another.",
    caught_by=("SEC-07", "SEC-31"),
)
def scram_acts_as_anyone(original: Any, acts_as: str, user: str) -> None:
    return None


@mutant(
    "reference.node.sasl_mechanisms:Scram._first",
    "A client of SCRAM that asks for channel binding believes that it has got it.",
    caught_by=("SEC-30",),
)
def channel_binding_ignored(original: Any, mechanism: Any, text: str) -> str:
    return original(mechanism, re.sub(r"^p=[^,]*", "n", text))


def _asked(frame: Any) -> tuple[int, int]:
    """The API key and version of a request."""
    return int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")


@mutant(
    "reference.node.reception:Reception._authenticate",
    "The session of a client whose SaslAuthenticate is too old to learn of its end has none.",
    caught_by=("SEC-39",),
)
def old_session_without_end(original: Any, reception: Any, client: Any, sasl: Any, frame: Any, now: int) -> None:
    original(reception, client, sasl, frame, now)
    if _asked(frame) == (SASL_AUTHENTICATE, 0):
        sasl.expires_at = None


@mutant(
    "reference.node.reception:Reception._authenticate",
    "A SaslHandshake of a version that does not exist is taken for the newest.",
    caught_by=("SEC-38",),
)
def handshake_of_any_version(original: Any, reception: Any, client: Any, sasl: Any, frame: Any, now: int) -> None:
    key, version = _asked(frame)
    if key == SASL_HANDSHAKE and version > 1:
        frame = bytes(frame[:2]) + (1).to_bytes(2, "big") + bytes(frame[4:])
    original(reception, client, sasl, frame, now)


@mutant(
    "reference.node.reception:Reception._authenticate",
    "A client that asks for the versions in a newer version than is known is closed before it authenticates.",
    caught_by=("SEC-35",),
)
def newer_clients_closed(original: Any, reception: Any, client: Any, sasl: Any, frame: Any, now: int) -> None:
    key, version = _asked(frame)
    if key == API_VERSIONS and version > APIS[API_VERSIONS].request.VERSIONS.highest:
        frame = b"\x7f\xff" + bytes(frame[2:])
    original(reception, client, sasl, frame, now)
