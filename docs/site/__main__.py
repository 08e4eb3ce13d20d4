"""`python -m docs.site`: build the site, and fail on any warning of Sphinx."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from pathlib import Path

from conformance.requirement import catalogue
from docs.site.access import access_page
from docs.site.matrix import matrix_page
from docs.site.npm import MERMAID, npm_file
from docs.site.requirements import heading_alone, requirement_pages, sample

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDERS = ("conformance", "docs", "linearizability", "reference", "spec", "tests")
"""Folders whose documents are pages."""
TOP_LEVEL = ("README.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md")
LINK = re.compile(r"\]\(([^)#\s:]+)\)")


def documents() -> list[Path]:
    """Every document of the repository that is a page."""
    inside = [path for folder in FOLDERS for path in sorted((REPOSITORY / folder).rglob("*.md"))]
    return [REPOSITORY / name for name in TOP_LEVEL] + inside


def stage(source: Path, whole: bool = True) -> None:
    """Write what Sphinx reads: the documents at their own addresses, the files that they link to, the generated pages.

    Where it is not the whole, requirements beyond a sample have pages of a heading alone.
    """
    shutil.rmtree(source, ignore_errors=True)
    pages = {path: path.read_text() for path in documents()}
    pages[REPOSITORY / "index.md"] = (REPOSITORY / "docs" / "site" / "index.md").read_text()
    requirements = requirement_pages()
    if not whole:
        requirements |= {f"{id}.md": heading_alone(id) for id in catalogue().keys() - sample()}
    for name, text in (requirements | {"matrix.md": matrix_page(), "access.md": access_page()}).items():
        pages[REPOSITORY / "requirements" / name] = text
    for path, text in pages.items():
        place = source / path.relative_to(REPOSITORY)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        for target in LINK.findall(text):
            _copy((path.parent / target).resolve(), source)


def _copy(file: Path, source: Path) -> None:
    """What a page links to or shows, where it is a file and no page."""
    place = source / file.relative_to(REPOSITORY)
    if file.is_file() and file.suffix != ".md" and not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, place)


def _diagram_script(file: Path) -> list[str]:
    """Fetch what draws the diagrams; gives nothing where that fails, which is said."""
    try:
        script = npm_file(MERMAID, "dist/mermaid.min.js")
    except OSError as error:
        print(f"diagrams stay text: {error}", file=sys.stderr)
        return []
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(script)
    return [str(file)]


def build(folder: Path, whole: bool = True) -> int:
    """Stage and build below a folder; gives Sphinx's exit code, which a warning makes 1."""
    from sphinx.cmd.build import build_main

    stage(folder / "source", whole)
    html = folder / "html"
    shutil.rmtree(html, ignore_errors=True)
    static = ["site.css", *_diagram_script(folder / "mermaid.js")]
    options = ["--quiet", "--fail-on-warning", "--jobs", "auto", "--conf-dir", str(REPOSITORY / "docs" / "site")]
    options += ["-D", f"html_static_path={','.join(static)}"]
    return build_main(["-b", "html", *options, "-d", str(folder / "doctrees"), str(folder / "source"), str(html)])


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=REPOSITORY / "build" / "site", help="default: build/site")
    folder = parser.parse_args().output.resolve()
    print("building some 800 pages: a minute or two", file=sys.stderr)
    code = build(folder)
    if code == 0:
        print(folder / "html" / "index.html")
    return code


if __name__ == "__main__":
    sys.exit(main())
