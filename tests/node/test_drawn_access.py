"""Drawn runs of three nodes whose ACLs change while nodes are killed: a stranger gets nothing that they deny it.

What a node may show the stranger follows from the ACLs that this very node has applied when it answers, by a rule that is written
out here: also of a fetch that has waited, or goes on in a session, while an ACL came or went. And the stranger asks every API.
"""

from __future__ import annotations

import random
from typing import Any, cast

import pytest

from linearizability.mutants.registry import planted
from reference.controller.image import MetadataImage
from reference.node.access import Access
from reference.node.apis import VOTER_CHANGES
from reference.node.effects import Respond
from reference.node.node import Node
from reference.node.release import BROKER, is_served_on, versions_of
from reference.protocol.acls import Operation, PatternType, Permission, ResourceType
from reference.protocol.errors import ErrorCode
from reference.protocol.frames import decode_response, encode_request
from reference.protocol.messages.create_acls import CreateAclsRequest
from reference.protocol.messages.delete_acls import DeleteAclsRequest
from reference.protocol.messages.fetch import FetchRequest, FetchResponse
from reference.protocol.messages.produce import ProduceRequest
from reference.protocol.needs import NEEDS
from reference.protocol.primitives import NodeId
from reference.protocol.schema import Message
from tests.node.test_access import UNREFUSED, filled
from tests.node.three_nodes import IDS, ThreeNodes, frame_of
from tests.replication.replicas import batch
from tests.targets.test_strangers_beside_kafka import errors_in, of_version

STRANGER, NAME = 10_000_000, "User:stranger"
"""The stranger's connections have ids from here on, one for each request."""
TOPICS = ("secret-a", "secret-b")
STEPS = 200
FETCH = FetchRequest.KEY
REFUSALS = {each.name for each in ErrorCode if each.name.endswith("_AUTHORIZATION_FAILED")}
ASKED = [
    key
    for key in sorted(NEEDS)
    if is_served_on(key, BROKER) and key not in {*UNREFUSED, FETCH, 17, 36, *VOTER_CHANGES} and NEEDS[key].needs
]


def may_read(image: MetadataImage, topic: str) -> bool:
    """The rule, written out: of what applies to the topic and the stranger one denial decides, then one allowance."""
    found = {
        acl.permission
        for acl in image.acls.by_id.values()
        if acl.resource_type == ResourceType.TOPIC
        and acl.principal in (NAME, "User:*")
        and acl.operation in (Operation.READ, Operation.ALL)
        and (topic.startswith(acl.name) if acl.pattern_type == PatternType.PREFIXED else acl.name in ("*", topic))
    }
    return Permission.ALLOW in found and Permission.DENY not in found


class Guarded(ThreeNodes):
    """Three nodes with an authorizer, and a stranger at each."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.asked: dict[tuple[NodeId, int], tuple[int, int]] = {}
        """Node and correlation id -> API key and version of what the stranger has asked."""
        self.numbers = 0
        self.shown = self.refused = 0
        self.apis: set[int] = set()
        super().__init__(
            **{
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS",
            }
        )

    def _respond(self, id: NodeId, effect: Respond) -> None:
        if effect.connection >= STRANGER:
            self._look(self.nodes[id], frame_of(effect))
        else:
            super()._respond(id, effect)

    def _look(self, node: Node, frame: bytes) -> None:
        """What the stranger is answered must be what the node's ACLs say at this moment."""
        key, version = self.asked.pop((node.id, int.from_bytes(frame[:4], "big")))
        _, answer = decode_response(key, version, frame)
        if key == FETCH:
            self._look_at_fetch(node, cast(FetchResponse, answer))
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

    def say(self, id: NodeId, body: Message, version: int) -> None:
        """The stranger asks."""
        self.numbers += 1
        self.asked[id, self.numbers] = body.KEY, version
        frame = encode_request(body.KEY, version, self.numbers, "stranger", body)[4:]
        self.nodes[id].connected(STRANGER + self.numbers, "192.0.2.1", "PLAINTEXT", NAME)
        self._step(id, Node.receive, STRANGER + self.numbers, frame)

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
        self.say(id, body, versions_of(FETCH)[1])

    def write(self, id: NodeId) -> None:
        """A record that fetches may wait for; where the node leads neither topic nothing happens."""
        for name in TOPICS:
            if self.led(id, name):
                data = ProduceRequest.PartitionProduceData(index=0, records=bytes(batch(b"a")))
                topic = ProduceRequest.TopicProduceData(
                    topic_id=self.nodes[id].image.topics[name].id, partition_data=[data]
                )
                self.ask(id, ProduceRequest(acks=1, timeout_ms=20_000, topic_data=[topic]))

    def ask_any(self, id: NodeId) -> None:
        key = self.chance.choice(ASKED)
        version = versions_of(key)[1]
        self.say(id, of_version(filled(key), version), version)

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
            for key in [each for each in self.asked if each[0] == id]:
                del self.asked[key]

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
            + [self.hurt]
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


def test_a_stranger_is_shown_what_the_acls_of_the_moment_allow() -> None:
    shown = refused = 0
    apis: set[int] = set()
    for seed in range(6):
        run = Guarded(seed)
        run.run()
        shown, refused, apis = shown + run.shown, refused + run.refused, apis | run.apis
    assert shown > 20 and refused > 20
    assert len(apis) > len(ASKED) * 0.7


def found_in(seeds: range) -> bool:
    for seed in seeds:
        try:
            Guarded(seed).run()
        except AssertionError as failed:
            if "to a stranger" in str(failed) or "Response" in str(failed):
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


def test_an_unchecked_api_is_found() -> None:
    with planted("leave-group-unchecked"):
        assert found_in(range(30))
