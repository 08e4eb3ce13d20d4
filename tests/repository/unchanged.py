"""Runs a command, unless it succeeded before on the same files: `python -m tests.repository.unchanged STAMP COMMAND…`.

The hash is of the command, Python sources, project file and lock; the stamp holds the last one that succeeded.
"""

import hashlib
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = (
    "*.py",
    "*.toml",
    "*.lock",
    *(f"{top}/**/*.py" for top in ("reference", "conformance", "linearizability", "spec", "tests")),
)


def hash_of(command: list[str], root: Path = ROOT) -> str:
    digest = hashlib.sha256("\0".join([sys.version, *command]).encode())
    for path in sorted(path for pattern in SOURCES for path in root.glob(pattern)):
        digest.update(f"\0{path.relative_to(root)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def run(stamp: Path, command: list[str], root: Path = ROOT) -> int:
    """The command's exit code; 0 without a run where nothing changed."""
    now = hash_of(command, root)
    if stamp.is_file() and stamp.read_text() == now:
        return 0
    code = subprocess.run(command, cwd=root, check=False).returncode
    if code == 0:
        stamp.write_text(now)
    return code


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), sys.argv[2:]))
