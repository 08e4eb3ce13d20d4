"""franz-go's fake cluster, built from its Go module around a small program of ours (kfake/main.go)."""

import hashlib
import shutil
from pathlib import Path

from linearizability.targets.strangers.fetching import cached, run
from linearizability.targets.strangers.server import Server
from linearizability.targets.target import TargetError

SOURCE = Path(__file__).parent / "kfake"


class Kfake(Server):
    """`kfake[:NODES]`. It keeps its data on disk, so that a restart keeps what kfake itself keeps."""

    software = "kfake"
    version = "v0.0.0-20260918054303-01f206a7e32c"
    """The version in kfake/go.mod."""
    most_nodes = 9
    binary = Path()

    def prepare(self) -> None:
        sources = sorted(SOURCE.iterdir())
        digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
        self.binary = cached(f"kfake-{digest}", _build)

    def command(self) -> list[str | Path]:
        configs = [f"-config={name}={value}" for name, value in self.given.items()]
        return [self.binary, f"-ports={','.join(map(str, self.ports))}", f"-data={self.data}", *configs]


def _build(target: Path) -> None:
    if shutil.which("go") is None:
        raise TargetError("the target kfake is built with Go 1.26 or newer, and there is no `go` on the PATH")
    run(["go", "build", "-C", str(SOURCE), "-mod=readonly", "-trimpath", "-o", str(target), "."], target.parent)
