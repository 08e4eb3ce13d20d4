"""The limit of open files: raised, reported in partitions, and too low a one refused before a partition fails by it."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from reference.runtime.configuration import ConfigurationError
from reference.runtime.descriptors import check_limit


def with_segments(folder: Path, count: int) -> Path:
    for number in range(count):
        (folder / f"t-{number}").mkdir()
        (folder / f"t-{number}" / f"{0:020}.log").touch()
    return folder


def test_the_limit_is_reported_in_partitions(tmp_path: Path) -> None:
    level, reported = check_limit(1064, [with_segments(tmp_path, 3)])
    assert (level, reported) == (
        "info",
        "1064 open files are allowed: room for 200 partitions of one segment each (1 file a segment, 1 a connection, "
        "at most 1000 for indexes); 3 segments are here",
    )
    assert "room for 18936 partitions" in check_limit(20_000, [tmp_path])[1]
    assert check_limit(resource.RLIM_INFINITY, [tmp_path])[0] == "info"


def test_a_limit_that_is_nearly_reached_is_a_warning_and_one_that_is_too_low_an_error(tmp_path: Path) -> None:
    with_segments(tmp_path, 100)
    assert check_limit(64 + 5 * 120, [tmp_path])[0] == "warning"
    assert check_limit(64 + 300, [tmp_path])[0] == "warning"
    with pytest.raises(
        ConfigurationError, match=r"100 segments, which need 364 open files or more, and 363 open files"
    ):
        check_limit(63 + 300, [tmp_path])


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    script = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (90, 100))\n"
    script += "from reference.runtime.descriptors import raise_file_limit; print(raise_file_limit())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "100"
