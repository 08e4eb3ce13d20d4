"""A node of the reference writes snapshots in which a node of Kafka finds all that there is, also what no node of the reference uses.

What is compared is what Kafka's own metadata shell reads: in the snapshot of each node, and in the log up to there.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from linearizability.agreement import METADATA_LOG, SNAPSHOT_OFTEN
from linearizability.metadata_shell import image, snapshot_differences
from linearizability.targets.kafka import KafkaCluster
from reference.protocol.messages.alter_client_quotas import AlterClientQuotasRequest as Alter
from reference.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest as Configure
from reference.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.targets.test_mixed_access import KAFKA, PASSWORD, REFERENCE, TOPIC, SharingCluster, cluster
from tests.tools.test_delegation_tokens import LONGEST

__all__ = ["cluster"]

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

WITHIN_S = 120
TOPICS, BROKERS, SET = 2, 4, 0
SECTIONS = (
    "acls",
    "clientQuotas",
    "cluster",
    "configs",
    "delegationToken",
    "features",
    "producerIds",
    "scram",
    "topics",
)


def create_token(target: SharingCluster, folder: Path) -> str:
    """The output of kafka-delegation-tokens for a user who has authenticated."""
    kafka = next(kind for kind in target.kinds if isinstance(kind, KafkaCluster))
    login = folder / "client.properties"
    login.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="alice" password="{PASSWORD}";\n'
    )
    command = kafka.java_command(
        ["-XX:TieredStopAtLevel=1"],
        "org.apache.kafka.tools.DelegationTokenCommand",
        *("--bootstrap-server", f"127.0.0.1:{target.doors[KAFKA - 1]}", "--command-config", str(login)),
        *("--create", *LONGEST),
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    return done.stdout + done.stderr


def test_each_kind_of_record_is_in_the_snapshots_of_both(cluster: SharingCluster, tmp_path: Path) -> None:
    cluster.add_user(KAFKA, "alice")
    cluster.allow(KAFKA, "alice")
    entity = [
        Alter.EntityData(entity_type="client-id", entity_name="app"),
        Alter.EntityData(entity_type="user", entity_name="u"),
    ]
    rate = Alter.OpData(key="producer_byte_rate", value=1234.0)
    cluster.ask(KAFKA, Alter(entries=[Alter.EntryData(entity=entity, ops=[rate])]))
    for kind, name, setting, value in (
        (TOPICS, TOPIC, "retention.ms", "99999"),
        (BROKERS, "1", "log.cleaner.threads", "2"),
    ):
        change = Configure.AlterableConfig(name=setting, config_operation=SET, value=value)
        resource = Configure.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[change])
        cluster.ask(KAFKA, Configure(resources=[resource]))
    cluster.ask(REFERENCE, InitProducerIdRequest(transactional_id=None))
    assert "TOKENID" in create_token(cluster, tmp_path).upper()
    for node in (KAFKA, REFERENCE):
        cluster.config(node, SNAPSHOT_OFTEN)
    homes = {member.node.id: member.data / METADATA_LOG for member in cluster.members}
    newest = {node: max(home.glob("*.checkpoint"), default=Path()).name for node, home in homes.items()}
    until = time.monotonic() + WITHIN_S
    while any(max(home.glob("*.checkpoint"), default=Path()).name == newest[node] for node, home in homes.items()):
        assert time.monotonic() < until
        cluster.add_user(KAFKA, f"user-{time.monotonic_ns()}")
    for node in (KAFKA, REFERENCE):
        cluster.stop(node)
    compared = {node: differences for node, _, differences in snapshot_differences(homes)}
    assert compared == {KAFKA: [], REFERENCE: []}
    text = image(max(homes[REFERENCE].glob("*.checkpoint")))
    for section in SECTIONS:
        assert filled(text, section), f"{section} is empty: {text}"


def filled(text: str, section: str) -> bool:
    """Whether a section of the image has a value, and not only names of further sections."""
    lines = text.splitlines()
    below = lines[lines.index(f"{section}:") + 1 :]
    own = next((number for number, line in enumerate(below) if not line.startswith(" ")), len(below))
    return any(not line.rstrip().endswith(":") and line.strip() != "-1" for line in below[:own])
