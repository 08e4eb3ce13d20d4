"""The wheel is the product: it holds all that the packages need, and works where there is no checkout."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = ("reference", "spec", "conformance", "linearizability")
MOST_BYTES = 5 << 20


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """A folder with what the wheel installs."""
    home = tmp_path_factory.mktemp("wheel")
    source = home / "source"
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=True).stdout
    for name in filter(None, tracked.decode().split("\0")):
        if (REPOSITORY / name).is_file() and name.partition("/")[0] != "tests":
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((REPOSITORY / name).read_bytes())
    build = "from setuptools.build_meta import build_wheel; print(build_wheel('..'))"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True)
    (wheel,) = home.glob("*.whl")
    assert wheel.stat().st_size < MOST_BYTES
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(home / "installed")
    return home / "installed"


def tidegauge(installed: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(installed)}
    command = [sys.executable, "-P", "-m", "tidegauge", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def test_it_holds_every_file_of_the_packages(installed):
    tracked = subprocess.run(
        ["git", "ls-files", *PACKAGES, "tidegauge.py"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout.split()
    present = [name for name in tracked if (REPOSITORY / name).is_file()]
    assert [name for name in present if not (installed / name).is_file()] == []


def test_outside_of_a_checkout_it_judges_a_broker_and_writes_the_report(installed, tmp_path):
    judged = tidegauge(installed, tmp_path, "run", "--target", "reference:1", "BAS-01", "PRD-05")
    assert judged.returncode == 0, judged.stdout + judged.stderr
    page = tmp_path / "results" / "latest" / "report.html"
    assert "<style>" in page.read_text()
    again = tidegauge(installed, tmp_path, "report")
    assert again.returncode == 0, again.stderr


def test_its_artifacts_go_to_the_users_cache(installed, tmp_path):
    code = "from linearizability.targets.artifacts import cache_folder; print(cache_folder())"
    environment = {"HOME": str(tmp_path), "PYTHONPATH": str(installed)}
    found = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == str(tmp_path / ".cache" / "tidegauge" / "artifacts")


def test_it_says_its_version(installed, tmp_path):
    said = tidegauge(installed, tmp_path, "--version")
    assert said.returncode == 0 and said.stdout.startswith("tidegauge "), said.stderr
