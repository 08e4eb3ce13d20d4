"""An adapter whose hooks are shell commands: for containers, remote machines, and other brokers that a script can start.

    serve("my broker", nodes={1: ("127.0.0.1", 9092)}, commands={"start": "docker run -d --name b{node} …", "kill": "…"})

`sh` runs each command, with `{node}`, `{host}`, `{port}` and `{folder}` replaced. A `prefix` (as `ssh {host}`) runs it
instead, and gets it as one argument. A hook without a command is not offered.

| command | what it does |
| --- | --- |
| start | starts a node with no data and returns; with `{config}`, the path of a file of broker properties, these are honoured |
| remove | ends a node and removes its data; without it `stop`, or else `kill`, is used |
| stop, kill, restart, pause, resume | as in CONTRACT.md; `restart` must also start a node that is down, with its data |
| logs | prints the node's log |
"""

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from linearizability.targets.wire import answers

HOOKS = ("kill", "stop", "restart", "pause", "resume", "logs")
COMMAND_WITHIN_S = 100
ANSWERS_WITHIN_S = 100
GONE_WITHIN_S = 20
LOOK_AGAIN_S = 0.2


class Failed(Exception):
    """A command failed; the sentence becomes the response's `error`."""


class ShellAdapter:
    """The nodes of a cluster, and the commands by which they are started and hurt."""

    def __init__(
        self, name: str, nodes: Mapping[int, tuple[str, int]], commands: Mapping[str, str], prefix: str = ""
    ) -> None:
        self.name, self.all_nodes, self.commands, self.prefix = name, nodes, commands, prefix
        self.nodes: dict[int, tuple[str, int]] = {}
        self.folder = Path()

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The result of one request. Errors: Failed."""
        command, node = request["command"], int(request.get("node", 0))
        match command:
            case "describe":
                hooks = [hook for hook in HOOKS if hook in self.commands]
                config = "{config}" in self.commands["start"]
                return {
                    "contract": 1,
                    "name": self.name,
                    "hooks": hooks,
                    "max_nodes": len(self.all_nodes),
                    "config": config,
                }
            case "start":
                return self.start(int(request["nodes"]), Path(request["folder"]), request.get("config", {}))
            case "stop" if not node:
                self.end()
            case "logs":
                path = self.folder / f"node-{node}.log"
                path.write_text(self.run("logs", node))
                return {"paths": [str(path)]}
            case _ if command in self.commands and node in self.nodes:
                self.run(command, node)
                if command in ("kill", "stop"):
                    self.wait(node, False, GONE_WITHIN_S)
                elif command == "restart":
                    self.wait(node, True, ANSWERS_WITHIN_S)
            case _:
                raise Failed(f"{command} is not offered")
        return {}

    def start(self, nodes: int, folder: Path, config: Mapping[str, str]) -> dict[str, Any]:
        self.folder = folder
        for node in list(self.all_nodes)[:nodes]:
            self.nodes[node] = self.all_nodes[node]
            (folder / f"node-{node}.properties").write_text(
                "".join(f"{key}={value}\n" for key, value in config.items())
            )
            self.run("start", node)
        for node in self.nodes:
            self.wait(node, True, ANSWERS_WITHIN_S)
        return {"nodes": [{"id": node, "host": host, "port": port} for node, (host, port) in self.nodes.items()]}

    def run(self, command: str, node: int) -> str:
        host, port = self.nodes[node]
        known = {
            "node": node,
            "host": host,
            "port": port,
            "folder": self.folder,
            "config": self.folder / f"node-{node}.properties",
        }
        text = self.commands[command].format_map(known)
        line = [*self.prefix.format_map(known).split(), text] if self.prefix else ["sh", "-c", text]
        try:
            done = subprocess.run(
                line,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=sys.stderr,
                text=True,
                errors="replace",
                timeout=COMMAND_WITHIN_S,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Failed(f"{command} of node {node}: {error}") from None
        if done.returncode:
            raise Failed(f"{command} of node {node}: exit status {done.returncode}, see adapter.log: {text}")
        return done.stdout

    def wait(self, node: int, up: bool, within_s: float) -> None:
        host, port = self.nodes[node]
        until = time.monotonic() + within_s
        while answers(host, port, timeout_s=1) is not up:
            if time.monotonic() > until:
                raise Failed(
                    f"node {node} at {host}:{port} {'does not answer' if up else 'still answers'} after {within_s:.0f} s"
                )
            time.sleep(LOOK_AGAIN_S)

    def end(self) -> None:
        """End every node, also after a failure on one. Errors: Failed, with all failures."""
        command = next(name for name in ("remove", "stop", "kill") if name in self.commands)
        failures: list[str] = []
        for node in list(self.nodes):
            try:
                self.run(command, node)
            except Failed as error:
                failures.append(str(error))
            del self.nodes[node]
        if failures:
            raise Failed("; ".join(failures))


def serve(name: str, nodes: Mapping[int, tuple[str, int]], commands: Mapping[str, str], prefix: str = "") -> None:
    """Answer requests until standard input ends; then end all nodes."""
    adapter = ShellAdapter(name, nodes, commands, prefix)
    try:
        for line in sys.stdin:
            request = json.loads(line)
            try:
                said = {"id": request["id"], "ok": adapter.answer(request)}
            except (Failed, OSError) as error:
                said = {"id": request["id"], "error": str(error)}
            print(json.dumps(said), flush=True)
    finally:
        adapter.end()
