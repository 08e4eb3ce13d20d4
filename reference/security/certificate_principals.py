"""The principal of a client certificate: its subject in Java's form, and `ssl.principal.mapping.rules` (KIP-371)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reference.security.errors import WrongSecurity

if TYPE_CHECKING:  # it is large, and only certificates of clients need it
    from cryptography.x509 import NameAttribute

DEFAULT_RULES = "DEFAULT"

KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
"""Attribute types that RFC 2253 names; Java writes other types as their number, with their values in hexadecimal."""

_ESCAPED = re.compile(r'([,+<>#;"\\=])')
_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))\s*(?:,|$)"
)
_GROUP = re.compile(r"\$(\d)")
_CASES: dict[str, Callable[[str], str]] = {"L": str.lower, "U": str.upper, "": str}


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule; DEFAULT has no pattern."""

    pattern: re.Pattern[str] | None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """The user name that the rule makes of a distinguished name; None if the pattern does not match all of it."""
        if self.pattern is None:
            return name
        if not self.pattern.fullmatch(name):
            return None
        return _CASES[self.case](self.pattern.sub(self.replacement, name))


def mapping_rules(text: str) -> list[Rule]:
    """The rules of ssl.principal.mapping.rules. Errors: WrongSecurity."""
    rules, at = list[Rule](), 0
    while at < len(text):
        found = _RULE.match(text, at)
        if found is None:
            raise WrongSecurity(
                f"ssl.principal.mapping.rules: '{text[at:]}' is neither DEFAULT nor RULE:PATTERN/REPLACEMENT/[LU]"
            )
        rules.append(_rule(found))
        at = found.end()
    return rules


def _rule(found: re.Match[str]) -> Rule:
    if found["default"]:
        return Rule(None)
    try:
        pattern = re.compile(found["pattern"])
        replacement = _GROUP.sub(r"\\g<\1>", found["replacement"])
        pattern.sub(replacement, "")
    except (re.error, IndexError) as error:
        raise WrongSecurity(f"ssl.principal.mapping.rules: RULE:{found['pattern']}: {error}") from error
    return Rule(pattern, replacement, found["case"])


def map_name(rules: Sequence[Rule], name: str) -> str | None:
    """The user name by the first rule that matches a distinguished name; None if no rule matches."""
    return next((mapped for rule in rules if (mapped := rule.apply(name)) is not None), None)


def distinguished_name(certificate: bytes) -> str:
    """The subject of a certificate (DER) in the form of RFC 2253 and `X500Principal.getName`: the last RDN first."""
    from cryptography import x509

    subject = x509.load_der_x509_certificate(certificate).subject
    return ",".join("+".join(_attribute(each) for each in rdn) for rdn in reversed(subject.rdns))


def _attribute(attribute: NameAttribute[str | bytes]) -> str:
    from cryptography.x509 import Name

    keyword = KEYWORDS.get(attribute.oid.dotted_string)
    if keyword is None:
        return f"{attribute.oid.dotted_string}=#{_value(Name([attribute]).public_bytes()).hex()}"
    value = attribute.value if isinstance(attribute.value, str) else attribute.value.decode("latin-1")
    escaped = _ESCAPED.sub(r"\\\1", value)
    if escaped.startswith(" "):
        escaped = "\\" + escaped
    if escaped.endswith(" ") and len(escaped) > 1:
        escaped = escaped[:-1] + "\\ "
    return f"{keyword}={escaped}"


def _value(name: bytes) -> bytes:
    """The DER encoding (tag, length, content) of the value in a name of one attribute."""
    inner = name
    for _ in range(3):
        inner = inner[_content(inner) :]
    return inner[_content(inner) + inner[1] :]  # the length of a type fits in one byte


def _content(element: bytes) -> int:
    """The offset of a DER element's content."""
    return 2 if element[1] < 0x80 else 2 + (element[1] & 0x7F)
