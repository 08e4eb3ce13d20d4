"""The report files in a run's folder: `report.json` (schema in `schema.json`), `report.html`, `junit.xml`, and `badges/`."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from conformance.results import FORMAT, Run, profile_tallies

JSON_NAME, HTML_NAME, JUNIT_NAME, BADGES_NAME = "report.json", "report.html", "junit.xml", "badges"


class UnknownFormat(ValueError):
    """The report has another format, which this version of the suite would misread."""


def write(run: Run, folder: Path) -> None:
    """Write all report files, each atomically. Errors: OSError."""
    from conformance.report.badge import badge
    from conformance.report.html import run_page
    from conformance.report.junit import junit

    _keep(folder / JSON_NAME, f"{run.model_dump_json(by_alias=True, indent=1)}\n".encode())
    _keep(folder / JUNIT_NAME, junit(run))
    _keep(folder / HTML_NAME, run_page(run).encode())
    (folder / BADGES_NAME).mkdir(exist_ok=True)
    for tally in profile_tallies(run.judgements, run.target.kafka_version):
        _keep(folder / BADGES_NAME / f"{tally.profile}.svg", badge(tally).encode())


def _keep(path: Path, data: bytes) -> None:
    partial = path.with_name(f"{path.name}.partial")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def read(path: Path) -> Run:
    """Read a stored run: its folder, or the JSON file itself.

    Errors: FileNotFoundError, UnknownFormat, or pydantic's ValidationError when the file is no report.
    """
    data = (path / JSON_NAME if path.is_dir() else path).read_bytes()
    found = _FormatOnly.model_validate_json(data).format
    if found != FORMAT:
        raise UnknownFormat(f"a report of format {found}; this suite reads format {FORMAT}")
    return Run.model_validate_json(data)


class _FormatOnly(BaseModel):
    """The field that is read before all others."""

    format: int
