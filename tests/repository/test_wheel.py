"""The wheel is the product: a clean environment, made as the GitHub Action makes it, judges a broker that runs already."""

import email
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from conformance import report
from linearizability.targets import Target
from linearizability.testing import reference_broker

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = ("tidegauge", "reference", "spec", "conformance", "linearizability")
MOST_BYTES, MOST_INSTALLED_BYTES = 5 << 20, 60 << 20
NOT_OURS = ("pip", "setuptools", "pkg_resources", "_distutils_hack")
OF_CHECK = ("numpy", "pyarrow", "confluent_kafka", "pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging")
"""Of the extra `check`, what the plugin's example needs: it is taken from this environment, for it is 300 MB."""
ACTION = yaml.safe_load((REPOSITORY / "action.yml").read_text())


class Job:
    """A job of CI that uses the Action: its folders, and its steps one by one."""

    def __init__(self, home: Path, inputs: dict[str, str]) -> None:
        self.home = home
        self.inputs = {name: str(one.get("default", "")) for name, one in ACTION["inputs"].items()} | inputs
        self.environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(home),
            "RUNNER_TEMP": str(home),
            "GITHUB_OUTPUT": str(home / "output"),
            "GITHUB_STEP_SUMMARY": str(home / "summary.md"),
            "PIP_CONSTRAINT": str(home / "constraints.txt"),
        } | {
            name: text
            for name, text in os.environ.items()
            if name.startswith(("PIP_", "SSL_", "REQUESTS_")) or name.lower().endswith("_proxy")
        }
        pins = re.findall(r"^[\w.-]+(?:\[[^]]*\])?==[^ ;\\]+", (REPOSITORY / "requirements.lock").read_text(), re.M)
        (home / "constraints.txt").write_text("\n".join(re.sub(r"\[.*\]", "", pin) for pin in pins))

    def step(self, name: str, **inputs: str) -> subprocess.CompletedProcess[str]:
        """Run a step as GitHub does: `bash -e -o pipefail`, its inputs in its environment."""
        (step,) = [one for one in ACTION["runs"]["steps"] if one["name"] == name]
        known = self.inputs | inputs
        given = {
            key: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: known[found[1]], text)
            for key, text in step["env"].items()
        }
        assert not any("${{" in text for text in given.values()), given
        command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]]
        return self.run(*command, environment=given)

    def run(self, *command: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        everything = self.environment | (environment or {})
        return subprocess.run(command, cwd=self.home, env=everything, capture_output=True, text=True, timeout=300)

    def tidegauge(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run(str(self.home / "tidegauge" / "bin" / "tidegauge"), *arguments)

    @property
    def packages(self) -> Path:
        (found,) = (self.home / "tidegauge" / "lib").glob("python*/site-packages")
        return found


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, wheels: Path) -> Job:
    """The wheel, installed by the Action's own step into an environment that has nothing else.

    What it needs comes from wheels that are there: pip would read the index's long pages again.
    """
    home = tmp_path_factory.mktemp("job")
    (wheel,) = (wheels / "wheels").glob("tidegauge-*.whl")
    assert wheel.stat().st_size < MOST_BYTES
    made = Job(home, {"package": str(wheel)})
    made.environment |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels / "wheels")}
    installed = made.step("Install")
    assert installed.returncode == 0, installed.stdout + installed.stderr
    return made


@pytest.fixture(scope="module")
def broker() -> Iterator[Target]:
    with reference_broker() as started:
        yield started


def test_it_holds_every_file_of_the_packages(job: Job) -> None:
    tracked = subprocess.run(
        ["git", "ls-files", *PACKAGES], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout.split()
    present = [name for name in tracked if (REPOSITORY / name).is_file()]
    assert [name for name in present if not (job.packages / name).is_file()] == []


def test_it_holds_nothing_that_an_earlier_build_left(wheels: Path, tmp_path: Path) -> None:
    """A requirement's module that was renamed since would be there twice, and each command would end by it."""
    left = wheels / "source" / "build" / "lib" / "conformance" / "requirements" / "renamed_since.py"
    left.parent.mkdir(parents=True, exist_ok=True)
    left.write_text("")
    command = (
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        tmp_path,
        ".",
    )
    subprocess.run(command, cwd=wheels / "source", check=True, timeout=300)
    (wheel,) = tmp_path.glob("tidegauge-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "conformance/requirements/acks.py" in names
    assert [name for name in names if "renamed_since" in name or name == "setup.py"] == []


def test_its_metadata_is_whole(job: Job) -> None:
    (folder,) = job.packages.glob("tidegauge-*.dist-info")
    said = email.message_from_string((folder / "METADATA").read_text())
    assert (said["License-Expression"], said.get_all("License-File")) == ("Apache-2.0", ["LICENSE"])
    assert (folder / "licenses" / "LICENSE").read_text() == (REPOSITORY / "LICENSE").read_text()
    assert said["Requires-Python"] == ">=3.11" and said["Summary"] and said["Author"] and said["Keywords"]
    assert said["Description-Content-Type"] == "text/markdown" and str(said.get_payload()).startswith("# tidegauge")
    assert "Typing :: Typed" in said.get_all("Classifier", [])
    assert [name for name in PACKAGES if not (job.packages / name / "py.typed").is_file()] == []


def test_the_base_installation_is_small(job: Job) -> None:
    files = [
        path
        for path in job.packages.rglob("*")
        if path.is_file() and not path.relative_to(job.packages).parts[0].startswith(NOT_OURS)
    ]
    assert sum(path.stat().st_size for path in files) < MOST_INSTALLED_BYTES


def test_the_action_judges_a_broker_and_its_report_is_the_next_baseline(job: Job, broker: Target) -> None:
    given: dict[str, Any] = {"target": f"addr:{broker.bootstrap}", "arguments": "BAS-01 PRD-05 FRM-01"}
    judged = job.step("Judge", **given)
    assert judged.returncode == 0, judged.stdout + judged.stderr
    folder = job.home / dict(line.split("=") for line in (job.home / "output").read_text().splitlines())["report"]
    assert "<style>" in (folder / "report.html").read_text()
    assert (folder / "junit.xml").exists() and (folder / "badges" / "core.svg").exists()
    assert "| core | 3 | 3 | 0 |" in (job.home / "summary.md").read_text()
    (job.home / "baseline.json").write_bytes((folder / "report.json").read_bytes())
    again = job.step("Judge", baseline="baseline.json", profiles="core groups", **given)
    assert again.returncode == 0, again.stdout + again.stderr
    found = report.read(folder)
    assert (found.target.spec, found.worse, len(found.judgements)) == (given["target"], [], 3)
    assert job.step("Judge", **given | {"arguments": "NO-SUCH"}).returncode == 64


@pytest.mark.sampled(days=3)
@pytest.mark.parametrize("free_kb", [0, 100])
def test_on_a_full_disk_the_verdict_is_shown(job: Job, broker: Target, free_kb: int) -> None:
    """A disk of its own, full when the run begins, or when it writes its report."""
    command = str(job.home / "tidegauge" / "bin" / "tidegauge")
    script = (
        f"mkdir -p disk && mount -t tmpfs -o size=400k none disk && cd disk && head -c {400 - free_kb}k /dev/zero > fill;"
        f" {command} run BAS PRD --target addr:{broker.bootstrap}"
    )
    done = job.run("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script)
    if "Operation not permitted" in done.stderr:
        pytest.skip("no user namespaces here")
    assert (done.returncode, "Traceback" in done.stderr) == (3, False), done.stdout + done.stderr
    assert "No space left on device" in done.stderr
    assert "pass  addr:" in done.stdout, done.stdout + done.stderr


def test_the_documented_shell_commands_run(job: Job, broker: Target) -> None:
    (command,) = re.findall(r"```sh\n(.*?)```", (REPOSITORY / "docs" / "ci.md").read_text(), re.S)
    tidegauge = str(job.home / "tidegauge" / "bin" / "tidegauge")
    text = command.replace("127.0.0.1:9092", broker.bootstrap).replace("tidegauge run", f"{tidegauge} run API-01")
    done = job.run("sh", "-e", "-c", text)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.sampled(days=5)
def test_the_job_for_gitlab_runs_and_leaves_its_artifacts(job: Job, broker: Target) -> None:
    (text,) = re.findall(r"```yaml\n(conformance:.*?)```", (REPOSITORY / "docs" / "ci.md").read_text(), re.S)
    described = yaml.safe_load(text)["conformance"]
    tidegauge = str(job.home / "tidegauge" / "bin" / "tidegauge")
    install, judge = described["script"]
    assert install == "pip install tidegauge"
    judge = judge.replace("tidegauge run", f"{tidegauge} run API-01").replace("broker:9092", broker.bootstrap)
    first = job.run("sh", "-e", "-c", re.sub(r"--baseline \S+", "", judge))
    assert first.returncode == 0, first.stdout + first.stderr
    (job.home / "conformance").mkdir()
    (job.home / "conformance" / "baseline.json").write_bytes((job.home / "results/latest/report.json").read_bytes())
    again = job.run("sh", "-e", "-c", judge)
    assert again.returncode == 0, again.stdout + again.stderr
    assert len({path.resolve() for path in job.home.glob(described["artifacts"]["reports"]["junit"])}) > 1


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (("history", "check", "."), "check"),
        (("fuzz", "--schedules", "1"), "check"),
        (("hunt", "--target", "reference:1"), "check"),
    ],
)
def test_what_an_extra_brings_is_named_where_it_is_missing(job: Job, arguments: tuple[str, ...], extra: str) -> None:
    said = job.tidegauge(*arguments)
    assert (said.returncode, "Traceback" in said.stderr) == (3, False)
    assert f"{job.inputs['package']}[{extra}]'" in said.stderr
    (command,) = re.findall("pip (install '.*')$", said.stderr, re.M)
    tried = job.run("sh", "-c", f"tidegauge/bin/pip --no-input {command} --no-deps --dry-run --no-index")
    assert tried.returncode == 0, tried.stderr


def test_a_requirement_that_needs_an_extra_is_not_judged(job: Job) -> None:
    judged = job.tidegauge("run", "HIS-01", "--target", "reference:1")
    assert judged.returncode == 2, judged.stdout + judged.stderr
    assert f"{Path(job.inputs['package']).name}[check]'" in judged.stdout.replace("\n", "")
    doctor = job.tidegauge("doctor")
    assert doctor.returncode == 0, doctor.stdout


def test_its_artifacts_go_to_the_users_cache(job: Job) -> None:
    code = "from linearizability.targets.artifacts import cache_folder; print(cache_folder())"
    found = job.run(str(job.home / "tidegauge" / "bin" / "python"), "-P", "-c", code)
    assert found.stdout.strip() == str(job.home / ".cache" / "tidegauge" / "artifacts")


def test_nothing_of_the_checkout_is_on_its_path(job: Job) -> None:
    code = f"import sys; print(*sys.path, sep='\\n'); import {', '.join(PACKAGES)}; print(*(each.__file__ for each in ({', '.join(PACKAGES)})), sep='\\n')"
    said = job.run(str(job.home / "tidegauge" / "bin" / "python"), "-P", "-c", code)
    *path, _, _, _, _, _ = places = said.stdout.splitlines()
    assert path and len(places) == len(path) + len(PACKAGES), said.stderr
    assert [place for place in places if Path(place).resolve().is_relative_to(REPOSITORY)] == []
    assert all(Path(place).is_relative_to(job.packages) for place in places[len(path) :])


def test_it_says_its_version(job: Job) -> None:
    said = job.tidegauge("--version")
    assert said.returncode == 0 and said.stdout.startswith("tidegauge "), said.stderr


def documented_tests(job: Job, chosen: str) -> subprocess.CompletedProcess[str]:
    """The example of docs/testing.md, with the plugin that the wheel registers."""
    own, theirs = job.home / "check", Path(pytest.__file__).parents[1]
    if not own.exists():
        own.mkdir()
        for path in theirs.iterdir():
            if path.name.partition(".")[0].partition("-")[0] in OF_CHECK:
                (own / path.name).symlink_to(path)
    (example,) = re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs" / "testing.md").read_text(), re.S)
    (job.home / "test_example.py").write_text(example)
    command = [str(job.home / "tidegauge" / "bin" / "python"), "-m", "pytest", "-q", "test_example.py", "-k", chosen]
    return job.run(*command, environment={"PYTHONPATH": str(own)})


def test_the_plugin_brings_a_broker_and_a_verdict(job: Job) -> None:
    done = documented_tests(job, "not killed")
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_the_plugin_brings_a_cluster_that_is_hurt(job: Job) -> None:
    done = documented_tests(job, "killed")
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.sampled(days=5)
def test_the_plugin_disturbs_no_project_with_packages_of_the_same_names(job: Job) -> None:
    """pytest loads it in every project of the environment."""
    own = job.home / "project"
    (own / "reference").mkdir(parents=True)
    (own / "reference" / "__init__.py").write_text("MINE = True\n")
    (own / "test_mine.py").write_text(
        "import tidegauge.testing\n"
        "from reference import MINE\n\n\n"
        "def test_mine(request):\n"
        "    assert MINE and request.config.pluginmanager.has_plugin('tidegauge')\n"
    )
    documented_tests(job, "nothing of it")  # leaves the folder with pytest
    command = [str(job.home / "tidegauge" / "bin" / "python"), "-m", "pytest", "-q", str(own)]
    done = job.run(*command, environment={"PYTHONPATH": str(job.home / "check")})
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr
