"""Finds a Java that runs Apache Kafka, TLC and Spark, and installs one where that is possible."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

OLDEST = 17
"""Kafka 4 and Spark 4 need Java 17."""

PACKAGE = "default-jdk-headless"
"""Debian's package of its default headless Java; a JDK, because tests run small Java sources."""

INSTALL_TIMEOUT_S = 600


class JavaMissing(Exception):
    """No Java is new enough; the text names the remedy."""


@cache
def java() -> Path:
    """The first `java` program of Java 17 or newer, in JAVA_HOME, PATH, and the system's usual folders.

    Errors: JavaMissing, with the older ones that were found and the package to install.
    """
    too_old: list[str] = []
    for candidate in _candidates():
        release = java_release(candidate)
        if release >= OLDEST:
            return candidate
        if release:
            too_old.append(f"{candidate} is Java {release}")
    found = f" ({'; '.join(too_old)})" if too_old else ""
    raise JavaMissing(
        f"Java {OLDEST} or newer is needed and was not found{found}: "
        f"install a JDK (Debian: apt-get install {PACKAGE}) or set JAVA_HOME"
    )


def ensure_java() -> Path:
    """The result of `java`; as root, first installs Debian's JDK by apt where none is found. Errors: JavaMissing."""
    try:
        return java()
    except JavaMissing:
        if os.geteuid() != 0 or not shutil.which("apt-get"):
            raise
    for command in (["apt-get", "update", "-q"], ["apt-get", "install", "-q", "-y", PACKAGE]):
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise JavaMissing(f"{' '.join(command)} did not end within {INSTALL_TIMEOUT_S} s") from error
        if done.returncode and "update" not in command:
            last_lines = " ".join((done.stderr or done.stdout).strip().splitlines()[-2:])
            raise JavaMissing(f"{' '.join(command)} failed: {last_lines}")
    java.cache_clear()
    return java()


def java_release(program: Path) -> int:
    """The feature release (17, 21 ...; 8 for 1.8) that the program reports; 0 where it does not run."""
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(match.group(1)) if match else 0


def _candidates() -> Iterator[Path]:
    homes = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    yield from (home / "bin" / "java" for home in homes)
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path)
    for folder in (Path("/usr/lib/jvm"), Path("/opt/java"), Path("/Library/Java/JavaVirtualMachines")):
        for pattern in ("*/bin/java", "*/Contents/Home/bin/java"):
            yield from sorted(folder.glob(pattern), reverse=True)


def main() -> int:
    """Print the Java that will be used, and install one where possible; otherwise print the remedy."""
    try:
        print(f"Java: {ensure_java()}")
    except JavaMissing as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
