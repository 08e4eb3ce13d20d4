"""Drawn runs of three nodes whose ACLs and credentials change while nodes are killed and cut off: a stranger gets nothing that
the ACLs deny.

A node may show the stranger the records that the ACLs allow which this node has applied when it answers; the rule is written out
here. It holds also for a fetch that has waited, or goes on in a session, while ACLs changed. Some of its fetches come by SASL:
a node admits the password that it has applied when the exchange begins, and serves until the session ends. And
the stranger calls every API.
"""

from __future__ import annotations

import functools
import hashlib
import random
from typing import Any, cast

import pytest

from linearizability.mutants.registry import planted
from reference.controller.image import MetadataImage
from reference.node.access import Access
from reference.node.apis import VOTER_CHANGES
from reference.node.authentication import SaslSession, State
from reference.node.effects import Close, Respond, Send
from reference.node.listeners import SCRAM
from reference.node.node import Node
from reference.node.release import BROKER, is_served_on, versions_of
from reference.node.sasl_mechanisms import credential
from reference.protocol.acls import Operation, PatternType, Permission, ResourceType
from reference.protocol.errors import ErrorCode
from reference.protocol.frames import decode_response, encode_request
from reference.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from reference.protocol.messages.create_acls import CreateAclsRequest
from reference.protocol.messages.delete_acls import DeleteAclsRequest
from reference.protocol.messages.fetch import FetchRequest, FetchResponse
from reference.protocol.messages.produce import ProduceRequest
from reference.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from reference.protocol.messages.sasl_handshake import SaslHandshakeRequest
from reference.protocol.messages.user_scram_credential_record import UserScramCredentialRecord
from reference.protocol.needs import NEEDS
from reference.protocol.primitives import NodeId
from reference.protocol.schema import Message
from reference.security.scram_client import ScramExchange
from tests.node.test_access import UNREFUSED, filled
from tests.node.three_nodes import IDS, ThreeNodes, frame_of
from tests.replication.replicas import batch
from tests.targets.test_strangers_beside_kafka import errors_in, of_version

USER, STRANGER, NAME = "stranger", 10_000_000, "User:stranger"
"""The stranger's connections have ids from here on: one for each request, or for what it asks after a login."""
PASSWORDS, MECHANISM, SALT, ITERATIONS = ("first", "second"), "SCRAM-SHA-256", b"of the stranger", 4096
SESSION_MS = 400
LISTENER = "SASL_PLAINTEXT"
TOPICS = ("secret-a", "secret-b")
STEPS = 240
FETCH = FetchRequest.KEY
LOGIN = (SaslHandshakeRequest.KEY, SaslAuthenticateRequest.KEY)
REFUSALS = {each.name for each in ErrorCode if each.name.endswith("_AUTHORIZATION_FAILED")}
ASKED = [
    key
    for key in sorted(NEEDS)
    if is_served_on(key, BROKER) and key not in {*UNREFUSED, FETCH, *LOGIN, *VOTER_CHANGES} and NEEDS[key].needs
]


def may_read(image: MetadataImage, topic: str) -> bool:
    """Whether the stranger may read the topic: among the ACLs that apply, one DENY decides, then one ALLOW."""
    found = {
        acl.permission
        for acl in image.acls.by_id.values()
        if acl.resource_type == ResourceType.TOPIC
        and acl.principal in (NAME, "User:*")
        and acl.operation in (Operation.READ, Operation.ALL)
        and (topic.startswith(acl.name) if acl.pattern_type == PatternType.PREFIXED else acl.name in ("*", topic))
    }
    return Permission.ALLOW in found and Permission.DENY not in found


@functools.cache
def salted(password: str) -> bytes:
    return hashlib.pbkdf2_hmac("sha256", password.encode(), SALT, ITERATIONS)


class Guarded(ThreeNodes):
    """Three nodes with an authorizer, and a stranger at each, which first calls APIs that no earlier run has called."""

    def __init__(self, seed: int, apis: set[int] | None = None) -> None:
        self.chance = random.Random(seed)
        self.asked: dict[tuple[NodeId, int], tuple[int, int, int]] = {}
        """Node and correlation id -> API key, version and connection of what the stranger has asked."""
        self.numbers = 0
        self.shown = self.refused = 0
        self.apis: set[int] = set() if apis is None else apis
        self.sessions: dict[tuple[NodeId, int], int] = {}
        """Node and connection of each login -> when its session ends."""
        self.cut_off: NodeId | None = None
        self.login_responses: dict[int, Message] = {}
        """Correlation id -> the response to a step of a login."""
        self.logins = self.failed_logins = self.ended = self.kills = self.cuts = 0
        login = f"listener.name.{LISTENER.lower()}.{MECHANISM.lower()}"
        super().__init__(
            **{
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS",
                "sasl.enabled.mechanisms": MECHANISM,
                f"{login}.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
                f"{login}.connections.max.reauth.ms": str(SESSION_MS),
                "connection.failed.authentication.delay.ms": "0",
            }
        )

    def _respond(self, id: NodeId, effect: Respond) -> None:
        if effect.connection >= STRANGER:
            self._look(self.nodes[id], frame_of(effect))
        else:
            super()._respond(id, effect)

    def _close(self, id: NodeId, effect: Close) -> None:
        if effect.connection >= STRANGER:
            self.nodes[id].disconnected(effect.connection)
            self.sessions.pop((id, effect.connection), None)

    def _look(self, node: Node, frame: bytes) -> None:
        """Compare a response to the stranger with the node's present ACLs."""
        key, version, _ = self.asked.pop((node.id, int.from_bytes(frame[:4], "big")))
        _, answer = decode_response(key, version, frame)
        if key == FETCH:
            self._look_at_fetch(node, cast(FetchResponse, answer))
        elif key in LOGIN:
            self.login_responses[int.from_bytes(frame[:4], "big")] = answer
        else:
            self.apis.add(key)
            assert errors_in(answer) & REFUSALS, (key, answer)

    def _look_at_fetch(self, node: Node, answer: FetchResponse) -> None:
        for topic in answer.responses:
            name = node.image.topic_name(topic.topic_id)
            for each in topic.partitions:
                allowed = name is not None and may_read(node.image, name)
                assert allowed or not each.records, f"node {node.id} shows {name} to a stranger"
                if each.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    assert not allowed, f"node {node.id} refuses {name}"
                    self.refused += 1
                self.shown += bool(each.records)

    def send(self, id: NodeId, body: Message, version: int, connection: int = 0) -> None:
        """Send a request of the stranger, on a new connection unless one is given."""
        self.numbers += 1
        frame = encode_request(body.KEY, version, self.numbers, "stranger", body)[4:]
        if not connection:
            connection = STRANGER + self.numbers
            self.nodes[id].connected(connection, "192.0.2.1", "PLAINTEXT", NAME)
        self.asked[id, self.numbers] = body.KEY, version, connection
        self._step(id, Node.receive, connection, frame)

    def session_at(self, id: NodeId) -> int:
        """The connection of a login at this node that waits for no answer, or 0."""
        waiting = {(node, connection) for (node, _), (_, _, connection) in self.asked.items()}
        found = [connection for node, connection in self.sessions.keys() - waiting if node == id]
        return self.chance.choice([*sorted(found), 0])

    def stored_key(self, id: NodeId) -> bytes | None:
        """The stranger's stored key that the node has applied."""
        record = self.nodes[id].image.carried.get((UserScramCredentialRecord, (USER, SCRAM[MECHANISM])))
        return bytes(record.stored_key) if isinstance(record, UserScramCredentialRecord) else None

    # ---- the steps of a drawn run

    def fetch(self, id: NodeId) -> None:
        node, topics = self.nodes[id], list[FetchRequest.FetchTopic]()
        for name in TOPICS:
            if (name, 0) in node.partitions:
                end = max(0, node.partitions[name, 0].high_watermark)
                offset = self.chance.choice((0, end, end))
                place = FetchRequest.FetchPartition(partition=0, partition_max_bytes=1 << 20, fetch_offset=offset)
                topics.append(FetchRequest.FetchTopic(topic_id=node.image.topics[name].id, partitions=[place]))
        body = FetchRequest(
            max_wait_ms=self.chance.choice((0, 5000)),
            min_bytes=self.chance.choice((1, 1 << 20)),
            max_bytes=1 << 20,
            session_epoch=self.chance.choice((-1, 0)),
            topics=topics,
        )
        session = self.session_at(id)
        ends = self.sessions.get((id, session), self.now + 1)
        self.send(id, body, versions_of(FETCH)[1], session)
        if self.now >= ends:
            self.ended += 1
            assert (id, session) not in self.sessions, f"node {id} serves a stranger after its session's end"

    def log_in(self, id: NodeId) -> None:
        """Log in by one of the passwords; the credential may change between the two messages."""
        password = self.chance.choice(PASSWORDS)
        exchange = ScramExchange(MECHANISM, USER, password)
        self.numbers += 1
        connection = STRANGER + self.numbers
        self.nodes[id].connected(connection, "192.0.2.1", LISTENER)
        self.send(id, SaslHandshakeRequest(mechanism=MECHANISM), 1, connection)
        if self.numbers not in self.login_responses:
            return  # the node has just started: it answers when it has read the metadata
        held = self.stored_key(id)
        first = self.log_in_by(id, exchange.first(), connection)
        if held is None or first.error_code:
            assert held is None and first.error_code, f"node {id} begins with {held!r}: {first}"
            return
        for _ in range(self.chance.choice((0, 0, 20))):
            self.deliver()
        proof = exchange.answer(bytes(first.auth_bytes))
        assert proof is not None
        last = self.log_in_by(id, proof, connection)
        is_right = held == bytes(credential(USER, SCRAM[MECHANISM], SALT, ITERATIONS, salted(password)).stored_key)
        assert (not last.error_code) is is_right, (
            f"node {id} answers a stranger with {'the' if is_right else 'no'} password: {last}"
        )
        if is_right:
            assert last.session_lifetime_ms == SESSION_MS
            self.sessions[id, connection] = self.now + SESSION_MS
        self.logins, self.failed_logins = self.logins + is_right, self.failed_logins + (not is_right)

    def log_in_by(self, id: NodeId, message: bytes, connection: int) -> SaslAuthenticateResponse:
        self.send(id, SaslAuthenticateRequest(auth_bytes=message), 2, connection)
        return cast(SaslAuthenticateResponse, self.login_responses[self.numbers])

    def change_credential(self, id: NodeId) -> None:
        changes = AlterUserScramCredentialsRequest
        if self.chance.random() < 0.3:
            deletion = changes.ScramCredentialDeletion(name=USER, mechanism=SCRAM[MECHANISM])
            self.ask(id, changes(deletions=[deletion], upsertions=[]))
            return
        upsertion = changes.ScramCredentialUpsertion(
            name=USER,
            mechanism=SCRAM[MECHANISM],
            iterations=ITERATIONS,
            salt=SALT,
            salted_password=salted(self.chance.choice(PASSWORDS)),
        )
        self.ask(id, changes(deletions=[], upsertions=[upsertion]))

    def write(self, id: NodeId) -> None:
        """Produce a record for which fetches may wait; without effect on a node that leads neither topic."""
        for name in TOPICS:
            if self.led(id, name):
                data = ProduceRequest.PartitionProduceData(index=0, records=bytes(batch(b"a")))
                topic = ProduceRequest.TopicProduceData(
                    topic_id=self.nodes[id].image.topics[name].id, partition_data=[data]
                )
                self.ask(id, ProduceRequest(acks=1, timeout_ms=20_000, topic_data=[topic]))

    def ask_any(self, id: NodeId) -> None:
        key = self.chance.choice([each for each in ASKED if each not in self.apis] or ASKED)
        version = versions_of(key)[1]
        body = of_version(filled(key), version)
        if isinstance(body, ProduceRequest):
            body.acks = -1  # with 0 there is no answer
        self.send(id, body, version)

    def change_acls(self, id: NodeId) -> None:
        if self.chance.random() < 0.3:
            wanted = DeleteAclsRequest.DeleteAclsFilter(
                resource_type_filter=ResourceType.TOPIC,
                pattern_type_filter=PatternType.ANY,
                operation=Operation.ANY,
                permission_type=self.chance.choice((Permission.ALLOW, Permission.DENY, Permission.ANY)),
            )
            self.ask(id, DeleteAclsRequest(filters=[wanted]))
            return
        kinds = [(PatternType.LITERAL, TOPICS), (PatternType.PREFIXED, ("secret-", "other"))]
        pattern, names = self.chance.choice(kinds)
        permission = self.chance.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY))
        if permission is Permission.DENY:
            names = (*names, "*")  # of a prefix it is a name that none begins with
        rule = CreateAclsRequest.AclCreation(
            resource_type=ResourceType.TOPIC,
            resource_name=self.chance.choice(names),
            resource_pattern_type=pattern,
            principal=self.chance.choice((NAME, NAME, "User:other")),
            host="*",
            operation=self.chance.choice((Operation.READ, Operation.ALL, Operation.WRITE)),
            permission_type=permission,
        )
        self.ask(id, CreateAclsRequest(creations=[rule]))

    def hurt(self, id: NodeId) -> None:
        down = [each for each in IDS if each not in self.nodes]
        if down:
            self.start(down[0])
        else:
            self.kill(id)
            self.kills += 1
            for table in (self.asked, self.sessions):
                for key in [each for each in table if each[0] == id]:
                    del table[key]

    def cut(self, id: NodeId) -> None:
        """Cut a node off from the others, or join it again: its metadata stay as they are, while it serves clients."""
        self.cut_off = None if self.cut_off is not None else id
        self.cuts += self.cut_off is not None
        for asker, asked, purpose in [*self._connections]:
            if self.cut_off in (asker, asked):
                self._hang_up(asker, asked, purpose)
                self._lose(asker, asked, purpose)

    def _send(self, asker: NodeId, effect: Send) -> None:
        if self.cut_off in (asker, effect.peer):
            self._lose(asker, effect.peer, effect.purpose)
        else:
            super()._send(asker, effect)

    def wait(self, id: NodeId) -> None:
        end = self.now + self.chance.choice((1, 20, 300))
        self.run_until(lambda: self.now >= end)

    def run(self) -> None:
        for name in TOPICS:
            self.create(name, 1)
        self.run_until(lambda: all(self.is_in_sync(name) for name in TOPICS))
        for name in TOPICS:
            self.produce(self.leader(name), name, [0])
        steps = (
            [self.fetch] * 6
            + [self.ask_any] * 3
            + [self.change_acls] * 4
            + [self.log_in, self.change_credential] * 2
            + [self.hurt, self.cut]
            + [self.write] * 4
            + [self.wait] * 3
        )
        for _ in range(STEPS):
            step = self.chance.choice(steps)
            step(self.chance.choice([*self.nodes]))
            for _ in range(self.chance.choice((0, 1, 5, 40))):
                self.deliver()

    def leader(self, topic: str) -> NodeId:
        image = self.nodes[IDS[0]].image
        found = image.partition(topic, 0)
        assert found is not None
        return NodeId(found.leader)


@pytest.mark.parametrize("seeds", [range(6), pytest.param(range(1000, 1300), marks=pytest.mark.slow)], ids=str)
def test_a_stranger_is_shown_what_the_acls_of_the_moment_allow(seeds: range) -> None:
    apis: set[int] = set()
    sums = dict.fromkeys(("shown", "refused", "logins", "failed_logins", "ended", "kills", "cuts"), 0)
    for seed in seeds:
        run = Guarded(seed, apis)
        run.run()
        sums = {name: count + getattr(run, name) for name, count in sums.items()}
    assert min(sums.values()) >= len(seeds), sums
    assert apis == {*ASKED}
    print(sums)


def found_in(seeds: range) -> bool:
    for seed in seeds:
        try:
            Guarded(seed).run()
        except AssertionError as failed:
            if "stranger" in str(failed) or "Response" in str(failed):
                return True
            raise
    return False


def test_a_decision_that_is_kept_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[Any, bool] = {}
    original = Access.may_fetch

    def kept(self: Access, request: Any, topic: Any, is_follower: bool) -> bool:
        key = id(self), topic
        if request.client.connection < STRANGER:
            return original(self, request, topic, is_follower)
        known[key] = known.get(key, False) or original(self, request, topic, is_follower)
        return known[key]

    monkeypatch.setattr(Access, "may_fetch", kept)
    assert found_in(range(8))


@pytest.mark.parametrize("bug", ["leave-group-unchecked", "old-password-taken"])
def test_a_planted_bug_is_found(bug: str) -> None:
    with planted(bug):
        assert found_in(range(30))


def test_a_session_without_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SaslSession, "takes", lambda session, key, now: session.state is not State.AUTHENTICATED)
    assert found_in(range(8))


def test_a_credential_whose_decision_waits_is_the_one_that_was_sent() -> None:
    """The second request waits for the commit of the first; the buffer in which it came is overwritten meanwhile."""
    run = Guarded(1)
    (active,) = (id for id, node in run.nodes.items() if node.controller.is_active)
    for user, password in zip(("one", "other"), PASSWORDS, strict=True):
        upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
            name=user, mechanism=SCRAM[MECHANISM], iterations=ITERATIONS, salt=SALT, salted_password=salted(password)
        )
        run.ask(active, AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion]))
    carried = run.nodes[active].image.carried
    keys = [(UserScramCredentialRecord, (user, SCRAM[MECHANISM])) for user in ("one", "other")]
    run.run_until(lambda: all(key in carried for key in keys))
    wanted = [credential("", SCRAM[MECHANISM], SALT, ITERATIONS, salted(each)) for each in PASSWORDS]
    stored = [cast(UserScramCredentialRecord, carried[key]) for key in keys]
    assert [(bytes(each.salt), bytes(each.stored_key)) for each in stored] == [
        (bytes(each.salt), bytes(each.stored_key)) for each in wanted
    ]
