"""A target's text is read strictly, and a hook that a target lacks is never passed over in silence."""

import pytest

from linearizability.targets import HOOKS, HookMissing, WrongTarget, open_target
from linearizability.targets.cluster import ClusterTarget
from linearizability.targets.ports import free_ports
from linearizability.targets.target import TargetError


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("", "is no target"),
        ("docker:kafka", "is no target"),
        ("kafka", "a version is needed"),
        ("kafka:4.3.1:0", "the number of nodes"),
        ("kafka:4.3.1:many", "the number of nodes"),
        ("reference:10", "the number of nodes"),
        ("addr:", "is no address"),
        ("addr:localhost", "is no address"),
        ("addr:localhost:99999", "is no address"),
        ("exec:", "a path is needed"),
        ("tansu:2", "at most 1 nodes"),
        ("noida:2", "at most 1 nodes"),
        ("kfake:0", "the number of nodes"),
    ],
)
def test_wrong_targets_are_refused_with_the_reason(spec, reason, tmp_path):
    with pytest.raises(WrongTarget, match=reason):
        open_target(spec, folder=tmp_path)


def test_numbers_of_nodes(tmp_path):
    def size(spec, nodes=None):
        target = open_target(spec, folder=tmp_path, nodes=nodes)
        assert isinstance(target, ClusterTarget)
        return target.size

    assert size("reference") == 1
    assert size("reference:3") == 3
    assert size("kafka:4.3.1", nodes=3) == 3
    assert size("kafka:4.3.1:1", nodes=3) == 1


def test_the_configuration_of_an_address_is_unknown(tmp_path):
    target = open_target("addr:127.0.0.1:9092", folder=tmp_path, config={"log.retention.ms": "1"})
    assert list(target.unknown_config) == ["log.retention.ms"]


def test_no_broker_at_the_address(tmp_path):
    (port,) = free_ports(1)
    with (
        pytest.raises(TargetError, match=rf"addr:127.0.0.1:{port} does not answer: 127.0.0.1:{port}: \[Errno"),
        open_target(f"addr:127.0.0.1:{port}", folder=tmp_path),
    ):
        pass


CALLS = {
    "kill": (1,), "stop": (1,), "restart": (1,), "pause": (1,), "resume": (1,), "partition": ([[1], [2]],), "heal": (),
    "power-loss": ([1],), "disk": (1, "full"), "clock": (1, 0.5), "config": (1, {}), "logs": (1,),
}  # fmt: skip


def test_every_missing_hook_is_named(tmp_path):
    target = open_target("addr:127.0.0.1:9092", folder=tmp_path)
    assert set(CALLS) == set(HOOKS)
    for hook, arguments in CALLS.items():
        with pytest.raises(HookMissing, match=f"does not offer the hook {hook}") as raised:
            getattr(target, hook.replace("-", "_"))(*arguments)
        assert raised.value.hook == hook
        with pytest.raises(HookMissing):
            target.require(hook)


def test_ports_are_different_and_below_those_of_outgoing_connections():
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert max(ports) < 32768
