"""The site: it builds without a warning, its links resolve, it has the catalogue's texts, and axe-core finds nothing serious.

In CI most requirements have pages of a heading alone, for 600 pages of the same shapes show nothing more; the slow test has all.
"""

from __future__ import annotations

import json
import re
from functools import cache
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from myst_parser.config.main import MdParserConfig
from myst_parser.parsers.mdit import create_md_parser

from conformance import strangers_commands
from conformance.releases import RELEASES
from conformance.requirement import AREAS, catalogue
from docs.site.__main__ import build, documents
from docs.site.requirements import heading_alone, requirement_pages, sample, text
from tests.browser import Browser, needs_chromium

pytestmark = [
    pytest.mark.sampled(days=5, together=True),
    pytest.mark.xdist_group("site"),
    pytest.mark.filterwarnings("ignore:.*MystReferenceResolver"),  # MyST with Sphinx 9
]

FINDING = "linearizability/findings/raised_min_isr/README.html"
PAGES = ("index.html", FINDING, f"requirements/{max(sample())}.html", "requirements/matrix.html")
WIDTHS = (400, 800, 1400)
EVERY = 10
"""The slow test looks at one page in so many of the requirements, and at all others."""
RESULTS = """new Promise((done) => {
  const look = (left) => {
    const found = [...document.querySelectorAll("#search-results li a")].map((one) => one.textContent.trim());
    found.includes("ID") || left === 0 ? done(found) : setTimeout(() => look(left - 1), 100);
  };
  look(600);
})"""
"""The titles that the search page has found, once the one that is looked for is there."""
LEAVE_FEW_ROWS = """(() => {
  document.querySelectorAll(".matrix tbody tr:nth-child(n + 3)").forEach((row) => row.remove());
  [...document.querySelectorAll(".matrix")].slice(2).forEach((table) => table.remove());
})()"""
"""The matrix has 12,000 cells of ten kinds in tables of one form; axe-core takes minutes for all of them."""
LEAST_LINKS = 10_000
SPECIAL = "a * b_c_ <d> | `e` [f](g) $h$ ~i~ {j} #k \\l --- http://m.n"


class Page(HTMLParser):
    """What a page links to, the anchors that it has, and its words."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.words: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.links |= {found[name] or "" for name in ("href", "src") if name in found}
        self.anchors |= {found[name] or "" for name in ("id", "name") if name in found}

    def handle_data(self, data: str) -> None:
        self.words.append(data)


page = cache(Page)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site with a sample of requirements. A warning of Sphinx fails the build."""
    return built(tmp_path_factory.mktemp("site"), whole=False)


@pytest.fixture(scope="module")
def whole_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("whole"), whole=True)


def built(folder: Path, whole: bool) -> Path:
    assert build(folder, whole) == 0
    return folder / "html"


def test_every_document_and_requirement_has_a_page(site: Path) -> None:
    names = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    assert {f"requirements/{name}.html" for name in (*catalogue(), "index", "profiles", "matrix")} <= names
    repository = Path(__file__).resolve().parents[2]
    wanted = {path.relative_to(repository).with_suffix(".html").as_posix() for path in documents()}
    assert wanted - names == {"README.html", "docs/site/index.html"}  # the start page includes both


def test_every_internal_link_and_anchor_resolves(site: Path) -> None:
    links_resolve(site)


def links_resolve(site: Path) -> None:
    broken: list[str] = []
    count = 0
    for path in sorted(site.rglob("*.html")):
        for link in page(path).links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            count += 1
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchored = target.suffix != ".html" or not parts.fragment or unquote(parts.fragment) in page(target).anchors
            if not (target.is_file() and target.is_relative_to(site) and anchored):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []
    assert count > LEAST_LINKS


def test_nothing_is_loaded_from_other_hosts(site: Path) -> None:
    loaded = re.compile(r'<(?:script|img|iframe)[^>]* src="(?:https?:)?//|<link[^>]* href="(?:https?:)?//')
    assert [path.name for path in site.rglob("*.html") if loaded.search(path.read_text())] == []


def test_sampled_pages_say_the_catalogue_unchanged(site: Path) -> None:
    has_the_catalogue({id: "".join(page(site / "requirements" / f"{id}.html").words) for id in sample()})


def test_the_text_of_every_page_says_the_catalogue_unchanged_and_leads_to_pages() -> None:
    pages = requirement_pages()
    has_the_catalogue({id: words_of(pages[f"{id}.md"]) for id in catalogue()})
    inside = {link for markdown in pages.values() for link in re.findall(r"\]\(([\w-]+\.md)\)", markdown)}
    assert inside - pages.keys() == {"matrix.md"}
    outside = {link for markdown in pages.values() for link in re.findall(r"\]\(\.\./([^)#]+)\)", markdown)}
    repository = Path(__file__).resolve().parents[2]
    assert outside and [link for link in outside if not (repository / link).is_file()] == []


def has_the_catalogue(shown: dict[str, str]) -> None:
    """Check the texts of requirements; `shown` has id -> the words of its page."""
    for id, words in shown.items():
        record, words = catalogue()[id].requirement, " ".join(words.split())
        for said in (record.sentence, record.accepted, record.tolerated, record.source, record.notices):
            assert " ".join(said.split()) in words, f"{id}: {said}"


@cache
def markdown() -> MarkdownIt:
    return create_md_parser(MdParserConfig(), RendererHTML)


def words_of(text: str) -> str:
    """The text that a reader sees of Markdown."""
    return unescape(re.sub("<[^>]*>", "", markdown().render(text))).strip()


def test_markdown_s_own_characters_are_escaped() -> None:
    assert words_of(text(SPECIAL)) == SPECIAL


def test_the_sample_is_small_and_what_is_left_out_keeps_its_page(site: Path) -> None:
    assert {id[:3] for id in sample()} == {id[:3] for id in catalogue()} and len(sample()) < len(catalogue()) / 5
    left_out = min(catalogue().keys() - sample())
    assert f"# {left_out}" in heading_alone(left_out)
    assert (site / "requirements" / f"{left_out}.html").stat().st_size > 0


def test_the_matrix_has_a_row_a_requirement_and_a_column_a_release(site: Path) -> None:
    source = (site / "requirements" / "matrix.html").read_text()
    rows = re.findall(r'<tr><th scope="row"><a href="([\w-]+)\.html".*?</tr>', source)
    assert rows == list(catalogue())
    columns = len(RELEASES) + len([*strangers_commands.FOLDER.glob("*.json")])
    assert {row.count("<td") for row in re.findall(r'<tr><th scope="row">.*?</tr>', source)} == {columns}
    assert len(re.findall(r'<div class="matrix"', source)) == len({id[:3] for id in catalogue()}) <= len(AREAS)


@needs_chromium
def test_axe_finds_nothing_serious(site: Path, tmp_path: Path) -> None:
    with Browser(tmp_path) as browser:
        for name in PAGES:
            for width in WIDTHS:
                can_be_used(browser, site / name, width)


def can_be_used(browser: Browser, path: Path, width: int) -> None:
    """A page is no wider than its window, and axe-core finds nothing serious on it."""
    browser.open(path.as_uri(), width=width, dark=width == WIDTHS[0])
    wide = browser.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert wide <= 0, f"{path} at {width} is {wide} pixels too wide"
    browser.evaluate(LEAVE_FEW_ROWS)
    assert browser.serious() == [], f"{path} at {width}"


@pytest.mark.slow
@needs_chromium
def test_the_whole_site_can_be_used(whole_site: Path, tmp_path: Path) -> None:
    links_resolve(whole_site)
    has_the_catalogue({id: "".join(page(whole_site / "requirements" / f"{id}.html").words) for id in catalogue()})
    requirements = [whole_site / "requirements" / f"{id}.html" for id in catalogue()]
    others = sorted({*whole_site.rglob("*.html")} - {*requirements})
    with Browser(tmp_path) as browser:
        for number, path in enumerate([*others, *requirements[::EVERY]]):
            can_be_used(browser, path, WIDTHS[number % len(WIDTHS)])


DRAWN = """new Promise((done) => {
  const drawn = () => document.querySelectorAll(".mermaid .messageText").length;
  const look = (left) => drawn() || left === 0 ? done(drawn()) : setTimeout(() => look(left - 1), 100);
  look(600);
})"""
REFUSED = """Promise.all(DIAGRAMS.map((text) => mermaid.parse(text).then(() => "", (error) => text + error)))
  .then((all) => all.filter(Boolean))"""


@needs_chromium
def test_diagrams_are_drawn(site: Path, tmp_path: Path) -> None:
    diagrams = [found for path in documents() for found in re.findall(r"```mermaid\n(.*?)```", path.read_text(), re.S)]
    shown = [html for path in site.rglob("*.html") if 'class="mermaid"' in (html := path.read_text())]
    assert len(diagrams) == sum(html.count('<pre class="mermaid"') for html in shown) > 10
    with Browser(tmp_path) as browser:
        browser.open((site / FINDING).as_uri())
        assert browser.evaluate(DRAWN) == (site / FINDING).read_text().count("&gt;&gt;") > 3
        assert browser.evaluate(REFUSED.replace("DIAGRAMS", json.dumps(diagrams))) == []


@needs_chromium
def test_search_works_from_files(site: Path, tmp_path: Path) -> None:
    id = max(sample())
    words = "+".join(re.findall(r"[A-Za-z]{4,}", catalogue()[id].requirement.sentence))
    with Browser(tmp_path) as browser:
        browser.open((site / "search.html").as_uri() + f"?q={words}")
        found = browser.evaluate(RESULTS.replace("ID", id))
    assert id in found, found
