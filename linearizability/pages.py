"""Parts of documents that a command writes: they lie between two marks, `<!-- NAME: begin -->` and `<!-- NAME: end -->`."""

from pathlib import Path

__all__ = ["write_part"]


def write_part(page: Path, name: str, text: str) -> None:
    """Put `text` between the marks of that name. Errors: OSError, ValueError where the page has no such marks."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found, rest = page.read_text().partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found and found_end):
        raise ValueError(f"{page} has no part {begin} … {end}")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}")
