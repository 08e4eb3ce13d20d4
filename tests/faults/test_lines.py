"""Bad network lines in a sandbox: packets are late or lost, and arrive as before when the line is mended."""

import json

import pytest

from linearizability.faults.fault import FAULTS, World, select
from linearizability.faults.injection import Injection
from linearizability.faults.lines import DELAY_MS, LOSS, Lossy, Slow
from linearizability.faults.network import Line, Lines, Network
from linearizability.faults.sandbox import obstacle
from linearizability.targets import open_target
from linearizability.targets.target import TargetError
from tests.faults.sandboxed import sandboxed
from tests.faults.test_nemesis import Pretended

SCRIPT = """
import itertools, json, socket, subprocess, sys, time
from linearizability.faults.network import Line, Network

ECHO = '''
import socket, sys
server = socket.socket(type=socket.SOCK_DGRAM)
server.bind((sys.argv[1], 7000))
print("up", flush=True)
while True:
    data, sender = server.recvfrom(2048)
    server.sendto(data, sender)
'''
SINK = '''
import socket, sys
server = socket.create_server((sys.argv[1], 7001))
print("up", flush=True)
while True:
    connection = server.accept()[0]
    size = 0
    while part := connection.recv(65536):
        size += len(part)
        if part.endswith(b"."):
            connection.sendall(str(size).encode())
'''

with Network(1) as network:
    (host,) = network.hosts
    servers = [
        subprocess.Popen([*host.prefix, sys.executable, "-c", code, host.address], stdout=subprocess.PIPE)
        for code in (ECHO, SINK)
    ]
    for server in servers:
        server.stdout.readline()
    client = socket.socket(type=socket.SOCK_DGRAM)
    client.settimeout(5)
    numbers = itertools.count()

    def round_trip_ms(tries=10):
        # What is under way while the line is changed may be lost.
        message, began = b"%d" % next(numbers), time.monotonic()
        client.sendto(message, (host.address, 7000))
        try:
            while client.recv(16) != message:
                pass
        except TimeoutError:
            if tries == 1:
                raise
            return round_trip_ms(tries - 1)
        return (time.monotonic() - began) * 1000

    def returned(count):
        client.settimeout(0.02)
        came = 0
        for _ in range(count):
            client.sendto(b"ping", (host.address, 7000))
            try:
                client.recv(16)
                came += 1
            except TimeoutError:
                pass
        client.settimeout(5)
        return came

    def carried(megabytes):
        with socket.create_connection((host.address, 7001), timeout=60) as connection:
            connection.sendall(b"x" * (megabytes * 1_000_000 - 1) + b".")
            return int(connection.recv(64))

    measured = {"good": round_trip_ms()}
    measured["spoilt"] = network.spoil(1, Line(delay_ms=60))
    measured["again"] = network.spoil(1, Line(delay_ms=1))
    measured["slow"] = min(round_trip_ms() for _ in range(3))
    measured["bytes"] = carried(1)
    network.mend(1)
    measured["mended"] = min(round_trip_ms() for _ in range(5))
    network.spoil(1, Line(loss=0.5))
    measured["lossy"] = returned(60)
    network.heal()
    measured["healed"] = [min(round_trip_ms() for _ in range(5)), carried(5)]
    print(json.dumps(measured))
    for server in servers:
        server.kill()
"""


def test_a_line_is_slow_then_lossy_then_good():
    reason = obstacle()
    if reason:
        pytest.skip(f"no sandbox on this machine: {reason}")
    done = sandboxed(SCRIPT, timeout_s=300)
    assert done.returncode == 0, done.stderr
    reported = json.loads(done.stdout)
    assert (reported["spoilt"], reported["again"], reported["bytes"]) == (True, False, 1_000_000)
    assert reported["mended"] < 120 <= reported["slow"]  # both ways
    assert 0 < reported["lossy"] < 40  # of 60, a quarter gets through both ways
    assert reported["healed"][0] < 120 and reported["healed"][1] == 5_000_000


@pytest.mark.parametrize("pick", [0.0, 0.25, 0.5, 0.999])
def test_how_bad_a_line_is_lies_within_bounds(pick):
    assert DELAY_MS[0] <= Slow().line(pick).delay_ms <= DELAY_MS[1] and Slow().line(pick).loss == 0
    assert LOSS[0] <= Lossy().line(pick).loss <= LOSS[1] and Lossy().line(pick).delay_ms == 0


class Remembered:
    """A network that only remembers how its lines are."""

    def __init__(self) -> None:
        self.places = [0, 1]
        self.lines: dict[int, Line] = {}

    def cut(self, sender: int, receiver: int) -> None: ...

    def join(self, sender: int, receiver: int) -> None: ...

    def heal(self) -> None: ...

    def spoil(self, place: int, line: Line) -> bool:
        return self.lines.setdefault(place, line) is line

    def mend(self, place: int) -> None:
        del self.lines[place]


class Cuttable:
    """A network of which only links can be cut, as of containers."""

    cut = join = heal = Remembered.heal
    places = (0, 1)


def test_a_line_that_is_bad_already_is_left(tmp_path):
    network = Remembered()
    world = World(open_target("reference:1", folder=tmp_path), "topic", network)
    world.choose = lambda who, pick, outcome="spared": 1  # type: ignore[method-assign]
    done = FAULTS["lossy"].begin(world, Injection(at_s=0, fault="lossy", pick=0.4))
    assert done is not None and network.lines[1].loss == done["loss"]
    assert FAULTS["slow"].begin(world, Injection(at_s=0, fault="slow", pick=0.4)) is None
    FAULTS["lossy"].end(world, done)
    assert network.lines == {}


def test_only_networks_with_lines_of_their_own_offer_it():
    target = Pretended()
    assert isinstance(Network(1), Lines)
    assert {"slow", "lossy"} <= set(select([], target, Remembered()))
    assert not {"slow", "lossy"} & set(select([], target, Cuttable()))  # type: ignore[arg-type]
    with pytest.raises(
        TargetError, match="the fault slow needs a network whose lines can be made bad: --backend netns"
    ):
        select(["slow"], target, Cuttable())  # type: ignore[arg-type]
    with pytest.raises(TargetError, match="the fault lossy needs a network"):
        select(["lossy"], target, None)
