"""Runs a hunt, or any command, again inside namespaces of its own: `python -m linearizability.faults.sandbox FOLDER`.

The parent has written `FOLDER/plan.json` (and schedules to be carried out, if any) and has fetched what must come from
outside, because the sandbox has no way out. The child writes `FOLDER/summary.json`; its exit code says whether it could.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from linearizability.targets import leash

if TYPE_CHECKING:
    from linearizability.faults.schedule import Schedule

SELF_TEST_WITHIN_S = 20
INSIDE = "TIDEGAUGE_SANDBOX"
"""Set where a command runs inside."""


def obstacle() -> str:
    """Why this machine cannot make a sandbox; empty where it can."""
    if not sys.platform.startswith("linux"):
        return "network namespaces are Linux's"
    for program in ("unshare", "nsenter"):
        if not shutil.which(program):
            return f"{program} is not installed (Debian: util-linux)"
    test = [
        *unshare(),
        sys.executable,
        "-c",
        "from linearizability.faults.network import Network\nwith Network(1): pass",
    ]
    try:
        done = subprocess.run(test, capture_output=True, text=True, timeout=SELF_TEST_WITHIN_S, check=False)
    except subprocess.TimeoutExpired:
        return f"no network namespace within {SELF_TEST_WITHIN_S} s"
    return (done.stderr.strip().splitlines() or ["unshare failed"])[-1] if done.returncode else ""


def unshare() -> list[str]:
    """The words before a command that run it in namespaces of its own, which end with it."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *user, "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]


def run_in_sandbox(folder: Path) -> int:
    """Carry out the plan of a folder; returns the child's exit code. Ctrl-C goes to the child, which ends in good order."""
    return _await([sys.executable, "-m", "linearizability.faults.sandbox", str(folder.resolve())], {})


def command_in_sandbox(arguments: Sequence[str]) -> int:
    """Run a command of tidegauge with these arguments; returns its exit code. It is `inside` then."""
    return _await([sys.executable, "-m", "tidegauge", *arguments], {INSIDE: "1"})


def inside() -> bool:
    """Whether this process was started by `command_in_sandbox`."""
    return INSIDE in os.environ


def _await(command: Sequence[str], environment: Mapping[str, str]) -> int:
    child = leash.start([*unshare(), *command], environment=environment)
    interrupted = 0
    while True:
        try:
            code = child.wait()
            leash.let_go(child.pid)
            return code
        except KeyboardInterrupt:
            interrupted += 1
            leash.kill_group(child.pid, signal.SIGINT if interrupted < 3 else signal.SIGKILL)


def keep_given_schedules(folder: Path, schedules: Sequence[Schedule]) -> None:
    """Store schedules for a hunt that runs in another process."""
    for number, schedule in enumerate(schedules, start=1):
        schedule.save(folder / f"given-{number}.json")


def load_given_schedules(folder: Path) -> list[Schedule]:
    """The schedules that `keep_given_schedules` stored."""
    from linearizability.faults import all_faults
    from linearizability.faults.schedule import Schedule

    all_faults()  # registers them, so that the schedules' are known
    paths = [folder / f"given-{number}.json" for number in range(1, 1 + len(list(folder.glob("given-*.json"))))]
    return [Schedule.load(path) for path in paths]


def main(arguments: list[str]) -> int:
    """Run the hunt of a folder, inside the sandbox."""
    import json

    from linearizability.faults.hunt import hunt
    from linearizability.faults.plan import Plan
    from linearizability.progress import Progress

    folder = Path(arguments[0])
    plan = Plan.model_validate_json((folder / "plan.json").read_text())
    signal.signal(signal.SIGINT, signal.default_int_handler)  # unshare hands it over ignored
    try:
        hunt(plan, folder, Progress().keep, load_given_schedules(folder))
    except Exception as error:
        (folder / "summary.json").write_text(json.dumps({"verdict": "error", "error": str(error)}) + "\n")
        raise
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
