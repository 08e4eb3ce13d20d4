"""Files of results that a later run continues: replaced as a whole, so that an interrupted run leaves the former one."""

from __future__ import annotations

from pathlib import Path


def make_folder_of(store: Path) -> None:
    """Create the folder of a store, before a run whose results will be written there. Errors: OSError."""
    store.parent.mkdir(parents=True, exist_ok=True)


def replace_file(path: Path, text: str) -> None:
    """Write a file under another name and rename it. Errors: OSError; then the former file is as it was."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        partial.write_text(text)
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
