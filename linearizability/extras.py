"""The packages that the base installation leaves out: it can judge a broker at an address, and serve the reference."""

from __future__ import annotations

import json
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlparse

EXTRAS = {
    **dict.fromkeys(("numpy", "pyarrow", "matplotlib", "confluent_kafka", "pyroute2", "cryptography"), "check"),
    **dict.fromkeys(("pyspark", "pandas"), "spark"),
}
"""Module -> the extra that installs it."""


def advice(module: str) -> str:
    """How a module that is missing is installed; empty where no extra has it."""
    extra = EXTRAS.get(module.partition(".")[0])
    return f"{module} is missing: {installing(extra)}" if extra else ""


def installing(extra: str) -> str:
    """The command that adds an extra to this installation, from where it came: the index may know another package by its name."""
    recorded = None
    with suppress(PackageNotFoundError):
        recorded = distribution("tidegauge").read_text("direct_url.json")  # PEP 610
    origin = json.loads(recorded) if recorded else {}
    url = str(origin.get("url", ""))
    if not url:
        return f"pip install 'tidegauge[{extra}]'"
    if not url.startswith("file:"):
        version_control = origin.get("vcs_info", {})
        kind = f"{version_control['vcs']}+" if version_control else ""
        commit = f"@{version_control['commit_id']}" if version_control else ""
        return f"pip install 'tidegauge[{extra}] @ {kind}{url}{commit}'"
    path = Path(unquote(urlparse(url).path))
    if not path.exists():
        return f"pip install '{path.name}[{extra}]', where {path.name} is what this was installed from"
    return f"pip install {'-e ' if origin.get('dir_info', {}).get('editable') else ''}'{path}[{extra}]'"
