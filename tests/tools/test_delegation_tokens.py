"""kafka-delegation-tokens prints the same of this broker as of Apache Kafka, and Java's clients log in by a token."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.test_secured_clients import properties_file
from tests.targets.secured_kafka import LOGIN, PASSWORD, USER, SecuredKafka, SecuredReference
from tests.tools.jvm import Ran, Tools

pytestmark = [pytest.mark.java, pytest.mark.kafka, pytest.mark.process]

LISTENER, MECHANISM = "SASL_PLAINTEXT", "SCRAM-SHA-256"
TOKEN = re.compile(r"^(\S{22})\s+(\S{86}==)\s", re.M)
LIKE = [(re.compile(r"\S{86}=="), "HMAC"), (re.compile(r"\b[A-Za-z0-9_-]{22}\b"), "ID"), (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d"), "DATE")]  # fmt: skip
PRINTED: dict[str, list[str]] = {}
"""Step -> its output with Kafka, which comes first."""


def printed(ran: Ran) -> list[str]:
    """The lines of the output, without values that differ each time, and the messages of errors."""
    text = ran.out
    for pattern, name in LIKE:
        text = pattern.sub(name, text)
    errors = [line for line in ran.errors.splitlines() if line.startswith("org.apache.kafka.common.errors")]
    return [str(ran.code), *(line.strip() for line in text.splitlines() if line.strip()), *errors]


LONGEST = ("--max-life-time-period", "-1")
"""The longest lifetime that the brokers allow."""


@pytest.fixture(params=[SecuredKafka, SecuredReference], ids=["kafka", "reference"])
def secured(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SecuredKafka | SecuredReference]:
    for name in ("broker", "secrets"):
        (tmp_path / name).mkdir()
    with request.param(tmp_path / "broker", tmp_path / "secrets") as opened:
        yield opened


def test_a_token_is_made_shown_renewed_used_and_ended(
    secured: SecuredKafka | SecuredReference, tools: Tools, tmp_path: Path
) -> None:
    where = f"localhost:{secured.ports[LISTENER]}"
    own = properties_file(tmp_path, secured.client(LISTENER, MECHANISM))
    steps: dict[str, list[str]] = {}

    def run(name: str, *arguments: object, config: Path = own, until: str = "") -> Ran:
        """Run the tool until its output has `until`: the broker may lag behind the controller."""
        for _ in range(20):
            ran = tools.run(
                "kafka-delegation-tokens", "--bootstrap-server", where, "--command-config", config, *arguments
            )
            if until in ran.out:
                break
        steps[name] = printed(ran)
        return ran

    owner, longest = ("--owner-principal", "User:bob"), LONGEST
    run("none", "--describe")
    made = run("create", "--create", *longest, "--renewer-principal", f"User:{USER}")
    found = TOKEN.search(made.out)
    assert found is not None, made
    token_id, hmac = found.groups()
    run("describe", "--describe", until="number of tokens : 1")
    run("create for another", "--create", *longest, *owner)
    run("describe another's", "--describe", *owner, until="number of tokens : 1")
    run("renew", "--renew", "--renew-time-period", "-1", "--hmac", hmac)
    run("renew nothing", "--renew", "--renew-time-period", "-1", "--hmac", "AAAA")

    by_token = tmp_path / "token"
    by_token.mkdir()
    login = f'{LOGIN}.scram.ScramLoginModule required username="{token_id}" password="{hmac}" tokenauth="true";'
    bearer = properties_file(by_token, {**secured.client(LISTENER, MECHANISM), "sasl.jaas.config": login})
    run("a bearer asks for one", "--create", *longest, config=bearer)
    command = ("--bootstrap-server", where, "--command-config", bearer)
    tools.run("kafka-topics", *command, "--create", "--topic", "by-token").well()
    tools.run(
        "kafka-console-producer", *command[:2], "--producer.config", bearer, "--topic", "by-token", stdin="x\n"
    ).well()

    run("end", "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    run("end again", "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    refused = tools.run("kafka-topics", *command, "--list")
    assert refused.code != 0 and "invalid credentials with SASL mechanism SCRAM-SHA-256" in refused.out + refused.errors
    assert PASSWORD not in str(steps)
    assert PRINTED or isinstance(secured, SecuredKafka), "Kafka's run, with which this one is compared, comes first"
    for name, lines in steps.items():
        assert lines == PRINTED.setdefault(name, lines), name
