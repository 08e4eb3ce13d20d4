"""sarama's functional tests: five brokers, each behind a proxy that the tests cut. They stop brokers by `docker compose`.

The tests reach broker N at 127.0.0.1:2909N. There Shopify's toxiproxy listens, built from the released Go module; the broker's
listener for clients has the same port at 127.0.0.1N, and brokers reach each other at their first listener, without a proxy.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import Listener
from pathlib import Path

from linearizability.targets.cluster import ClusterTarget, Member
from linearizability.targets.hosts import Host
from tests.clients.suites.go_tests import go_tests, module
from tests.clients.suites.suite import OUTPUT_KEPT, Order, Outcome, Suite
from tests.tools.jvm import RELEASE

NODES = 5
API_PORT = 8474
TOXIPROXY = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0"
DOCKER = """#!{python}
import sys
from multiprocessing.connection import Client

with Client({path!r}) as runner:
    runner.send(sys.argv[1:])
    status, text = runner.recv()
print(text)
sys.exit(status)
"""
"""A program of this name on the PATH passes its arguments to the process that has the cluster."""


def client_port(node: int) -> int:
    return 29_090 + node


def properties(member: Member) -> dict[str, str]:
    """A listener for clients whose address is the proxy's, and a rack, as in sarama's own cluster."""
    given, node = member.properties, member.node.id
    port = client_port(node)
    return {
        "listeners": f"{given['listeners']},LOCAL://{member.host.address}:{port}",
        "advertised.listeners": f"{given['advertised.listeners']},LOCAL://localhost:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOCAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "broker.rack": str(node),
    }


def answer(target: ClusterTarget, arguments: Sequence[str]) -> tuple[int, str]:
    """The exit status and output of `docker ARGUMENTS` for the commands that the tests use."""
    node = int(arguments[-1].removeprefix("kafka-")) if re.fullmatch(r"kafka-\d", arguments[-1]) else 0
    match arguments[:2]:
        case ["compose", "stop"] if node:
            target.stop(node)
        case ["compose", "start"] if node:
            if not target.running(node):
                target.restart(node)
        case ["compose", "logs"] if node:
            return 0, target.member(node).process.log.read_text(errors="replace")
        case _:
            return 1, f"only brokers are stopped and started here, not {' '.join(arguments)}"
    return 0, ""


@contextmanager
def docker(target: ClusterTarget, folder: Path) -> Iterator[None]:
    """While this is open, a program `docker` in the folder acts on the target's nodes."""
    path = str(folder / "runner")
    (folder / "docker").write_text(DOCKER.format(python=sys.executable, path=path))
    (folder / "docker").chmod(0o755)

    def serve(listener: Listener) -> None:
        with suppress(OSError):
            while True:
                with listener.accept() as asked:
                    asked.send(answer(target, asked.recv()))

    with Listener(path) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        yield


@contextmanager
def toxiproxy(home: Path, folder: Path) -> Iterator[None]:
    """The proxies of all nodes."""
    program, settings = home / "toxiproxy", folder / "toxiproxy.json"
    if not program.exists():
        package = TOXIPROXY.partition("@")[0]
        built = subprocess.run(
            ["go", "build", "-o", program, package], cwd=home, capture_output=True, text=True, check=False
        )
        if built.returncode:
            raise SystemExit(f"toxiproxy cannot be built: {built.stderr[-OUTPUT_KEPT:]}")
    proxies = [
        {"name": f"kafka{node}", "listen": f"127.0.0.1:{port}", "upstream": f"127.0.0.1{node}:{port}", "enabled": True}
        for node in range(1, NODES + 1)
        for port in [client_port(node)]
    ]
    settings.write_text(json.dumps(proxies))
    with (
        (folder / "toxiproxy.log").open("wb") as log,
        subprocess.Popen(
            [program, "-host=127.0.0.1", f"-port={API_PORT}", f"-config={settings}"], stdout=log, stderr=log
        ) as process,
    ):
        try:
            yield
        finally:
            process.terminate()


def functional_tests(home: Path) -> list[str]:
    """The tests of sarama's files that need a cluster; the package's other tests need none."""
    command = ["go", "list", "-f", "{{.Dir}}", SARAMA.library]
    folder = Path(subprocess.run(command, cwd=home, capture_output=True, text=True, check=True).stdout.strip())
    texts = [file.read_text() for file in sorted(folder.glob("functional_*_test.go"))]
    return [name for text in texts for name in re.findall(r"^func (Test\w+)\(t ", text, re.M)]


def run(order: Order) -> Iterator[Outcome]:
    home = module(SARAMA, TOXIPROXY)
    chosen = [name for name in functional_tests(home) if re.search(order.chosen, name)]
    settings = {"TOXIPROXY_ADDR": f"http://127.0.0.1:{API_PORT}", "KAFKA_VERSION": RELEASE}
    with toxiproxy(home, order.folder), docker(order.target, order.folder):
        pattern = replace(order, chosen=f"^({'|'.join(chosen)})$")
        yield from go_tests(SARAMA, pattern, "", settings, flags=["-tags=functional"])


SARAMA = Suite(
    "sarama",
    "github.com/IBM/sarama",
    "v1.61.1",
    nodes=NODES,
    run=run,
    config={
        "default.replication.factor": "2",
        "offsets.topic.replication.factor": "2",
        "transaction.state.log.replication.factor": "2",
        "transaction.state.log.min.isr": "1",
        "auto.create.topics.enable": "false",
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    },
    hosts=tuple(Host(f"127.0.0.1{node}") for node in range(1, NODES + 1)),
    of_each_node=properties,
    left_out="Tests that need no broker, and those that run Kafka's console tools in a container; they skip themselves.",
)
