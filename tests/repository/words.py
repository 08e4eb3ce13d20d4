"""Refuses new uses of the words that the field does not have: `python -m tests.repository.words [--lower]`.

`words.txt` says how often each word may still be used in each folder. A count may fall and never rise: `--lower` writes the
counts of today where they are smaller. Words are counted inside of identifiers too (`ToldBy`, `reign_of`).
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("words.txt")
OTHER = "other"
"""The files of the root."""
FOLDERS = ("reference", "spec", "conformance", "linearizability", "tests", OTHER)
SUFFIXES = {".py", ".md", ".tla", ".cfg", ".j2", ".toml", ".java", ".c", ".go", ""}

INSTEAD = {
    "reign": "leadership, leader epoch",
    "reigns": "leaderships, leader epochs",
    "tell": "report, return, answer", "tells": "reports", "told": "reported", "telling": "reporting",
    "hear": "receive, learn", "hears": "receives", "heard": "received", "unheard": "removed, and not replayed yet",
    "nobody": "no client, no replica", "somebody": "a client, a replica", "whoever": "name the party", "whom": "name the party",
    "blow": "fault", "blows": "faults", "strike": "inject", "strikes": "injects", "struck": "injected",
    "misfortune": "fault pattern", "misfortunes": "fault patterns",
    "cue": "step", "cues": "steps", "conductor": "replay driver", "prompter": "scripted client",
    "notebook": "history recorder", "ledger": "partition oracle",
    "lane": "connection purpose, channel", "lanes": "channels",
    "fate": "outcome", "fates": "outcomes", "convicted": "detected", "condemned": "invalid",
    "pump": "drain", "stir": "invalidate deadlines",
    "misfit": "refusal", "misfits": "refusals",
    "life": "incarnation, run, session", "parking": "purgatory",
    "anew": "again", "vain": "without effect",
    "plots": "fault patterns", "kernel": "checker, pure rule", "kernels": "checkers, pure rules", "convict": "detect",
    "everybody": "each client, each replica", "anybody": "a client, a replica", "lives": "runs, incarnations",
    "elsewhere": "in another place, by name",
}  # fmt: skip
"""Word -> what the field says."""

WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
Counts = dict[tuple[str, str], int]
"""(word, folder) -> uses."""


def words_of(text: str) -> list[str]:
    """The words of a text, small, those inside of identifiers too."""
    return [word.lower() for word in WORD.findall(text)]


def texts() -> Iterator[tuple[str, Path]]:
    """Folder and path of each text file, but for the table and this module."""
    for folder in FOLDERS:
        for path in ROOT.glob("*") if folder == OTHER else (ROOT / folder).rglob("*"):
            if path.suffix in SUFFIXES and path.is_file() and path not in (TABLE, Path(__file__)):
                yield folder, path


def count() -> Counts:
    """The uses in all text files."""
    found: Counter[tuple[str, str]] = Counter()
    for folder, path in texts():
        words = words_of(path.read_text(errors="replace"))
        found.update((word, folder) for word in words if word in INSTEAD)
    return dict(found)


def read_table(text: str) -> Counts:
    """Lines `word count count …`, a count for each folder of the first line."""
    head, *lines = (line.split() for line in text.splitlines())
    return {
        (word, folder): int(uses)
        for word, *counts in lines
        for folder, uses in zip(head[1:], counts, strict=True)
        if uses != "0"
    }


def write_table(counts: Counts) -> str:
    rows = [[word, *(str(counts.get((word, folder), 0)) for folder in FOLDERS)] for word in INSTEAD]
    widths = [max(len(folder), 5) for folder in FOLDERS]
    return "".join(
        f"{word:<12}" + "".join(f" {cell:>{width}}" for cell, width in zip(cells, widths, strict=True)) + "\n"
        for word, *cells in [["word", *FOLDERS], *rows]
    )


def new_uses(found: Counts, allowed: Counts) -> list[str]:
    """One line for each word that a folder uses more often than it may."""
    return [
        f"{folder}: {word!r} is used {uses} times, {allowed.get((word, folder), 0)} are allowed. Write: {INSTEAD[word]}"
        for (word, folder), uses in sorted(found.items())
        if uses > allowed.get((word, folder), 0)
    ]


def main(arguments: list[str]) -> int:
    allowed, found = read_table(TABLE.read_text()), count()
    if arguments == ["--lower"]:
        TABLE.write_text(write_table({key: min(uses, found.get(key, 0)) for key, uses in allowed.items()}))
        return 0
    complaints = new_uses(found, allowed)
    print(*complaints, sep="\n", end="\n" if complaints else "")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
