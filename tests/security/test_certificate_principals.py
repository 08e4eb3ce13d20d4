"""Principals of certificates: Java's form of a subject, and Kafka's mapping rules."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from reference.security.certificate_principals import distinguished_name, map_name, mapping_rules
from reference.security.errors import WrongSecurity

DAY = datetime.datetime(2026, 1, 1)


def certificate(*names: tuple[x509.ObjectIdentifier, str]) -> bytes:
    key = Ed25519PrivateKey.generate()
    subject = x509.Name([x509.NameAttribute(kind, value) for kind, value in names])
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(DAY).not_valid_after(DAY + datetime.timedelta(days=1))
    return made.sign(key, None).public_bytes(Encoding.DER)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([(NameOID.COUNTRY_NAME, "SE"), (NameOID.ORGANIZATION_NAME, "Ö"), (NameOID.COMMON_NAME, "a b")], "CN=a b,O=Ö,C=SE"),
        ([(NameOID.COMMON_NAME, 'x, y+z="\\<>;#')], 'CN=x\\, y\\+z\\=\\"\\\\\\<\\>\\;\\#'),
        ([(NameOID.COMMON_NAME, " a ")], "CN=\\ a\\ "),
        ([(NameOID.EMAIL_ADDRESS, "a@b"), (NameOID.COMMON_NAME, "c")], "CN=c,1.2.840.113549.1.9.1=#1603614062"),
        ([(NameOID.TITLE, "t" * 200)], "2.5.4.12=#0c81c8" + "74" * 200),
    ],
)  # fmt: skip
def test_a_subject_is_written_as_java_writes_it(names: list[tuple[x509.ObjectIdentifier, str]], expected: str) -> None:
    assert distinguished_name(certificate(*names)) == expected


@pytest.mark.parametrize(
    ("rules", "name", "mapped"),
    [
        ("DEFAULT", "CN=a,O=b", "CN=a,O=b"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "CN=kafka1,OU=ServiceUsers,O=Unknown", "kafka1"),
        ("RULE:^CN=(.*?),OU=(.*?),O=.*$/$1@$2/L", "CN=Adm,OU=OPS,O=x", "adm@ops"),
        ("RULE:^cn=(.*)$/$1/U, RULE:^.*[Cc][Nn]=([a-z.]*).*$/$1/U , DEFAULT", "CN=ab.c,O=d", "AB.C"),
        ("RULE:^CN=(x)$/$1/,DEFAULT", "CN=y", "CN=y"),
        ("RULE:^CN=(x)$/$1/", "CN=y", None),
        (r"RULE:^CN=a\/b(.*)$/$1/", "CN=a/bc", "c"),
    ],
)  # fmt: skip
def test_the_first_rule_that_matches_all_of_a_name_maps_it(rules: str, name: str, mapped: str | None) -> None:
    assert map_name(mapping_rules(rules), name) == mapped


@pytest.mark.parametrize("rules", ["default", "RULE:a/b", "RULE:(/x/", "RULE:a/$1/", "RULE:a/b/X", "DEFAULT;DEFAULT"])
def test_malformed_rules_are_refused(rules: str) -> None:
    with pytest.raises(WrongSecurity, match=r"ssl\.principal\.mapping\.rules"):
        mapping_rules(rules)
