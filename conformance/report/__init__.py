"""What a run leaves: `report.json` (schema in `schema.json`), `report.html` and `junit.xml` in its folder."""

from __future__ import annotations

from pathlib import Path

from conformance.results import Run

JSON_NAME, HTML_NAME, JUNIT_NAME = "report.json", "report.html", "junit.xml"


def write(run: Run, folder: Path) -> None:
    """Write all three files."""
    from conformance.report.html import run_page
    from conformance.report.junit import junit

    (folder / JSON_NAME).write_text(run.model_dump_json(by_alias=True, indent=1) + "\n")
    (folder / JUNIT_NAME).write_bytes(junit(run))
    (folder / HTML_NAME).write_text(run_page(run))


def read(path: Path) -> Run:
    """Read a stored run: its folder, or the JSON file itself.

    Errors: FileNotFoundError, or pydantic's ValidationError when the file is no report of this format.
    """
    return Run.model_validate_json((path / JSON_NAME if path.is_dir() else path).read_bytes())
