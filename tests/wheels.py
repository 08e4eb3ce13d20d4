"""The wheels of this checkout and of all that it needs, made once in a run of tests."""

import fcntl
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
BUILT_WITHIN_S = 600


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The folder that `make wheels` filled, `wheels/` in it: by the first worker that asked; the others wait for it."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "image"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (made := folder / "made").exists():
            make_wheels(folder, "")
            made.touch()
    return folder


def make_wheels(folder: Path, extras: str) -> None:
    """`make wheels` into a folder."""
    command = ["make", "wheels", f"IMAGE_FOLDER={folder}", f"EXTRAS={extras}"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=BUILT_WITHIN_S)
    assert done.returncode == 0, done.stdout + done.stderr
