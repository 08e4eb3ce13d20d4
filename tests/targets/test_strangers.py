"""Brokers that others wrote start by their short names, and are brought back when they died."""

import shutil

import pytest

from linearizability.targets import HookMissing, open_target
from linearizability.targets.wire import answers


@pytest.mark.parametrize("spec", ["tansu", "rdkafka-mock", pytest.param("kfake", marks=pytest.mark.slow)])
def test_a_stranger_of_one_node_dies_and_is_brought_back(spec, tmp_path):
    _require_go(spec)
    with open_target(spec, folder=tmp_path, config={"no.such.property": "1"}) as target:
        (node,) = target.nodes
        target.pause(node.id)
        assert not answers(node.host, node.port, timeout_s=0.2)
        target.resume(node.id)
        assert answers(node.host, node.port)
        target.kill(node.id)
        assert not target.running(node.id) and not answers(node.host, node.port)
        target.revive()
        (node,) = target.nodes
        assert answers(node.host, node.port)
        assert target.describe()["unknown_config"] == ["no.such.property"]
    assert not answers(node.host, node.port)


@pytest.mark.parametrize("spec", ["rdkafka-mock:3", pytest.param("kfake:3", marks=pytest.mark.slow)])
def test_several_nodes_in_one_process_are_not_killed_one_by_one(spec, tmp_path):
    _require_go(spec)
    with open_target(spec, folder=tmp_path) as target:
        assert len(target.nodes) == 3 and all(answers(node.host, node.port) for node in target.nodes)
        with pytest.raises(HookMissing):
            target.kill(target.nodes[0].id)
        target.revive()
        assert len(target.nodes) == 3 and all(answers(node.host, node.port) for node in target.nodes)


def _require_go(spec):
    if spec.startswith("kfake") and not shutil.which("go"):
        pytest.skip("kfake is built with Go, which is not installed")
