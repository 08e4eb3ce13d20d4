"""This authorizer and Apache Kafka's StandardAuthorizer answer alike; ours also had other ACLs before, which were removed."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple
from uuid import UUID

import pytest

from linearizability.targets.artifacts import java, kafka_jars
from reference.authorizer.acl import Acl, AclFilter, AclTable, matching
from reference.authorizer.authorizer import Asker, Authorizer
from reference.protocol.acls import Operation, PatternType, Permission, ResourceType

pytestmark = pytest.mark.java

SOURCE = Path(__file__).parent / "java" / "Authorize.java"
TABLES = 300
QUESTIONS = 40
NAMES = ("a", "ab", "abc", "b", "*", "*a", "hardcode", "h")
FEW_NAMES = ("a", "", "hardcode")
"""The empty name is possible in a metadata record only; brokers refuse it in requests."""
PRINCIPALS = ("User:a", "User:b", "Group:a", "User:*")
HOSTS = ("127.0.0.1", "10.0.0.1", "*")
TYPES = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER)
OPERATIONS = [each for each in Operation if each != Operation.ANY]


class Words(NamedTuple):
    """Names and types to draw from. The fewer there are, the more ACLs have the same resource."""

    names: Sequence[str]
    types: Sequence[ResourceType]


MANY, FEW = Words(NAMES, TYPES), Words(FEW_NAMES, TYPES[:1])


def word(text: str | None) -> str:
    return "null" if text is None else f"<{text}>"


def drawn_acl(chance: Random, words: Words) -> Acl:
    return Acl(
        chance.choice(words.types),
        chance.choice(words.names),
        chance.choice((PatternType.LITERAL, PatternType.PREFIXED)),
        chance.choice(PRINCIPALS),
        chance.choice(HOSTS),
        chance.choice(OPERATIONS[:6] if chance.random() < 0.7 else OPERATIONS),
        chance.choice((Permission.DENY, Permission.ALLOW, Permission.ALLOW)),
    )


def drawn_filter(chance: Random, words: Words) -> AclFilter:
    return AclFilter(
        chance.choice((ResourceType.ANY, *words.types)),
        chance.choice((None, *words.names)),
        chance.choice([*PatternType]),
        chance.choice((None, *PRINCIPALS)),
        chance.choice((None, *HOSTS)),
        chance.choice((Operation.ANY, *OPERATIONS[:6])),
        chance.choice([*Permission]),
    )


def drawn_question(chance: Random, words: Words) -> tuple[Asker, Operation, ResourceType, str]:
    """A drawn question, often about an operation that others imply."""
    asker = Asker(chance.choice(PRINCIPALS[:3]), chance.choice(HOSTS[:2]))
    operation = chance.choice([*OPERATIONS[1:], *[Operation.DESCRIBE] * 6, *[Operation.DESCRIBE_CONFIGS] * 3])
    return asker, operation, chance.choice(words.types), chance.choice(words.names)


def drawn_questions(
    chance: Random, words: Words, table: AclTable, authorizer: Authorizer
) -> tuple[list[str], list[str]]:
    """Lines for Kafka, and this authorizer's answer to each."""
    lines: list[str] = []
    answers: list[str] = []
    for _ in range(QUESTIONS):
        asker, operation, type_, name = drawn_question(chance, words)
        lines.append(f"one\t<{asker.principal}>\t<{asker.host}>\t{operation}\t{type_}\t<{name}>")
        answers.append(str(authorizer.authorize(asker, operation, type_, name)).lower())
        lines.append(f"any\t<{asker.principal}>\t<{asker.host}>\t{operation}\t{type_}")
        answers.append(str(authorizer.authorize_any(asker, operation, type_)).lower())
        wanted = drawn_filter(chance, words)
        lines.append(
            f"count\t{wanted.resource_type}\t{word(wanted.name)}\t{wanted.pattern_type}\t{word(wanted.principal)}"
            f"\t{word(wanted.host)}\t{wanted.operation}\t{wanted.permission}"
        )
        answers.append(str(len(matching(table.by_id.values(), wanted))))
    return lines, answers


def test_every_question_has_kafkas_answer() -> None:
    chance = Random(29)
    lines: list[str] = []
    answers: list[str] = []
    for number in range(TABLES):
        table, words = AclTable(), FEW if number % 3 == 0 else MANY
        acls = {drawn_acl(chance, words) for _ in range(chance.randrange(8))}
        allows = number % 2 == 0
        super_users = "User:b" if number % 5 == 0 else ""
        gone = {UUID(int=100 + index): drawn_acl(chance, words) for index in range(chance.randrange(4))}
        for id, acl in [*gone.items(), *((UUID(int=index), acl) for index, acl in enumerate(sorted(acls)))]:
            table.add(id, acl)
        authorizer = Authorizer(table, [super_users], allow_if_no_acl=allows)
        for _ in range(QUESTIONS):  # removing ACLs must invalidate cached answers
            authorizer.authorize(*drawn_question(chance, words))
        for id in gone:
            table.remove(id)
        lines.append(f"begin\t<{super_users}>\t{str(allows).lower()}")
        lines += (
            f"acl\t{acl.resource_type}\t<{acl.name}>\t{acl.pattern_type}\t<{acl.principal}>\t<{acl.host}>"
            f"\t{acl.operation}\t{acl.permission}"
            for acl in sorted(acls)
        )
        asked, answered = drawn_questions(chance, words, table, authorizer)
        lines += asked
        answers += answered
    jars = ":".join(str(jar) for jar in kafka_jars("4.3.1"))
    done = subprocess.run(
        [str(java()), "-cp", jars, str(SOURCE)],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    theirs = done.stdout.split()
    asked = [line for line in lines if not line.startswith(("begin", "acl"))]
    assert len(theirs) == len(answers) == 3 * TABLES * QUESTIONS, done.stderr[-2000:]
    different = [each for each in zip(asked, answers, theirs, strict=True) if each[1] != each[2]]
    assert not different, different[:10]
    assert {"true", "false"} <= set(theirs), "both answers must occur"
