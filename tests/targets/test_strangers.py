"""Brokers that others wrote start by their short names, and are brought back when they died."""

import shutil

import pytest

from linearizability.targets import HookMissing, WrongTarget, open_target
from linearizability.targets.wire import answers

BUILT = [pytest.param(spec, marks=pytest.mark.slow) for spec in ("kfake", "crabka")]


@pytest.mark.parametrize("spec", ["tansu", "noida", "rdkafka-mock", *BUILT])
def test_a_stranger_of_one_node_dies_and_is_brought_back(spec, tmp_path):
    _require_compiler(spec)
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
    _require_compiler(spec)
    with open_target(spec, folder=tmp_path) as target:
        assert len(target.nodes) == 3 and all(answers(node.host, node.port) for node in target.nodes)
        with pytest.raises(HookMissing):
            target.kill(target.nodes[0].id)
        target.revive()
        assert len(target.nodes) == 3 and all(answers(node.host, node.port) for node in target.nodes)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_each_node_of_crabka_is_a_process(tmp_path):
    _require_compiler("crabka")
    with open_target("crabka:3", folder=tmp_path) as target:
        one, *others = target.nodes
        target.kill(one.id)
        assert [answers(node.host, node.port) for node in (one, *others)] == [False, True, True]
        target.restart(one.id)
        assert answers(one.host, one.port)


def test_crabka_joins_no_cluster_of_kafka(tmp_path):
    with pytest.raises(WrongTarget, match="'crabka' is no node of such a cluster"):
        open_target("mixed:kafka:4.3.1,crabka", folder=tmp_path)


def _require_compiler(spec):
    compiler = {"kfake": "go", "crabka": "cargo"}.get(spec.partition(":")[0], "")
    if compiler and not shutil.which(compiler):
        pytest.skip(f"{spec} is built with {compiler}, which is not installed")
