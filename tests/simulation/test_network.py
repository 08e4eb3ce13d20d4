"""Simulated connections: order, pieces, halves of frames, resets."""

from typing import Any

from linearizability.simulation import network as module
from linearizability.simulation.network import Network
from linearizability.simulation.schedule import CLIENTS
from linearizability.simulation.world import World


class Listener:
    """A machine that only listens."""

    name = "listener"
    number = 1

    def __init__(self, accepts: bool = True) -> None:
        self.accepts = accepts
        self.data = bytearray()
        self.pieces = 0
        self.closed = 0

    def accept(self, connection: Any) -> bool:
        return self.accepts

    def on_stranger(self, connection: Any) -> bool:
        return False

    def on_bytes(self, connection: Any, data: bytes) -> None:
        self.data += data
        self.pieces += 1

    def on_closed_by_client(self, connection: Any) -> None:
        self.closed += 1


class Caller:
    name = "caller"
    place = CLIENTS

    def __init__(self) -> None:
        self.connected = False
        self.data = bytearray()
        self.closed: list[str] = []

    def on_connected(self, connection: Any) -> None:
        self.connected = True

    def on_bytes(self, connection: Any, data: bytes) -> None:
        self.data += data

    def on_closed(self, connection: Any, reason: str) -> None:
        self.closed.append(reason)


def connected(world: World) -> tuple[Any, Listener, Caller]:
    listener, caller = Listener(), Caller()
    connection = Network(world).connect(caller, listener)  # type: ignore[arg-type]
    world.run(100_000)
    assert caller.connected
    return connection, listener, caller


def test_bytes_arrive_in_order_whatever_the_delays(monkeypatch):
    monkeypatch.setattr(module, "SPLITS", 0.5)
    world = World(1)
    connection, listener, caller = connected(world)
    sent = [bytes([number]) * 20 for number in range(100)]
    for data in sent:
        connection.send(data)
        connection.answer(data)
    world.run(10_000_000)
    assert listener.data == caller.data == b"".join(sent)
    assert listener.pieces > len(sent)


def test_a_reset_between_two_pieces_leaves_half_a_frame(monkeypatch):
    monkeypatch.setattr(module, "SPLITS", 1.0)
    halves = 0
    for seed in range(30):
        world = World(seed)
        connection, listener, caller = connected(world)
        connection.send(b"x" * 100)
        world.after(module.MOST_LATENCY_US // 2, connection.reset)
        world.run(10_000_000)
        assert caller.closed == ["reset"]
        assert listener.closed == 1
        halves += 0 < len(listener.data) < 100
    assert halves


def test_no_process_listens():
    world, caller = World(1), Caller()
    Network(world).connect(caller, Listener(accepts=False))  # type: ignore[arg-type]
    world.run(100_000)
    assert caller.closed == ["refused"] and not caller.connected


def test_nothing_arrives_after_the_client_hung_up():
    world = World(1)
    connection, listener, caller = connected(world)
    connection.answer(b"late")
    connection.close_by_client()
    world.run(10_000_000)
    assert not caller.data and not caller.closed and listener.closed == 1


# ---- cuts


def network_of(connection: Any) -> Network:
    return connection._network


def test_what_is_sent_into_a_cut_arrives_in_order_when_it_is_over(monkeypatch):
    monkeypatch.setattr(module, "DEAD_AFTER_CUT", 0.0)
    world = World(1)
    connection, listener, caller = connected(world)
    network = network_of(connection)
    network.cut([(CLIENTS, 1)])
    for number in range(5):
        connection.send(bytes([number]))
    connection.answer(b"back")
    world.run(200_000)
    assert not listener.data and caller.data == b"back", "one way is cut, the other is not"
    network.heal([(CLIENTS, 1)])
    connection.send(b"\x05")
    world.run(400_000)
    assert listener.data == bytes(range(6))


def test_what_was_under_way_during_a_cut_stays_behind_what_the_cut_held(monkeypatch):
    monkeypatch.setattr(module, "DEAD_AFTER_CUT", 0.0)
    monkeypatch.setattr(module, "SPLITS", 0.0)
    for seed in range(5):
        world = World(seed)
        connection, listener, caller = connected(world)
        network = network_of(connection)
        network.extra_latency_us = 50_000
        both_ways = [(CLIENTS, 1), (1, CLIENTS)]
        for number in range(8):
            connection.send(bytes([number]))
            connection.answer(bytes([number]))
            world.run(world.now_us + 10_000)
            if number == 2:
                network.cut(both_ways)
        network.heal(both_ways)
        connection.send(b"\x08")
        connection.answer(b"\x08")
        world.run(world.now_us + 1_000_000)
        assert listener.data == caller.data == bytes(range(9))


def test_a_second_cut_holds_what_the_first_one_held(monkeypatch):
    monkeypatch.setattr(module, "DEAD_AFTER_CUT", 0.0)
    world = World(1)
    connection, listener, caller = connected(world)
    network = network_of(connection)
    network.cut([(CLIENTS, 1)])
    connection.send(b"first")
    world.run(200_000)
    network.heal([(CLIENTS, 1)])
    network.cut([(CLIENTS, 1)])
    connection.send(b"second")
    world.run(400_000)
    assert not listener.data
    network.heal([(CLIENTS, 1)])
    world.run(600_000)
    assert listener.data == b"firstsecond" and not caller.closed


def test_a_way_that_was_cut_twice_is_healed_twice(monkeypatch):
    monkeypatch.setattr(module, "DEAD_AFTER_CUT", 0.0)
    world = World(1)
    connection, listener, _ = connected(world)
    network = network_of(connection)
    network.cut([(CLIENTS, 1)])
    network.cut([(CLIENTS, 1), (1, CLIENTS)])
    network.heal([(CLIENTS, 1), (1, CLIENTS)])
    connection.send(b"x")
    world.run(200_000)
    assert not listener.data
    network.heal_all()
    world.run(400_000)
    assert listener.data == b"x"


def test_some_connections_die_of_a_cut(monkeypatch):
    monkeypatch.setattr(module, "DEAD_AFTER_CUT", 1.0)
    world = World(1)
    connection, listener, caller = connected(world)
    network = network_of(connection)
    network.cut([(CLIENTS, 1)])
    connection.send(b"x")
    world.run(200_000)
    network.heal_all()
    world.run(400_000)
    assert not listener.data and listener.closed == 1 and caller.closed == ["reset"]


def test_no_connection_is_made_through_a_cut(monkeypatch):
    monkeypatch.setattr(module, "DEAD_AFTER_CUT", 0.0)
    world, caller, listener = World(1), Caller(), Listener()
    network = Network(world)
    network.cut([(CLIENTS, 1)])
    network.connect(caller, listener)  # type: ignore[arg-type]
    world.run(200_000)
    assert not caller.connected and not caller.closed
    network.heal([(CLIENTS, 1)])
    world.run(400_000)
    assert caller.connected


def test_a_slow_place_is_slow_and_becomes_fast_again():
    world = World(1)
    connection, listener, _ = connected(world)
    network = network_of(connection)
    network.slow_down(1, 500_000)
    connection.send(b"x")
    world.run(400_000)
    assert not listener.data
    network.slow_down(1, -500_000)
    world.run(1_000_000)
    assert listener.data == b"x" and not network.slow_places
