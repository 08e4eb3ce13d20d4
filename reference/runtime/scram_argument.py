"""`--add-scram`: a user's first credential, as `kafka-storage format` takes it (KIP-900).

SCRAM-SHA-256=[name=alice,password=secret]
SCRAM-SHA-512=[name=alice,iterations=8192,salt="BASE64",saltedpassword="BASE64"]
"""

from __future__ import annotations

import base64
import hashlib
import os
import re

from reference.node.listeners import SCRAM
from reference.node.sasl_mechanisms import HASHES, MIN_ITERATIONS, credential
from reference.node.scram_credentials import MAX_ITERATIONS
from reference.protocol.messages.user_scram_credential_record import UserScramCredentialRecord
from reference.security.errors import WrongSecurity

SALT_BYTES = 26
NAMES = {"name", "password", "iterations", "salt", "saltedpassword"}
_ARGUMENT = re.compile(r"\s*([\w-]+)\s*=\s*\[(.*)\]\s*", re.DOTALL)
_FIELD = re.compile(r'\s*(\w+)\s*=\s*(?:"([^"]*)"|([^,]*?))\s*(?:,|$)')


def read_credential(text: str) -> UserScramCredentialRecord:
    """The credential of one argument. Errors: WrongSecurity, without the argument's text."""
    found = _ARGUMENT.fullmatch(text)
    if found is None or found[1] not in SCRAM:
        raise WrongSecurity(f"--add-scram is none of {', '.join(f'{name}=[name=...,password=...]' for name in SCRAM)}")
    mechanism, fields = found[1], _fields(found[2])
    name = fields.get("name", "")
    if not name or ("password" in fields) == ("saltedpassword" in fields):
        raise WrongSecurity("--add-scram needs a name, and either a password or a saltedpassword")
    iterations = _number(fields.get("iterations", str(MIN_ITERATIONS)))
    if "saltedpassword" in fields:
        salt, salted = _bytes(fields, "salt"), _bytes(fields, "saltedpassword")
    else:
        salt = _bytes(fields, "salt") if "salt" in fields else os.urandom(SALT_BYTES)
        salted = hashlib.pbkdf2_hmac(HASHES[mechanism], fields["password"].encode(), salt, iterations)
    return credential(name, SCRAM[mechanism], salt, iterations, salted)


def _fields(text: str) -> dict[str, str]:
    fields, at = dict[str, str](), 0
    while at < len(text):
        found = _FIELD.match(text, at)
        if found is None or found[1] not in NAMES:
            raise WrongSecurity(f"--add-scram takes {', '.join(sorted(NAMES))}, each as NAME=VALUE")
        fields[found[1]] = found[2] if found[2] is not None else found[3]
        at = found.end()
    return fields


def _number(text: str) -> int:
    iterations = int(text) if text.isascii() and text.isdigit() else 0
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise WrongSecurity(f"--add-scram: iterations must be between {MIN_ITERATIONS} and {MAX_ITERATIONS}")
    return iterations


def _bytes(fields: dict[str, str], name: str) -> bytes:
    try:
        found = base64.b64decode(fields.get(name, ""), validate=True)
    except ValueError:
        found = b""
    if not found:
        raise WrongSecurity(f"--add-scram: {name} is not in base64")
    return found
