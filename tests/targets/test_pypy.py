"""PyPy executes nodes: they answer as on CPython, and records that were sent to them do not stay in memory."""

import json
import os
import subprocess
import sys

import pytest
from confluent_kafka import Consumer, Producer

from linearizability.bench.brokers import process_ids, resident_mb
from linearizability.targets import open_target
from linearizability.targets.cluster import ClusterTarget
from linearizability.targets.ports import free_ports
from linearizability.targets.pypy import ENVIRONMENT, NAMED_BY, PyPyMissing, pypy

pytestmark = pytest.mark.xdist_group("pypy")

CHECKSUMS = """
from reference.protocol.checksum import crc32c
data = bytearray(b"0123456789")
print(crc32c(data[1:]), crc32c(memoryview(data)[1:]), crc32c(bytes(data[1:])), crc32c(b""))
"""
CHECK_VALUE = 0xE3069283
"""Of "123456789", by which implementations of CRC-32C are compared (RFC 3720 names the polynomial)."""

BUFFERS = """
import errno, os, sys
from reference.protocol.buffers import copy_into, write_at
data = bytearray(range(256)) * 4_096
target = memoryview(bytearray(len(data)))
copy_into(target[1:], memoryview(data)[1:1_000_000])
assert target[:1_000_000] == b"\\0" + data[1:1_000_000]
try:
    copy_into(target[:9], data)
    assert False
except ValueError:
    pass
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
large = 1 << 33
for written in (data, bytes(data), memoryview(data)[7:], memoryview(bytes(data))[7:], memoryview(target)[9:]):
    assert write_at(descriptor, written, large) == len(written)
    assert os.pread(descriptor, len(written), large) == bytes(written)
try:
    write_at(os.open(sys.argv[1], os.O_RDONLY), data, 0)
    assert False
except OSError as error:
    assert error.errno == errno.EBADF
print("done")
"""

MEMORY = """
import json, os
from reference.protocol.checksum import crc32c
from reference.protocol.records.compression import Codec, compress, decompress

def resident_mb():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

def use(codec):
    plain = memoryview(bytearray(os.urandom(16) * 16_000))
    packed = memoryview(bytearray(compress(codec, plain)))
    crc32c(packed)
    assert bytes(decompress(codec, packed)) == bytes(plain)

grown = {}
for codec in Codec:
    for _ in range(200):
        use(codec)
    before = resident_mb()
    for _ in range(800):
        use(codec)
    grown[codec.name] = resident_mb() - before
print(json.dumps(grown))
"""

ENDED = """
import asyncio
from reference.runtime import pypy
pypy.COLLECT_EVERY_S = pypy.STEP_EVERY_S = 0.001
ended = []

class Opened:
    def __del__(self):
        ended.append(True)

async def wait():
    pypy.collect_in_steps(asyncio.get_running_loop())
    Opened()
    for _ in range(3_000):
        if ended:
            return True
        await asyncio.sleep(0.01)

print(asyncio.run(wait()))
"""


@pytest.fixture(scope="module")
def program():
    try:
        return pypy()
    except PyPyMissing as error:
        pytest.skip(f"PyPy is missing: {error}")


def output(program, code, *arguments):
    done = subprocess.run(
        [program, "-c", code, *arguments], env=os.environ | ENVIRONMENT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_checksums_are_the_same(program):
    assert [*map(int, output(program, CHECKSUMS).split())] == [CHECK_VALUE] * 3 + [0]


@pytest.mark.parametrize("executed_by", ["CPython", "PyPy"])
def test_large_buffers_are_copied_and_written(executed_by, program, tmp_path):
    assert output(program if executed_by == "PyPy" else sys.executable, BUFFERS, tmp_path / "file") == "done\n"


def test_what_checksums_and_codecs_were_given_is_freed(program):
    """Through PyPy's emulation of CPython's C API 800 buffers of 256 KB would be kept: 205 MB."""
    assert max(json.loads(output(program, MEMORY)).values()) < 60


def test_objects_end_in_a_node_without_work(program):
    assert output(program, ENDED) == "True\n"


def test_a_node_takes_and_gives_what_clients_sent(program, tmp_path):
    sent = [os.urandom(100) * 1_000 for _ in range(20)] * 150  # 300 MB
    with open_target("reference-pypy", folder=tmp_path) as target:
        assert isinstance(target, ClusterTarget)
        producer = Producer({"bootstrap.servers": target.bootstrap, "queue.buffering.max.kbytes": 1 << 20})
        for value in sent[:300]:
            producer.produce("blobs", value, partition=0)
        producer.flush(60)
        (pid,) = process_ids(target)
        before = resident_mb(pid)
        for value in sent[300:]:
            producer.produce("blobs", value, partition=0)
        assert producer.flush(60) == 0
        assert resident_mb(pid) - before < 135  # half of what was sent since
        target.kill(1)
        target.restart(1)
        consumer = Consumer(
            {"bootstrap.servers": target.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["blobs"])
        read = [message.value() for message in consumer.consume(len(sent), 60) if message.error() is None]
        while len(read) < len(sent) and (more := consumer.consume(len(sent) - len(read), 30)):
            read += [message.value() for message in more if message.error() is None]
        consumer.close()
    assert read == sent


@pytest.mark.sampled(days=3)
def test_the_pypy_that_is_named_is_used(program, tmp_path, monkeypatch):
    monkeypatch.setenv("TIDEGAUGE_CACHE", str(tmp_path))
    monkeypatch.setenv(NAMED_BY, str(program))
    named = pypy()
    assert named.is_relative_to(tmp_path) and not [*tmp_path.rglob("usr")]
    assert pypy() == named
    assert output(named, CHECKSUMS).startswith(f"{CHECK_VALUE} ")


@pytest.mark.parametrize("named", [sys.executable, "/no/such/pypy"])
def test_what_is_no_pypy_is_refused(named, monkeypatch):
    monkeypatch.setenv(NAMED_BY, named)
    with pytest.raises(PyPyMissing, match=f"{NAMED_BY} names {named}"):
        pypy()


def test_where_nothing_can_be_fetched_the_way_out_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("TIDEGAUGE_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(NAMED_BY, raising=False)
    with pytest.raises(PyPyMissing, match=f"install PyPy of Python 3.11, and name it by {NAMED_BY}"):
        pypy()
    assert not [*(tmp_path / "pypy").glob("*/")]


def test_a_cluster_is_executed_by_pypy(program, tmp_path):
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "tidegauge", "cluster", "--pypy", "--nodes", "1", "--seconds", "1"]
    subprocess.run([*command, "--port", str(port), "--folder", str(tmp_path)], timeout=120, check=True)
    (log,) = tmp_path.glob("*/node.log")
    assert "executed by PyPy 3.11" in log.read_text()
