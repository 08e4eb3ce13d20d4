"""franz-go on secured listeners, by a small program (main.go) that is built with Go and kept."""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from linearizability.targets.strangers.fetching import cached, run
from tests.targets.secured_kafka import PASSWORD, USER, Secured

SOURCES = [Path(__file__).with_name(name) for name in ("go.mod", "go.sum", "main.go")]
WITHIN_S = 60
FOUND_GO = shutil.which("go")


def program() -> Path:
    """Errors: TargetError where it cannot be built."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in SOURCES)).hexdigest()[:16]
    return cached(f"franz-go-{digest}", _build)


def _build(to: Path) -> None:
    run(["go", "build", "-C", str(SOURCES[0].parent), "-mod=readonly", "-trimpath", "-o", str(to), "."], to.parent)


def produce_and_consume(
    secured: Secured, listener: str, mechanism: str, topic: str, values: Sequence[str], **given: object
) -> subprocess.CompletedProcess[str]:
    """Run the program. Its standard output has the consumed values, one a line; after an error its exit code is 1."""
    is_tls, own = not listener.endswith("PLAINTEXT"), str(secured.secrets / "client.pem")
    order = {
        "Bootstrap": f"localhost:{secured.ports[listener]}",
        "Topic": topic,
        "Values": [*values],
        "Authority": str(secured.secrets / "ca.pem") if is_tls else "",
        "Certificate": own if listener == "MUTUAL" else "",
        "Mechanism": mechanism,
        "User": USER,
        "Password": PASSWORD,
        "Bearer": secured.signer.token(),
        "Seconds": WITHIN_S,
    }
    return subprocess.run(
        [program()], input=json.dumps(order | given), capture_output=True, text=True, timeout=2 * WITHIN_S, check=False
    )
