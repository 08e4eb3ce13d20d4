"""Maven artifacts without Maven: Apache Ivy is among PySpark's jars, and its default is the central repository.

Two ways to use it. *Resolving* reads the projects' descriptions and finds all dependencies: once, when the lock file is
written. *Retrieving* fetches exactly the jars in the lock file and reads no description, so it is quick and reproducible.

Where the central repository cannot be reached directly, TIDEGAUGE_IVY_SETTINGS names an Ivy settings file for both.
"""

import importlib.util
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from linearizability.extras import installing
from linearizability.targets.java import java

TIMEOUT_S = 900

SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="{use_descriptions}" checksums=""/></resolvers>
</ivysettings>
"""
"""Ivy checks no checksums, as the lock file has stronger ones."""


class IvyError(Exception):
    """Ivy is missing or failed; the text ends with Ivy's output."""


@dataclass(frozen=True, slots=True, order=True)
class Module:
    """Coordinates: `organisation:name:revision`, with `:classifier` where a project has several jars."""

    organisation: str
    name: str
    revision: str
    classifier: str = ""

    @classmethod
    def parse(cls, text: str) -> "Module":
        """Parse coordinates. Errors: ValueError when the text has not three or four parts."""
        parts = text.split(":")
        if len(parts) not in (3, 4) or not all(parts):
            raise ValueError(f"{text!r} is not organisation:name:revision or organisation:name:revision:classifier")
        return cls(*parts)

    def __str__(self) -> str:
        return ":".join(filter(None, (self.organisation, self.name, self.revision, self.classifier)))

    @property
    def file_name(self) -> str:
        return "-".join(filter(None, (self.name, self.revision, self.classifier))) + ".jar"


def retrieve(modules: Sequence[Module], folder: Path, work: Path) -> None:
    """Put exactly these jars into `folder`, under their `file_name`. `work` is a folder for Ivy's own files."""
    dependencies = [_dependency(module, transitive=False) for module in modules]
    pattern = f"{folder}/[artifact]-[revision](-[classifier]).[ext]"
    _run(dependencies, pattern, work, use_descriptions=False)


def resolve(
    roots: Sequence[Module], excluded: Sequence[str], overridden: Sequence[Module], folder: Path, work: Path
) -> dict[Module, Path]:
    """Resolve the roots and their dependencies, without the excluded ones (`organisation:name`; `*` for all names).

    An overridden module gets its revision in place of the requested one. Returns each module's jar, a file below `folder`.
    """
    dependencies = [_dependency(module, transitive=True) for module in roots]
    exclusions = [
        f"<exclude org={quoteattr(organisation)} module={quoteattr(name)}/>"
        for organisation, _, name in (text.partition(":") for text in excluded)
    ]
    overrides = [
        f"<override org={quoteattr(m.organisation)} module={quoteattr(m.name)} rev={quoteattr(m.revision)}/>"
        for m in overridden
    ]
    pattern = f"{folder}/[organisation]/[module]/[revision]/(@[classifier]/)[artifact].[ext]"
    _run([*dependencies, *exclusions, *overrides], pattern, work, use_descriptions=True)
    return {_module_at(path.relative_to(folder)): path for path in sorted(folder.rglob("*.jar"))}


def _module_at(path: Path) -> Module:
    organisation, name, revision, *classifier = path.parts[:-1]
    return Module(organisation, name, revision, *(part.removeprefix("@") for part in classifier))


def _dependency(module: Module, *, transitive: bool) -> str:
    inner = (
        f'<artifact name={quoteattr(module.name)} type="jar" ext="jar" m:classifier={quoteattr(module.classifier)}/>'
        if module.classifier
        else ""
    )
    attributes = {
        "org": module.organisation,
        "name": module.name,
        "rev": module.revision,
        "transitive": str(transitive).lower(),
        "conf": "default->default" if transitive else "default->*",
    }
    written = " ".join(f"{key}={quoteattr(value)}" for key, value in attributes.items())
    return f"<dependency {written}>{inner}</dependency>"


def _run(dependencies: Sequence[str], pattern: str, work: Path, *, use_descriptions: bool) -> None:
    work.mkdir(parents=True, exist_ok=True)
    settings = Path(os.environ.get("TIDEGAUGE_IVY_SETTINGS", work / "settings.xml"))
    if "TIDEGAUGE_IVY_SETTINGS" not in os.environ:
        settings.write_text(SETTINGS.format(use_descriptions=str(use_descriptions).lower()))
    description = work / "ivy.xml"
    inner = "\n".join(dependencies)
    description.write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">\n'
        '<info organisation="tidegauge" module="artifacts"/>\n'
        '<configurations><conf name="default"/></configurations>\n'
        f"<dependencies>\n{inner}\n</dependencies></ivy-module>\n"
    )
    command = [
        java(), "-XX:TieredStopAtLevel=1", f"-Divy.default.ivy.user.dir={work / 'home'}", "-jar", ivy_jar(),
        "-settings", settings, "-ivy", description, "-confs", "default", "-types", "jar", "bundle",
        "-retrieve", pattern,
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise IvyError(f"the download did not end within {TIMEOUT_S} s") from error
    if done.returncode:
        raise IvyError(_reason(done.stdout + done.stderr))


def _reason(output: str) -> str:
    """The lines of Ivy's output about errors."""
    reasons = [
        line.strip()
        for line in output.splitlines()
        if any(word in line for word in ("not found", "FAILED", "Exception", "unresolved", "refused", "timed out"))
    ]
    return "; ".join(dict.fromkeys(reasons[:6])) or output.strip()[-500:]


def ivy_jar() -> Path:
    """Ivy's jar among PySpark's. Errors: IvyError where PySpark is not installed."""
    spark = importlib.util.find_spec("pyspark")
    for place in (spark.submodule_search_locations or []) if spark else []:
        found = sorted(Path(place, "jars").glob("ivy-*.jar"))
        if found:
            return found[-1]
    raise IvyError(f"PySpark, whose jars hold Apache Ivy, is not installed in this environment: {installing('spark')}")
