"""`format --add-scram`: Kafka's syntax, no secret in an error, and a cluster that begins with the credential."""

from __future__ import annotations

import base64
import hashlib
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from linearizability.targets.reference import ReferenceCluster
from linearizability.targets.security import ClientSecurity, SecurityError, Tunnels
from reference.commands import app
from reference.controller.quorum_snapshots import BOOTSTRAP_NAME
from reference.node.sasl_mechanisms import credential
from reference.runtime.scram_argument import read_credential
from reference.security.errors import WrongSecurity
from tests.targets.secured_kafka import SecuredReference

SECRET = "se=cr]et"


def test_a_password_becomes_what_verifies_it() -> None:
    salted = hashlib.pbkdf2_hmac("sha512", SECRET.encode(), b"salt", 8192)
    text = base64.b64encode(b"salt").decode()
    expected = credential("alice", 2, b"salt", 8192, salted)
    given = f'SCRAM-SHA-512=[name=alice,password="{SECRET}",iterations=8192,salt="{text}"]'
    assert read_credential(given) == expected
    hidden = base64.b64encode(salted).decode()
    given = f"SCRAM-SHA-512=[name=alice,saltedpassword={hidden},iterations=8192,salt={text}]"
    assert read_credential(given) == expected
    first, second = (read_credential(f"SCRAM-SHA-256=[name=a,password={SECRET}]") for _ in range(2))
    assert first.iterations == 4096 and first.salt != second.salt


@pytest.mark.parametrize(
    "text",
    [
        "", "SCRAM-SHA-1=[name=a,password=p]", "SCRAM-SHA-256=name=a", "SCRAM-SHA-256=[name=a]", "SCRAM-SHA-256=[password=p]",
        "SCRAM-SHA-256=[name=a,password=p,saltedpassword=p]", "SCRAM-SHA-256=[name=a,password=p,iterations=4095]",
        "SCRAM-SHA-256=[name=a,password=p,iterations=16385]", "SCRAM-SHA-256=[name=a,password=p,iterations=x]",
        "SCRAM-SHA-256=[name=a,password=p,salt=?]", "SCRAM-SHA-256=[name=a,saltedpassword=AAAA]", "SCRAM-SHA-256=[name=a,word=p]",
    ],
)  # fmt: skip
def test_what_is_no_credential_is_refused(text: str) -> None:
    with pytest.raises(WrongSecurity, match=r"^--add-scram"):
        read_credential(text)


class Bootstrapped(SecuredReference):
    """A broker that is formatted with a credential."""

    def open(self) -> None:
        ReferenceCluster.open(self)

    def format(self, member: object) -> None:
        arguments = [str(self.members[0].properties_file), "--cluster-id", self.cluster_id]
        done = CliRunner().invoke(
            app, ["format", *arguments, "--add-scram", f'SCRAM-SHA-256=[name=alice,password="{SECRET}"]']
        )
        assert done.exit_code == 0, done.output


@pytest.mark.process
def test_a_cluster_begins_with_the_credential_and_its_files_are_its_owners_alone(tmp_path: Path) -> None:
    with Bootstrapped(tmp_path, tmp_path) as broker:
        for password, good in ((SECRET, True), ("another", False)):
            security = ClientSecurity.of(broker.client("SASL_SSL", "SCRAM-SHA-256", password=password))
            with Tunnels(security) as tunnels:
                if good:
                    tunnels.check("localhost", broker.ports["SASL_SSL"])
                else:
                    with pytest.raises(SecurityError):
                        tunnels.check("localhost", broker.ports["SASL_SSL"])
        data = broker.members[0].data
        made = [data, *data.rglob("*")]
        assert data / BOOTSTRAP_NAME in made
        open_to_others = [path for path in made if stat.S_IMODE(path.stat().st_mode) & 0o077]
        assert open_to_others == []
