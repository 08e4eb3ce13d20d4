"""Proves that a change of structure changes no behaviour: `python -m tests.repository.same_runs REVISION [SEEDS]`.

Each kind of simulated run is made with the same seeds in the tree of the revision and in this one. A run's digest covers every
message, every write to a disk and every step that it traced; equal digests mean that both trees did the same. Prints each run
that differs; exit code 1 if there is one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
SEEDS = 8
KINDS = (
    (1, "records", "kraft"),
    (3, "records", "kraft"),
    (3, "transactions", "kraft"),
    (3, "groups", "kraft"),
    (3, "copy", "kraft"),
    (3, "records", "zookeeper"),
)
"""Nodes, workload and what coordinates the brokers."""


def digests(seeds: int) -> dict[str, str]:
    """`kind/seed` -> digest of the run, in the tree that is the current directory."""
    from linearizability.simulation.drawing import draw
    from linearizability.simulation.run import execute

    found: dict[str, str] = {}
    for nodes, workload, coordination in KINDS:
        for seed in range(seeds):
            finished, _ = execute(draw(seed, None, nodes, workload, coordination))
            found[f"{nodes} nodes, {workload}, {coordination}, seed {seed}"] = f"{finished.digest} {finished.rule}"
    return found


def start(tree: Path, seeds: int) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--digests", str(seeds)]
    return subprocess.Popen(
        command, cwd=tree, env=os.environ | {"PYTHONPATH": str(tree)}, stdout=subprocess.PIPE, text=True
    )


def compare(revision: str, seeds: int) -> int:
    """The number of runs that differ."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", tree, revision], cwd=ROOT, check=True)
        try:
            texts: list[str] = []
            for running in [start(tree, seeds), start(ROOT, seeds)]:
                texts.append(running.communicate()[0])
                if running.returncode:
                    raise SystemExit(f"a tree could not be run (exit code {running.returncode})")
            before, after = map(json.loads, texts)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True)
    different = [run for run in before if after.get(run) != before[run]]
    for run in different:
        print(f"{run}: {before[run]} is {after.get(run)}")
    print(f"{len(before) - len(different)} of {len(before)} runs are the same as at {revision}")
    return len(different)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--digests", seeds]:
            sys.path.insert(0, str(Path.cwd()))  # an environment may put its own tree before PYTHONPATH
            sys.stdout.write(json.dumps(digests(int(seeds))))
        case [revision]:
            sys.exit(min(1, compare(revision, SEEDS)))
        case [revision, seeds]:
            sys.exit(min(1, compare(revision, int(seeds))))
        case _:
            sys.exit("usage: python -m tests.repository.same_runs REVISION [SEEDS]")
