"""The contract of `exec:` targets: kept by the example, enforced against adapters that break it."""

import re
import sys
from pathlib import Path

import pytest

from linearizability.targets import HookMissing, TargetError, open_target
from linearizability.targets import contract as contract_module
from linearizability.targets.target import HOOKS

TARGETS = Path(contract_module.__file__).parent
EXAMPLE = TARGETS / "examples" / "one_process.py"

LISTENER = """
import os, socket, sys, time
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listens", os.getpid(), flush=True)
while True:
    server.accept()[0].close()
"""

DESCRIPTION = {"contract": 1, "name": "test", "hooks": ["kill"], "max_nodes": 1}


@pytest.fixture
def example(tmp_path):
    listener = tmp_path / "listener.py"
    listener.write_text(LISTENER)
    return f"exec:{sys.executable} {EXAMPLE} {sys.executable} {listener} {{port}}"


def adapter(tmp_path: Path, answers: str) -> str:
    """The spec of an adapter that runs `answers`, Python statements, for each request `r`; `say` writes a response."""
    script = tmp_path / "adapter.py"
    body = "".join(f"    {line}\n" for line in answers.splitlines())
    script.write_text(
        "import json, sys, time\n"
        "def say(**answer): print(json.dumps(answer), flush=True)\n"
        f"description = {DESCRIPTION!r}\n"
        "started = {'nodes': [{'id': 1, 'host': '127.0.0.1', 'port': 9}]}\n"
        "for line in sys.stdin:\n"
        "    r = json.loads(line)\n"
        f"{body}"
    )
    return f"exec:{sys.executable} {script}"


def test_the_example_does_what_it_lists(example, tmp_path):
    with open_target(example, folder=tmp_path) as target:
        assert re.fullmatch(r"127\.0\.0\.1:\d+", target.bootstrap)
        log = target.logs(1)[0]
        for hook in ("kill", "restart", "pause", "resume", "stop", "restart"):
            getattr(target, hook)(1)
        assert log.read_text().count("listens") == 3
        with pytest.raises(HookMissing, match="power-loss"):
            target.power_loss([1])
        target.kill(1)
        with pytest.raises(TargetError, match="pause failed: the broker is down"):
            target.pause(1)


def test_properties_that_an_adapter_does_not_take_are_unknown(example, tmp_path):
    with open_target(example, folder=tmp_path, config={"log.retention.ms": "1"}) as target:
        assert list(target.unknown_config) == ["log.retention.ms"]
        assert target.describe()["unknown_config"] == ["log.retention.ms"]


@pytest.mark.parametrize(("listeners", "unknown"), [(False, ["listener.name.a.b"]), (True, [])])
def test_properties_of_listeners_are_for_adapters_that_say_so(tmp_path, listeners, unknown):
    path = tmp_path / "adapter.py"
    results = {
        "describe": {"contract": 1, "name": "n", "config": True, "listeners": listeners},
        "start": {"nodes": [{"id": 1, "host": "localhost", "port": 1}]},
    }
    path.write_text(
        f"import json, sys\nfor line in sys.stdin:\n    asked = json.loads(line)\n    ok = {results!r}.get(asked['command'], {{}})\n"
        "    print(asked, file=sys.stderr, flush=True)\n    print(json.dumps({'id': asked['id'], 'ok': ok}), flush=True)\n"
    )
    given = {"listener.name.a.b": "1", "log.retention.ms": "2"}
    with open_target(f"exec:{sys.executable} {path}", folder=tmp_path, config=given) as target:
        assert list(target.unknown_config) == unknown
        log = next(tmp_path.rglob("adapter.log")).read_text()
        assert ("listener.name.a.b" in log) == listeners and "'log.retention.ms': '2'" in log


def test_what_died_is_brought_back(example, tmp_path):
    with open_target(example, folder=tmp_path) as target:
        target.kill(1)
        target.revive()
        assert target.logs(1)[0].read_text().count("listens") == 2


def test_an_adapter_without_restart_is_started_again(tmp_path):
    with open_target(adapter(tmp_path, ORDERLY), folder=tmp_path) as target:
        target.revive()
        assert target.bootstrap == "127.0.0.1:9"
        assert (tmp_path / "target-2" / "adapter.log").exists()


ORDERLY = (
    "say(id=r['id'], ok=description if r['command'] == 'describe' else started if r['command'] == 'start' else {})"
)

BREACHES = [
    ("print('hello', flush=True)", "breaks the contract: .*'hello'"),
    ("say(id=r['id'] + 1, ok={})", "the answer's id is 2, the request's was 1"),
    ("say(id=r['id'])", "either `ok` or `error`"),
    ("say(id=r['id'], ok=description | {'hoks': []})", "the result of describe: hoks: the contract has no such field"),
    ("say(id=r['id'], ok=description | {'hooks': ['explode']})", "the result of describe: hooks.0"),
    ("say(id=r['id'], ok=description | {'contract': 2})", "the result of describe: contract"),
    ("say(id=r['id'], ok=description if r['command'] == 'describe' else {'nodes': []})", "the result of start: nodes"),
    ("say(id=r['id'], error='no licence')", "describe failed: no licence"),
    ("sys.exit('out of ideas')", "ended with exit code 1 when describe was asked(.|\n)*out of ideas"),
    ("print('x' * 2_000_000, flush=True)", "longer than"),
]


@pytest.mark.parametrize(("answers", "reason"), BREACHES)
def test_breaches_are_named(answers, reason, tmp_path):
    with pytest.raises(TargetError, match=reason), open_target(adapter(tmp_path, answers), folder=tmp_path):
        pass


def test_an_adapter_that_says_nothing_is_given_up(tmp_path, monkeypatch):
    from linearizability.targets import adapter as adapter_module

    monkeypatch.setitem(adapter_module.ANSWER_WITHIN_S, "describe", 0.3)
    with (
        pytest.raises(TargetError, match="did not answer describe within"),
        open_target(adapter(tmp_path, "time.sleep(60)"), folder=tmp_path),
    ):
        pass


def test_a_program_of_this_folder_needs_its_path(tmp_path, monkeypatch):
    """As the shell has it: `tidegauge adapter new my-adapter` writes one that `exec:my-adapter` does not find."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-adapter").write_text("")
    with (
        pytest.raises(TargetError, match=r"; \./my-adapter is here"),
        open_target("exec:my-adapter", folder=tmp_path / "x"),
    ):
        pass


def test_a_file_that_is_no_program_is_named(tmp_path):
    (tmp_path / "adapter").write_text("#!/bin/sh\n")
    with pytest.raises(TargetError, match="chmod"), open_target(f"exec:{tmp_path}/adapter", folder=tmp_path):
        pass


def test_what_is_judged_is_named_and_no_secret_is_described(tmp_path):
    given = {"security.protocol": "PLAINTEXT", "sasl.jaas.config": "org.apache.X required password='open sesame';"}
    described = f"description | {{'version': '0.9', 'client': {given!r}}}"
    with open_target(adapter(tmp_path, ORDERLY.replace("description", described)), folder=tmp_path) as target:
        assert target.software == "test 0.9"
        assert target.describe()["adapter"]["version"] == "0.9"
        assert "sesame" not in str(target.describe())


def test_more_nodes_than_offered(tmp_path):
    with (
        pytest.raises(TargetError, match="offers 1 nodes; 3 are wanted"),
        open_target(adapter(tmp_path, ORDERLY), folder=tmp_path, nodes=3),
    ):
        pass


def test_the_page_names_every_command_and_hook():
    page = (TARGETS / "CONTRACT.md").read_text()
    for hook in HOOKS:
        assert f"| `{hook}` |" in page
    for model in (contract_module.Description, contract_module.Address, contract_module.Start):
        for name in model.model_fields:
            assert f'"{name}"' in page, f"{model.__name__}.{name}"
