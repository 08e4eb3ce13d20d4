"""How Sphinx builds the site: see `docs.site`."""

import re
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]

project = PACKAGE["name"]
release = version = PACKAGE["version"]
extensions = ["myst_parser"]
include_patterns = ["**/*.md", "*.md"]
exclude_patterns = ["README.md", "docs/site/index.md"]
"""The start page includes the README."""

smartquotes = False
highlight_language = "none"
myst_heading_anchors = 4
suppress_warnings = ["myst.header", "misc.highlighting_failure"]
"""Some documents skip a level of headings."""

html_theme = "furo"
html_title = f"{project} {version}"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_copy_source = False
html_use_index = False
html_show_sphinx = False
html_show_copyright = False
html_show_search_summary = False
"""Summaries are fetched, which browsers refuse for pages opened from files."""
html_permalinks_icon = "#"


_navigation: dict[str, Callable[..., str]] = {}


def share_navigation(_app: Any, page: str, _template: str, context: dict[str, Any], _tree: Any) -> None:
    """Pages of requirements are in no table of contents, so they have one navigation: made once, not 500 times."""
    made = context.get("toctree")
    if made is None:
        return

    @cache
    def levelled(**options: Any) -> str:
        return made(**options).replace('role="heading"', 'role="heading" aria-level="2"')

    folder, _, name = page.rpartition("/")
    shared = folder == "requirements" and name not in ("index", "profiles", "matrix")
    context["toctree"] = _navigation.setdefault(folder, levelled) if shared else levelled


def scroll_by_keys(_app: Any, _page: str, _template: str, context: dict[str, Any], _tree: Any) -> None:
    """Wide code and tables scroll by themselves: keys must reach them, too."""
    body = context.get("body", "").replace("<pre>", '<pre tabindex="0">')
    context["body"] = body.replace('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper')


DIAGRAM = re.compile(
    r'<div class="highlight-mermaid[^>]*><div class="highlight"><pre[^>]*>(?:<span></span>)?(.*?)</pre></div>\s*</div>',
    re.S,
)
DRAW = "mermaid.initialize({ theme: 'neutral' });"


def draw_diagrams(app: Any, _page: str, _template: str, context: dict[str, Any], _tree: Any) -> None:
    """The browser draws Mermaid's diagrams; where its script could not be fetched, their text is shown."""
    if not any(Path(path).name == "mermaid.js" for path in app.config.html_static_path):
        return
    body, count = DIAGRAM.subn(r'<pre class="mermaid" tabindex="0">\1</pre>', context.get("body", ""))
    if count:
        context["body"] = body
        app.add_js_file("mermaid.js", priority=900)
        app.add_js_file(None, body=DRAW, priority=901)


def setup(app: Any) -> None:
    """Before the theme asks for the navigation."""
    app.connect("html-page-context", share_navigation, priority=100)
    app.connect("html-page-context", draw_diagrams, priority=90)
    app.connect("html-page-context", scroll_by_keys, priority=100)
