"""The limit of open files: raised, shared, and too low a one refused before a partition fails by it."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from reference.runtime.configuration import ConfigurationError
from reference.runtime.descriptors import SPARE, check_limit, shares_of
from reference.storage.posix_disk import DESCRIPTORS_A_MAP, MOST_OPEN_FILES, MOST_OPEN_MAPS


def with_segments(folder: Path, count: int) -> Path:
    for number in range(count):
        (folder / f"t-{number}").mkdir()
        (folder / f"t-{number}" / f"{0:020}.log").touch()
    return folder


def test_the_limit_is_shared_among_segments_indexes_and_connections(tmp_path: Path) -> None:
    assert check_limit(1064, [with_segments(tmp_path, 3)]) == (
        "info",
        "1064 open files are allowed: at most 375 for segments and 250 for indexes, the others for connections; "
        "3 segments are here",
    )
    assert shares_of(20_000, 1) == (9_468, 500)
    assert shares_of(20_000, 2) == (4_484, 500)
    assert shares_of(resource.RLIM_INFINITY, 3) == (MOST_OPEN_FILES, MOST_OPEN_MAPS)
    assert check_limit(resource.RLIM_INFINITY, [tmp_path])[0] == "info"


@pytest.mark.parametrize("limit", [120, 1_024, 20_000])
@pytest.mark.parametrize("disks", [1, 2])
def test_the_shares_leave_room_for_connections(limit: int, disks: int) -> None:
    shares = shares_of(limit, disks)
    assert disks * (2 * shares.files + DESCRIPTORS_A_MAP * shares.maps) + SPARE <= limit


def test_more_segments_than_may_be_open_are_a_warning_and_too_low_a_limit_an_error(tmp_path: Path) -> None:
    with_segments(tmp_path, 100)
    assert check_limit(64 + 266, [tmp_path])[0] == "info"
    assert check_limit(64 + 264, [tmp_path])[0] == "warning"
    with pytest.raises(ConfigurationError, match="90 open files are allowed, which is too few"):
        check_limit(90, [tmp_path])


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    script = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (90, 100))\n"
    script += "from reference.runtime.descriptors import raise_file_limit; print(raise_file_limit())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "100"
