"""The contract check accepts an adapter that keeps the contract, and reports each broken promise in a line of its own."""

import sys

import pytest

from conformance import contract_check
from conformance.contract_check import check_contract
from linearizability.targets import adapter

BROKER = """
import signal, socket, struct, sys, threading

signal.alarm(300)  # one that escapes its adapter ends, too

def serve(connection):
    while size := connection.recv(4):
        request = connection.recv(struct.unpack(">i", size)[0])
        answer = request[4:8] + struct.pack(">hihhh", 0, 1, 18, 0, 0)  # ApiVersions alone, in version 0
        connection.sendall(struct.pack(">i", len(answer)) + answer)

server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    threading.Thread(target=serve, args=[server.accept()[0]], daemon=True).start()
"""
"""Answers ApiVersions and nothing else."""

ADAPTER = """
import json, os, signal, subprocess, sys, time, socket

broken, broker_file, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
process = None

def launch():
    global process
    process = subprocess.Popen([sys.executable, broker_file, str(port)], stdout=2, start_new_session=broken == "escapes")
    while socket.socket().connect_ex(("127.0.0.1", port)):
        time.sleep(0.01)

def end(number=signal.SIGKILL):
    process.send_signal(number)
    process.wait()

def answer(request):
    command, node = request["command"], request.get("node")
    if command == "describe":
        return {"contract": 1, "name": "small", "hooks": ["kill", "stop", "restart", "pause", "resume", "logs"]}
    if command == "start":
        launch()
        return {"nodes": [{"id": 1, "host": "127.0.0.1", "port": port}]}
    if command == broken:
        return {}
    if command in ("kill", "stop"):
        end()
    elif command == "restart":
        end()
        launch()
    elif command == "pause":
        end() if broken == "pauses by killing" else process.send_signal(signal.SIGSTOP)
    elif command == "resume":
        process.send_signal(signal.SIGCONT)
    elif command == "logs":
        return {"paths": [broker_file if broken != "no log" else "/nowhere/broker.log"]}
    return {}

for line in sys.stdin:
    request = json.loads(line)
    print(json.dumps({"id": request["id"], "ok": answer(request)}), flush=True)
if broken != "escapes":
    end()
"""


@pytest.fixture(autouse=True)
def _hurry(monkeypatch):
    monkeypatch.setattr(contract_check, "ENDS_WITHIN_S", 0.5)
    monkeypatch.setattr(contract_check, "FROZEN_FOR_S", 0.2)
    monkeypatch.setattr(contract_check, "ANSWERS_WITHIN_S", 0.1)
    monkeypatch.setattr(adapter, "END_WITHIN_S", 1.0)


def lines(broken, tmp_path):
    from linearizability.targets.ports import free_ports

    (tmp_path / "broker.py").write_text(BROKER)
    (tmp_path / "adapter.py").write_text(ADAPTER)
    spec = f"exec:{sys.executable} {tmp_path}/adapter.py '{broken}' {tmp_path}/broker.py {free_ports(1)[0]}"
    return {check.name: check for check in check_contract(spec, tmp_path / "target")}


def test_a_sound_adapter_is_found_sound(tmp_path):
    found = lines("nothing", tmp_path)
    assert {name for name, check in found.items() if check.state == "broken"} == set(), found
    assert {name for name, check in found.items() if check.state == "missing"} == {
        f"hook {hook}" for hook in ("partition", "heal", "config", "clock", "disk", "power-loss")
    }
    assert "not seen: nothing could be written (the topic tidegauge-contract-" in found["hook restart"].found
    assert "1 requirement is not judged" in found["hook partition"].advice
    assert found["describe and start"].found.startswith("small, 1 of")


HTTP = """
import json, socketserver, sys, threading

class Refuses(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.recv(1024)
        self.request.sendall(b"HTTP/1.1 400 Bad Request\\r\\n\\r\\n")

server = socketserver.TCPServer(("127.0.0.1", 0), Refuses)
threading.Thread(target=server.serve_forever, daemon=True).start()
for line in sys.stdin:
    request = json.loads(line)
    ok = {
        "describe": {"contract": 1, "name": "web", "hooks": ["kill"]},
        "start": {"nodes": [{"id": 1, "host": "127.0.0.1", "port": server.server_address[1]}]},
    }.get(request["command"], {})
    print(json.dumps({"id": request["id"], "ok": ok}), flush=True)
"""


def test_what_answers_instead_of_a_broker_is_named_and_its_hooks_are_left_alone(tmp_path):
    (tmp_path / "adapter.py").write_text(HTTP)
    (found,) = check_contract(f"exec:{sys.executable} {tmp_path}/adapter.py", tmp_path / "target")
    assert found.state == "broken" and "an HTTP server answers, and no broker" in found.found


@pytest.mark.parametrize(
    ("broken", "name", "sentence"),
    [
        ("kill", "hook kill", "the node's connections stay open"),
        pytest.param("stop", "hook stop", "the node's connections stay open", marks=pytest.mark.slow),
        pytest.param("restart", "hook restart", "its connections outlived the restart", marks=pytest.mark.slow),
        ("pause", "hook pause", "the paused node still answers"),
        pytest.param("pauses by killing", "hook pause", "it ended instead", marks=pytest.mark.slow),
        pytest.param("no log", "hook logs", "no such file: /nowhere", marks=pytest.mark.slow),
        ("escapes", "end of input", "still answers"),
    ],
)
def test_each_broken_promise_has_its_line(broken, name, sentence, tmp_path):
    found = lines(broken, tmp_path)
    assert found[name].state == "broken"
    assert sentence in found[name].found
