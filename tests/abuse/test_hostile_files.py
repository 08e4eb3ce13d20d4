"""Files of another origin: names in them run no code in the pages that are made of them, and lead out of no folder."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from tidegauge import main

HISTORY = Path(__file__).parents[1] / "history/regressions/kafka-1.1.0-unclean-election"
HOSTILE = "</script></title><img src=x onerror=alert(1)>'\"/../../../escaped"
"""A topic's name, a key or a value: it ends what a page may be in, and climbs out of folders."""
BARE = re.compile(r"<img src=x", re.I)


def command(*arguments: str | Path) -> int:
    """Run it in this process; gives its exit code."""
    with pytest.raises(SystemExit) as ended:
        main([str(each) for each in arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """An invalid history whose run and topic have that name."""
    folder = tmp_path / "hostile"
    folder.mkdir()
    name = json.dumps(HOSTILE)[1:-1]
    for file in HISTORY.iterdir():
        if file.name.endswith(".gz"):
            text = gzip.decompress(file.read_bytes()).decode().replace("hunt-20261122t040943z-3", name)
            (folder / file.name).write_bytes(gzip.compress(text.encode()))
    return folder


def test_names_in_a_history_run_nothing_and_lead_nowhere(hostile: Path, tmp_path: Path) -> None:
    made = tmp_path / "a/b/c/d"
    made.mkdir(parents=True)
    before = {*tmp_path.rglob("*")}
    assert command("history", "check", hostile, "--output", made / "checked") == 1
    command("history", "show", hostile, "--svg", made / "svg", "--page", made / "page.html")
    command("history", "export", hostile, made / "store", "--to", "parquet")
    new = {*tmp_path.rglob("*")} - before
    pages = [each for each in new if each.suffix in (".html", ".svg")]
    assert len(pages) > 2
    assert [each for each in pages if BARE.search(each.read_text())] == []
    assert [each for each in new if made not in each.parents] == []


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"steps": "x"}', json.dumps({"format": HOSTILE}), "[" * 100_000, '{"a":' * 50_000, "\x00" * 1000],
)
def test_what_is_no_schedule_is_refused_in_words(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "schedule.json"
    file.write_text(text)
    assert command("replay", file) in (3, 64)
    said = capsys.readouterr()
    assert "Traceback" not in said.err + said.out
