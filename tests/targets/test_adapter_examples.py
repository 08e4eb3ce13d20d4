"""`adapter new` writes an adapter that `adapter check` accepts: a binary, containers, machines that a command reaches."""

import json
import os
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from conformance.adapter_commands import app
from linearizability.targets import open_target
from linearizability.targets.ports import free_ports
from linearizability.targets.wire import answers

REFERENCE = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
log.dirs={home}/data
offsets.topic.replication.factor=1
"""
SERVER = """#!/bin/bash
# ACTION HOME: what a machine's service manager, or docker, does with one broker.
cd "$2"
gone() { while kill -0 $(cat pid) 2>/dev/null; do sleep 0.1; done; }
case "$1" in
  start) nohup PYTHON -m tidegauge serve p >> log 2>&1 < /dev/null & echo $! > pid ;;
  kill) kill -9 $(cat pid) ;;
  stop) kill $(cat pid) ;;
  restart) kill $(cat pid) 2>/dev/null; gone; exec $0 start "$2" ;;
  pause) kill -STOP $(cat pid) ;;
  unpause) kill -CONT $(cat pid) ;;
  logs) cat log ;;
  rm) kill -9 $(cat pid) 2>/dev/null; gone; rm -rf data pid ;;
esac
"""
DOCKER = """#!/bin/bash
# Stands for docker, with one container, which is a process of the reference; takes its port from `-p`.
action=$1
if [ "$action" = run ]; then
  for word; do case "$word" in 127.0.0.1:*:*) port=${word##*:} ;; esac; done
  sed "s/@PORT@/$port/g" HOME/template > HOME/p
  action=start
fi
exec HOME/server "$action" HOME
"""


def program(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a program that starts, stops and freezes one broker."""
    folder = tmp_path / "machine"
    folder.mkdir()
    program(folder / "server", SERVER.replace("PYTHON", sys.executable))
    return folder


def tidegauge(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output


def checked(adapter: str) -> tuple[int, dict[str, list[str]]]:
    code, output = tidegauge("check", adapter, "--json")
    return code, json.loads(output.splitlines()[-1]) | {"all": output}


@pytest.mark.slow
def test_a_binary_keeps_the_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    assert tidegauge("new", "mine")[0] == 0
    code, found = checked("./mine")
    assert (code, found["broken"]) == (0, []), found["all"]
    assert set(found["missing"]) == {
        f"hook {name}" for name in ("partition", "heal", "config", "clock", "disk", "power-loss")
    }
    assert "requirements are not judged" in str(found["all"])


def test_new_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    assert tidegauge("new", str(tmp_path / "mine"))[0] == 2
    assert (tmp_path / "mine").read_text() == "precious"


def test_a_binary_is_started_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the environment that has tidegauge is not on the PATH."""
    own = Path(sys.executable).parent
    monkeypatch.setenv("PATH", os.pathsep.join(one for one in os.environ["PATH"].split(os.pathsep) if Path(one) != own))
    assert tidegauge("new", str(tmp_path / "mine"))[0] == 0
    with open_target(f"exec:{tmp_path}/mine", folder=tmp_path / "run") as target:
        target.kill(1)
        target.restart(1)
        assert answers("127.0.0.1", target.nodes[0].port, timeout_s=30)


def adapter_of_a_machine(tmp_path: Path, home: Path) -> str:
    port, controller = free_ports(2)
    (home / "p").write_text(REFERENCE.format(port=port, controller=controller, home=home))
    actions = {
        "start": "rm",
        "stop": "stop",
        "kill": "kill",
        "restart": "restart",
        "pause": "pause",
        "resume": "unpause",
    }
    commands = {name: f"{home}/server {action} {home}" for name, action in actions.items()}
    commands |= {
        "start": f"rm -rf {home}/data; {home}/server start {home}",
        "remove": f"{home}/server rm {home}",
        "logs": f"cat {home}/log",
    }
    prefix = program(tmp_path / "ssh", '#!/bin/bash\n[ "$1" = 127.0.0.1 ] && exec sh -c "$2"\n') + " {host}"
    cluster = {"nodes": {"1": ["127.0.0.1", port]}, "prefix": prefix, "commands": commands}
    (tmp_path / "cluster.json").write_text(json.dumps(cluster))
    assert tidegauge("new", str(tmp_path / "mine"), "--kind", "remote")[0] == 0
    return f"{tmp_path}/mine {tmp_path}/cluster.json"


@pytest.mark.slow
def test_machines_are_reached_by_a_command(tmp_path: Path, home: Path) -> None:
    with open_target(f"exec:{adapter_of_a_machine(tmp_path, home)}", folder=tmp_path / "run") as target:
        target.kill(1)
        assert not answers("127.0.0.1", target.nodes[0].port)
        target.restart(1)
        assert target.logs(1)[0].read_text()
    assert not (home / "data").exists()


@pytest.mark.slow
def test_machines_keep_the_contract(tmp_path: Path, home: Path) -> None:
    code, found = checked(adapter_of_a_machine(tmp_path, home))
    assert (code, found["broken"]) == (0, []), found["all"]


@pytest.mark.slow
def test_a_container_keeps_the_contract(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "template").write_text(REFERENCE.format(port="@PORT@", controller=free_ports(1)[0], home=home))
    program(tmp_path / "docker", DOCKER.replace("HOME", str(home)))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert tidegauge("new", str(tmp_path / "mine"), "--kind", "container")[0] == 0
    code, found = checked(f"{tmp_path}/mine")
    assert (code, found["broken"]) == (0, []), found["all"]
