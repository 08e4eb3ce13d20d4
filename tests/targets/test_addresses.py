"""Advertised addresses are mapped to reachable ones, and one that cannot be reached is diagnosed in one line."""

import socket
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from conformance import probing
from conformance.requirement import select
from conformance.runner import Plan, run
from linearizability.faults.backend import planned_target
from linearizability.faults.entrance import entrance
from linearizability.faults.plan import Plan as HuntPlan
from linearizability.targets import Access, AddressMap, HookMissing, TargetError, WrongTarget, address, open_target
from linearizability.targets.addresses import diagnosis
from linearizability.targets.ports import free_ports
from linearizability.targets.wire import Wire, WireError, listed_brokers
from tests.conformance.parrot import parrot


def test_a_listener_s_own_entry_goes_before_its_host_s():
    addresses = AddressMap.parse(["kafka-1:9092=localhost:19092", "kafka-1=10.0.0.1", "kafka-2=[::1]"])
    assert addresses.reach("kafka-1", 9092) == ("localhost", 19092)
    assert addresses.reach("kafka-1", 9093) == ("10.0.0.1", 9093)
    assert addresses.reach("kafka-2", 9092) == ("::1", 9092)
    assert addresses.reach("elsewhere", 1) == ("elsewhere", 1)


@pytest.mark.parametrize("text", ["", "a", "a=", "=b", "a:1=b", "a=b:1", "a:1=b:70000"])
def test_what_is_no_mapping_is_refused(text):
    with pytest.raises(WrongTarget, match="HOST:PORT"):
        AddressMap.parse([text])


@pytest.fixture
def cluster(monkeypatch):
    """Three nodes that advertise ports where no node listens."""
    ports = free_ports(3)
    listed = [SimpleNamespace(node_id=n, host="127.0.0.1", port=port) for n, port in enumerate(ports, start=1)]
    monkeypatch.setattr(address, "listed_brokers", lambda *_, **__: listed)
    monkeypatch.setattr(address, "answers", lambda *_: True)
    return listed


def test_unreachable_nodes_of_a_cluster_are_named_with_what_to_do(cluster, tmp_path):
    with open_target("addr:127.0.0.1:9092", folder=tmp_path) as target:
        assert [node.id for node in target.nodes] == [1, 2, 3]
        line = target.unreachable[2]
        assert f"node 2 advertises 127.0.0.1:{cluster[1].port}, which cannot be reached from here" in line
        assert f"--map 127.0.0.1:{cluster[1].port}=HOST:PORT" in line and "\n" not in line
        assert line in target.describe()["unreachable"]


def test_a_single_node_is_reached_where_it_was_asked(cluster, tmp_path):
    del cluster[1:]
    with open_target("addr:127.0.0.1:9092", folder=tmp_path) as target:
        assert target.nodes[0].address == "127.0.0.1:9092" and not target.unreachable
        assert target.addresses.reach("127.0.0.1", cluster[0].port) == ("127.0.0.1", 9092)


def test_the_restart_command_names_the_node(cluster, tmp_path):
    seen = tmp_path / "seen"
    command = f"echo {{node}} {{host}}:{{port}} >> {seen}"
    with open_target("addr:127.0.0.1:9092", folder=tmp_path, access=Access(restart_command=command)) as target:
        target.restart(3)
        assert seen.read_text() == f"3 127.0.0.1:{cluster[2].port}\n"
    with (
        pytest.raises(TargetError, match="ended with exit code 7: exit 7"),
        open_target("addr:127.0.0.1:9092", folder=tmp_path, access=Access(restart_command="exit 7")) as target,
    ):
        target.restart(1)


def test_without_a_restart_command_its_owner_is_waited_for(cluster, tmp_path, monkeypatch):
    del cluster[1:]
    answers = iter([False, False, True])
    monkeypatch.setattr(address, "answers", lambda *_: next(answers))
    with open_target("addr:127.0.0.1:9092", folder=tmp_path) as target:
        target.revive()
        assert not list(answers)
        monkeypatch.setattr(address, "BACK_WITHIN_S", 0.0)
        monkeypatch.setattr(address, "answers", lambda *_: False)
        with pytest.raises(TargetError, match="did not answer again within 0 s"):
            target.revive()
        with pytest.raises(HookMissing):
            target.restart(1)


def test_a_broker_that_advertises_an_unreachable_address_is_judged_where_it_was_asked(tmp_path):
    unreachable = {"advertised.listeners": "PLAINTEXT://127.0.0.1:1"}
    with open_target("reference:1", folder=tmp_path / "target", config=unreachable) as target:
        report = run(Plan(spec=f"addr:{target.bootstrap}", entries=select(["PRD-05"]), folder=tmp_path))
    assert [judgement.verdict for judgement in report.judgements] == ["pass"], report


def test_clients_of_a_hunt_are_led_to_mapped_addresses_by_a_proxy(tmp_path):
    """librdkafka follows what Metadata lists: with a map that is an address on this machine, else the brokers' own."""

    def moved(request, response, version):
        bird.metadata(request, response, version)
        response.brokers[0].host = "broker-1"

    with parrot({"Metadata": moved}) as bird:
        plan = HuntPlan(target=f"addr:{bird.bootstrap}", minutes=1, seed=1, mapped=["broker-1=127.0.0.1"])
        with planned_target(plan, tmp_path) as target, entrance(target) as bootstrap:
            host, port = bootstrap.split(":")
            assert (host, int(port)) != ("127.0.0.1", bird.port)
            assert [(each.host, each.port) for each in listed_brokers(host, int(port))] == [(host, int(port))]
        with planned_target(plan.model_copy(update={"mapped": []}), tmp_path) as plain:
            plain.addresses = AddressMap()
            with entrance(plain) as bootstrap:
                assert bootstrap == bird.bootstrap


@pytest.mark.parametrize(("host", "port"), [("x" * 70, 9092), ("kafka..local", 9092), ("127.0.0.1", 1 << 31)])
def test_a_host_or_port_that_cannot_be_is_not_reached_and_ends_nothing(host, port):
    assert diagnosis(1, host, port, AddressMap())
    subject: Any = SimpleNamespace(target=None, reach=lambda advertised: advertised)
    assert probing._unreachable(subject, 1, (host, port))
    with pytest.raises(WireError):
        Wire.connect(host, port)


def test_a_broker_that_is_still_starting_is_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    server: list[socket.socket] = []
    starting = threading.Timer(0.5, lambda: server.append(socket.create_server(("127.0.0.1", port))))
    starting.start()
    try:
        address.await_connection(f"addr:127.0.0.1:1,127.0.0.1:{port}", 60)
        assert server
    finally:
        starting.join()
        server[0].close()


def test_the_wait_for_a_broker_ends() -> None:
    address.await_connection("addr:127.0.0.1:1", 0.3)
    with pytest.raises(WrongTarget, match="is no address"):
        address.await_connection("addr:here", 60)
