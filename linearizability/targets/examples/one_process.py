#!/usr/bin/env python3
"""An example adapter: any broker that is one process. Standard library only; copy it and change `command`.

    tidegauge run  --target exec:./one_process.py
    tidegauge hunt --target "exec:./one_process.py my-broker --listen 127.0.0.1:{port} --data {data}"

Without arguments it runs this project's own broker. It reads requests from standard input, one JSON object a line, and writes
responses to standard output. Other messages go to standard error, which is logged in the run's folder.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

START_WITHIN_S = 110


class Failed(Exception):
    """The hook failed; the sentence becomes the response's `error`."""


class Broker:
    """The one node. Its data and its log are in the folder that `start` names."""

    def __init__(self):
        self.process = None

    def start(self, folder, config):
        self.folder = Path(folder)
        self.port = free_port()
        self.arguments = command(self.port, self.folder, config)
        self.launch()
        return {"nodes": [{"id": 1, "host": "127.0.0.1", "port": self.port}]}

    def launch(self):
        with (self.folder / "broker.log").open("ab") as log:
            self.process = subprocess.Popen(self.arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until = time.monotonic() + START_WITHIN_S
        while not listens(self.port):
            if self.process.poll() is not None or time.monotonic() > until:
                end = (self.folder / "broker.log").read_text(errors="replace")[-500:]
                raise Failed(f"the broker does not listen; {self.folder / 'broker.log'} ends: {end}")
            time.sleep(0.05)

    def end(self, number):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(number)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def restart(self):
        self.end(signal.SIGTERM)
        self.launch()

    def freeze(self, number):
        if self.process is None or self.process.poll() is not None:
            raise Failed("the broker is down")
        self.process.send_signal(number)


def command(port, folder, config):
    """The command of the broker: this adapter's arguments, or else this project's own broker."""
    if len(sys.argv) > 1:
        return [part.format(port=port, data=folder / "data") for part in sys.argv[1:]]
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{port + 1}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 1}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(folder / "data"),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        **config,
    }
    file = folder / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return [shutil.which("tidegauge") or "tidegauge", "serve", str(file)]


def free_port():
    """A free port below the range of outgoing connections, so that it remains free while the broker is down. tidegauge uses
    ports from 11000 on for the brokers that it starts itself."""
    for port in range(6000 + os.getpid() * 7 % 4500, 10998, 3):
        if not listens(port) and not listens(port + 1):
            return port
    raise Failed("no free port")


def listens(port):
    with contextlib.closing(socket.socket()) as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def answer(broker, request):
    """The result of one request; an empty object where there is nothing to report."""
    match request:
        case {"command": "describe"}:
            hooks = ["kill", "stop", "restart", "pause", "resume", "logs"]
            return {"contract": 1, "name": "one process", "hooks": hooks, "max_nodes": 1, "config": len(sys.argv) == 1}
        case {"command": "start", "folder": folder}:
            return broker.start(folder, request.get("config", {}))
        case {"command": "stop"}:
            broker.end(signal.SIGTERM)
        case {"command": "kill"}:
            broker.end(signal.SIGKILL)
        case {"command": "restart"}:
            broker.restart()
        case {"command": "pause"}:
            broker.freeze(signal.SIGSTOP)
        case {"command": "resume"}:
            broker.freeze(signal.SIGCONT)
        case {"command": "logs"}:
            return {"paths": [str(broker.folder / "broker.log")]}
        case _:
            raise Failed(f"{request.get('command')} is not offered")
    return {}


def main():
    """Answer requests until standard input ends; then end the broker."""
    broker = Broker()
    try:
        for line in sys.stdin:
            request = json.loads(line)
            try:
                said = {"id": request["id"], "ok": answer(broker, request)}
            except (Failed, OSError) as error:
                said = {"id": request["id"], "error": str(error)}
            print(json.dumps(said), flush=True)
    finally:
        broker.end(signal.SIGKILL)


if __name__ == "__main__":
    main()
