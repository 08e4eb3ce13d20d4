"""The Spark session: the project's settings are defaults, which the user's settings override.

The user's settings are in `spark-defaults.conf` (SPARK_CONF_DIR, or SPARK_HOME/conf), in PYSPARK_SUBMIT_ARGS, in a session that
exists already, or given with `--conf`; the later ones override the earlier.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULTS = {
    "spark.app.name": "tidegauge",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "32",
    # Blocks are few and small to the JVM; it must not put all of them into one task for that.
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "64",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
    "spark.driver.memory": "2g",
    "spark.log.level": "ERROR",
}
ON_THIS_MACHINE = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
"""Defaults of a local master: it needs no name that others can resolve."""
SHIPPED = ("reference", "linearizability", "conformance", "spec")
"""The project's packages, as workers of another machine get them."""
NOT_SHIPPED = {".pyc", ".tla", ".java", ".go"}


class SparkFailure(Exception):
    """A job failed for a reason that its user can mend; the text is one line."""


def session(master: str = "", conf: Mapping[str, str] | None = None) -> SparkSession:
    """The process's Spark session; started, in 5 to 18 seconds, if there is none. `conf` overrides all other settings.

    Without a master it is the one that the user's configuration names, else `local[*]`.
    """
    from pyspark.sql import SparkSession

    if (running := SparkSession.getActiveSession()) is not None:
        return running
    given = user_settings() | dict(conf or {})
    master = master or given.get("spark.master", "local[*]")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    chosen = dict(DEFAULTS)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        chosen |= ON_THIS_MACHINE
    builder = SparkSession.builder.master(master)  # type: ignore[attr-defined]
    for name, value in (chosen | given).items():
        builder = builder.config(name, value)
    started = builder.getOrCreate()
    started.sparkContext.setLogLevel((chosen | given)["spark.log.level"])
    if not master.startswith("local"):
        ship(started)
    return started


def ship(spark: SparkSession) -> None:
    """Send the packages to a session's workers, also of one that exists already, and of Spark Connect."""
    archive = str(packed_packages(Path(tempfile.mkdtemp(prefix="tidegauge-packages-"))))
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        spark.addArtifacts(archive, pyfile=True)
    else:
        spark.sparkContext.addPyFile(archive)


def user_settings() -> dict[str, str]:
    """The user's settings outside of this process."""
    return settings_of_file(_defaults_file()) | settings_of_arguments(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))


def _defaults_file() -> Path:
    folder = os.environ.get("SPARK_CONF_DIR")
    return (Path(folder) if folder else Path(os.environ.get("SPARK_HOME", ""), "conf")) / "spark-defaults.conf"


def settings_of_file(path: Path) -> dict[str, str]:
    """The settings in `spark-defaults.conf`: names and values parted by spaces, `=` or `:`; none where there is no such file."""
    if not path.is_file():
        return {}
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    parted = (re.split(r"\s*[=:\s]\s*", line, maxsplit=1) for line in lines if line and line[0] not in "#!")
    return {part[0]: part[1] for part in parted if len(part) == 2}


def settings_of_arguments(text: str) -> dict[str, str]:
    """The settings in arguments of `spark-submit`."""
    names = {"--master": "spark.master", "--driver-memory": "spark.driver.memory", "--name": "spark.app.name"}
    settings = dict[str, str]()
    words = iter(shlex.split(text))
    for word in words:
        option, _, value = word.partition("=")
        if option in ("--conf", "-c"):
            name, _, value = (value or next(words, "")).partition("=")
            settings[name] = value
        elif option in names:
            settings[names[option]] = value or next(words, "")
    return settings


def settings_of_terms(terms: Sequence[str]) -> dict[str, str]:
    """The settings in `--conf NAME=VALUE`. Errors: ValueError."""
    parted = {term: term.partition("=") for term in terms}
    if wrong := [term for term, (name, sign, _) in parted.items() if not sign or not name]:
        raise ValueError(f"{wrong[0]!r} is not NAME=VALUE")
    return {name: value for name, _, value in parted.values()}


def packed_packages(folder: Path) -> Path:
    """The project's packages in one archive, which workers import from."""
    target = folder / "tidegauge-packages.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in packed_files():
            archive.write(file, name)
    return target


def packed_files() -> Iterator[tuple[Path, Path]]:
    """All files of the project that its runs depend on, in order: the name in the archive, and the file."""
    root = Path(__file__).parents[2]
    for package in SHIPPED:
        for file in sorted((root / package).rglob("*")):
            if file.is_file() and file.suffix not in NOT_SHIPPED and "__pycache__" not in file.parts:
                yield file.relative_to(root), file


def failure_of(error: BaseException) -> SparkFailure | None:
    """The error of a failed job, where it is one that the user can mend; else None."""
    missing = re.search(r"ModuleNotFoundError: No module named '([^']+)'", str(error))
    if missing:
        return SparkFailure(f"a worker lacks the Python package {missing[1]}: install tidegauge's dependencies there")
    if lost := re.search(r"ExecutorLostFailure \((.+?)\) Reason: ([^\n]+)", str(error)):
        return SparkFailure(f"Spark gave up a task: {lost[1]}: {lost[2]}")
    return None
