"""linearizability/results.py"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from linearizability.results import new_run_folder


def test_folder_names_the_run_and_latest_points_to_it(tmp_path: Path) -> None:
    first = new_run_folder("hunt", "kafka:4.3.1/x y", root=tmp_path)
    assert first.parent == tmp_path and first.is_dir()
    assert first.name.endswith("-hunt-kafka-4.3.1-x-y")
    second = new_run_folder("run", root=tmp_path)
    assert (tmp_path / "latest").is_symlink() and (tmp_path / "latest").resolve() == second.resolve()


def test_folders_are_unique_when_many_start_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: new_run_folder("fuzz", "7", root=tmp_path), range(40)))
    assert len(set(folders)) == 40
    assert (tmp_path / "latest").resolve() in {folder.resolve() for folder in folders}
