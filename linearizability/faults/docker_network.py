"""A network of containers: what `network` does with namespaces of its own, done with Docker's.

Each place is a host container on one bridge without a way out. The sender cuts a link: it is given a hardware
address that no host has (`link_agent`). What clients send cannot be cut so, for they are not in a container: a link from
the clients to a node is cut by cutting the way back, which is as good where answers are needed.
"""

import json
import secrets
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, Any

from linearizability.faults.network import CLIENTS, CountedCuts
from linearizability.targets import leash
from linearizability.targets.docker import LABEL, DockerHost, Image, docker, remove_leftovers, run_words
from linearizability.targets.hosts import Host
from linearizability.targets.target import TargetError

SUBNET = "172.31.77"
GATEWAY = f"{SUBNET}.254"


class DockerNetwork(CountedCuts):
    """Hosts in containers on a bridge."""

    def __init__(self, hosts: int, image: Image) -> None:
        super().__init__(hosts)
        self.image = image
        self.name = f"tidegauge-{secrets.token_hex(4)}"
        self._agents: dict[int, subprocess.Popen[str]] = {}
        self._errors: dict[int, IO[str]] = {}
        """Each agent's standard error: it has Docker's warnings too, so it is no answer."""

    @property
    def hosts(self) -> Sequence[Host]:
        """The hosts of node 1, 2 …."""
        return [
            DockerHost(_address(place), container=self._container(place), image=self.image) for place in self._agents
        ]

    def _link(self, sender: int, receiver: int) -> tuple[int, int]:
        """A link that begins at the clients is cut at its other end."""
        return (receiver, sender) if sender == CLIENTS else (sender, receiver)

    def _set(self, sender: int, receiver: int, *, is_cut: bool) -> None:
        self._ask(sender, {"cut" if is_cut else "join": _address(receiver)})

    def _ask(self, place: int, order: dict[str, Any]) -> None:
        agent = self._agents[place]
        assert agent.stdin is not None and agent.stdout is not None
        with suppress(OSError):
            agent.stdin.write(json.dumps(order) + "\n")
            agent.stdin.flush()
        answer = agent.stdout.readline().strip()
        if answer != "done":
            self._errors[place].seek(0)
            reason = answer or self._errors[place].read().strip() or "it has ended"
            raise TargetError(f"the host {self._container(place)} did not do {order}: {reason}")

    # ---- building

    def _build(self) -> None:
        remove_leftovers()
        docker(
            "network",
            "create",
            "--internal",
            "--subnet",
            f"{SUBNET}.0/24",
            "--gateway",
            GATEWAY,
            "--label",
            f"{LABEL}={leash.owner()}",
            self.name,
        )
        for place in range(1, self.size + 1):
            command = [
                *run_words(), "--interactive", "--name", self._container(place), "--network", self.name,
                "--ip", _address(place), "--user", "0", "--cap-add", "NET_ADMIN", *self.image.words(), self.image.name,
                self.image.python, "-m", "linearizability.faults.link_agent",
            ]  # fmt: skip
            self._errors[place] = tempfile.TemporaryFile("w+")  # noqa: SIM115
            self._agents[place] = leash.start(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors[place], text=True
            )
        for place in self._agents:
            self._ask(place, {})

    def close(self) -> None:
        """Remove the containers and the network. May be called twice; never raises."""
        for place, agent in self._agents.items():
            with suppress(TargetError):
                docker("rm", "--force", self._container(place))
            agent.kill()
            agent.wait()
            leash.let_go(agent.pid)
            self._errors.pop(place).close()
        self._agents.clear()
        with suppress(TargetError):
            docker("network", "rm", self.name)

    def _container(self, place: int) -> str:
        return f"{self.name}-host-{place}"


def _address(place: int) -> str:
    return GATEWAY if place == CLIENTS else f"{SUBNET}.{place}"
