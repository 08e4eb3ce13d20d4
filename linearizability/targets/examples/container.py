#!/usr/bin/env python3
"""An adapter for a broker in containers (docker, or podman in DOCKER): change IMAGE and `start` for your broker.

tidegauge adapter check ./container.py
tidegauge run --target exec:./container.py
"""

from linearizability.targets.ports import free_ports
from linearizability.targets.shell_adapter import serve

IMAGE = "apache/kafka:4.3.1"
DOCKER = "docker"

(PORT,) = free_ports(1)
NAME = f"tidegauge-{PORT}-{{node}}"

serve(
    IMAGE,
    nodes={1: ("127.0.0.1", PORT)},
    commands={
        "start": f"{DOCKER} run -d --name {NAME} -p 127.0.0.1:{{port}}:{{port}} -e KAFKA_NODE_ID={{node}} "
        "-e KAFKA_PROCESS_ROLES=broker,controller -e KAFKA_CONTROLLER_QUORUM_VOTERS={node}@localhost:9093 "
        "-e KAFKA_LISTENERS=PLAINTEXT://:{port},CONTROLLER://:9093 -e KAFKA_CONTROLLER_LISTENER_NAMES=CONTROLLER "
        "-e KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://127.0.0.1:{port} -e KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR=1 "
        f"-e KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR=1 -e KAFKA_TRANSACTION_STATE_LOG_MIN_ISR=1 {IMAGE}",
        "kill": f"{DOCKER} kill {NAME}",
        "stop": f"{DOCKER} stop {NAME}",
        "restart": f"{DOCKER} restart {NAME}",
        "pause": f"{DOCKER} pause {NAME}",
        "resume": f"{DOCKER} unpause {NAME}",
        "logs": f"{DOCKER} logs {NAME} 2>&1",
        "remove": f"{DOCKER} rm -f -v {NAME}",
    },
)
