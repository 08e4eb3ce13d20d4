"""The server's side of SASL mechanisms: each takes a client's message and returns the answer.

SCRAM is implemented here, not by the library for connections to other nodes (scramp). That library refuses salts below 12
bytes, which Kafka's credentials may have, and normalizes user names (RFC 4013), which Kafka does not.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from reference.node.listeners import PLAIN, SCRAM, SaslSettings
from reference.protocol.messages.user_scram_credential_record import UserScramCredentialRecord
from reference.protocol.primitives import TimestampMs

PLAIN_PARTS = 3
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MIN_ITERATIONS = 4096

NAMES = {number: name for name, number in SCRAM.items()}
BY_TOKEN = "tokenauth=true"
"""The extension of SCRAM's first message with which the user name is a delegation token's id (KIP-48)."""


@dataclass(frozen=True, slots=True)
class Token:
    """A delegation token's data for SCRAM."""

    credential: UserScramCredentialRecord
    owner: str
    """The principal as which its bearer acts."""
    expires_at: TimestampMs


@dataclass(frozen=True, slots=True)
class Credentials:
    """Finds credentials by a name and a mechanism's number; each function returns None if there is none."""

    of_user: Callable[[str, int], UserScramCredentialRecord | None]
    of_token: Callable[[str, int], Token | None]
    """Takes a token's id."""


class Refused(Exception):
    """The authentication failed. `said` is the message for the client; None if it would reveal users."""

    def __init__(self, reason: str, said: str | None = None) -> None:
        super().__init__(reason)
        self.said = said


class Mechanism(Protocol):
    """One exchange."""

    user: str | None
    """The authenticated user; None before the end of the exchange."""
    by_token: bool
    """Whether the user authenticated by a delegation token."""
    expires_at: TimestampMs | None
    """The expiry time of the client's credential; None for never."""

    def answer(self, message: bytes, now: TimestampMs) -> bytes:
        """The answer to a client's message. Errors: Refused."""
        ...


class Plain:
    """PLAIN (RFC 4616), as in org.apache.kafka.common.security.plain.internals.PlainSaslServer."""

    def __init__(self, settings: SaslSettings) -> None:
        self._settings = settings
        self.user: str | None = None
        self.by_token = False
        self.expires_at: TimestampMs | None = None

    def answer(self, message: bytes, now: TimestampMs) -> bytes:
        parts = message.decode(errors="replace").split("\0")
        if len(parts) != PLAIN_PARTS:
            wrong = f"Invalid SASL/PLAIN response: expected {PLAIN_PARTS} tokens, got {len(parts)}"
            raise Refused(wrong, wrong)
        acts_as, user, password = parts
        if not user or not password:
            raise Refused("no user name or no password is given")
        known = self._settings.password_of(user)
        if known is None or not hmac.compare_digest(known.encode(), password.encode()):
            wrong = "Authentication failed: Invalid username or password"
            raise Refused(wrong, wrong)
        _check_acts_as(acts_as, user)
        self.user = user
        return b""


def _check_acts_as(acts_as: str, user: str) -> None:
    if acts_as not in ("", user):
        other = "Authentication failed: Client requested an authorization id that is different from username"
        raise Refused(other, other)


_NAME = r"(?:[^=,\x00]|=2C|=3D)+"
_FIRST = re.compile(
    rf"(?P<header>n,(?:a=(?P<acts_as>{_NAME}))?,)(?P<bare>n=(?P<user>{_NAME}),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?P<extensions>(?:,[A-Za-z]+=[^,\x00]+)*))"
)
_FINAL = re.compile(
    r"(?P<unproved>c=(?P<header>[A-Za-z0-9/+]+=*),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-z]+=[^,\x00]+)*),p=(?P<proof>[A-Za-z0-9/+]+=*)"
)


@dataclass(slots=True)
class _Begun:
    """The contents of the first two messages, and the credential that verifies the last one."""

    header: str
    messages: str
    nonce: str
    user: str
    credential: UserScramCredentialRecord


class Scram:
    """SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677) without channel binding."""

    def __init__(self, name: str, credentials: Credentials, nonce: str) -> None:
        self._hash, self._number = HASHES[name], SCRAM[name]
        self._credentials = credentials
        self._nonce = nonce
        self._begun: _Begun | None = None
        self.user: str | None = None
        self.by_token = False
        self.expires_at: TimestampMs | None = None

    def answer(self, message: bytes, now: TimestampMs) -> bytes:
        try:
            text = message.decode()
        except UnicodeDecodeError:
            raise Refused("a message of SCRAM is no text") from None
        return (self._first(text) if self._begun is None else self._final(self._begun, text)).encode()

    def _first(self, text: str) -> str:
        found = _FIRST.fullmatch(text)
        if found is None:
            raise Refused("the first message of SCRAM cannot be read")
        user = name = _unescaped(found["user"])
        self.by_token = BY_TOKEN in found["extensions"].lower().split(",")
        if self.by_token:
            token = self._credentials.of_token(name, self._number)
            credential = None if token is None else token.credential
            if token is not None:
                user, self.expires_at = token.owner.partition(":")[2], token.expires_at
        else:
            credential = self._credentials.of_user(name, self._number)
        if credential is None:
            raise Refused(
                f"{'the token' if self.by_token else 'the user'} {name!r} has no SCRAM credential of this mechanism"
            )
        _check_acts_as(_unescaped(found["acts_as"] or ""), name)
        if credential.iterations < MIN_ITERATIONS:
            raise Refused(f"the credential has {credential.iterations} iterations, less than {MIN_ITERATIONS}")
        nonce = found["nonce"] + self._nonce
        answer = f"r={nonce},s={base64.b64encode(credential.salt).decode()},i={credential.iterations}"
        self._begun = _Begun(found["header"], f"{found['bare']},{answer}", nonce, user, credential)
        return answer

    def _final(self, begun: _Begun, text: str) -> str:
        found = _FINAL.fullmatch(text)
        if found is None or self.user is not None:
            raise Refused("the last message of SCRAM cannot be read")
        if found["nonce"] != begun.nonce or _bytes(found["header"]) != begun.header.encode():
            raise Refused("the last message of SCRAM belongs to another exchange")
        messages = f"{begun.messages},{found['unproved']}".encode()
        signature = self._mac(begun.credential.stored_key, messages)
        proof = _bytes(found["proof"])
        key = bytes(one ^ other for one, other in zip(proof, signature, strict=False))
        stored = hashlib.new(self._hash, key).digest()
        if len(proof) != len(signature) or not hmac.compare_digest(stored, bytes(begun.credential.stored_key)):
            raise Refused("the password is wrong")
        self.user = begun.user
        return f"v={base64.b64encode(self._mac(begun.credential.server_key, messages)).decode()}"

    def _mac(self, key: bytes | bytearray | memoryview, data: bytes) -> bytes:
        return hmac.digest(bytes(key), data, self._hash)


def credential(
    name: str, mechanism: int, salt: bytes, iterations: int, salted_password: bytes
) -> UserScramCredentialRecord:
    """A credential, which verifies a password and proves that the server knows it (RFC 5802, section 3)."""
    hash_name = HASHES[NAMES[mechanism]]
    client_key = hmac.digest(salted_password, b"Client Key", hash_name)
    return UserScramCredentialRecord(
        name=name,
        mechanism=mechanism,
        salt=salt,
        stored_key=hashlib.new(hash_name, client_key).digest(),
        server_key=hmac.digest(salted_password, b"Server Key", hash_name),
        iterations=iterations,
    )


@lru_cache(maxsize=1024)
def token_credential(token_hmac: bytes, token_id: str, mechanism: int) -> UserScramCredentialRecord:
    """The credential of a token, whose password is its HMAC in base64 (DelegationTokenManager.prepareScramCredentials).

    Kafka uses a random salt; here it is the HMAC of the id, so that the credential depends only on the token.
    """
    hash_name = HASHES[NAMES[mechanism]]
    salt = hmac.digest(token_hmac, token_id.encode(), "sha256")
    salted = hashlib.pbkdf2_hmac(hash_name, base64.b64encode(token_hmac), salt, MIN_ITERATIONS)
    return credential(token_id, mechanism, salt, MIN_ITERATIONS, salted)


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _bytes(text: str) -> bytes:
    """The bytes of a base64 text. Errors: Refused."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise Refused("a message of SCRAM is not in base64") from None


def new_mechanism(name: str, settings: SaslSettings, credentials: Credentials, nonce: str) -> Mechanism:
    """A new exchange; `nonce` is the server's part, which must be unpredictable."""
    return Plain(settings) if name == PLAIN else Scram(name, credentials, nonce)
