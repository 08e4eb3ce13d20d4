"""The report and the matrix in a browser: phone, tablet and screen, light and dark, and filters that a link can carry."""

import pytest

from conformance.report.html import matrix_page, run_page
from conformance.report.matrix import matrix
from conformance.results import Verdict
from tests.browser import Browser, needs_chromium
from tests.conformance.test_report import a_run

pytestmark = needs_chromium
VERDICTS = {
    "FRM_01": Verdict.PASS, "FRM_02": Verdict.FAIL, "MET_01": Verdict.TOLERATED, "PRD_05": Verdict.FAIL,
    "PRD_06": Verdict.NOT_JUDGED, "FET_01": Verdict.BLOCKED, "FET_02": Verdict.UNTESTABLE, "TOP_01": Verdict.ENGINE_ERROR,
}  # fmt: skip
SHOWN = "[...document.querySelectorAll('details.req:not(.hidden)')].map((row) => row.id)"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A folder with a report of every verdict and a matrix of two runs."""
    folder = tmp_path_factory.mktemp("pages")
    run = a_run("addr:broker.example.com:19092", **VERDICTS)
    for judgement in run.judgements:
        if judgement.verdict is Verdict.BLOCKED:
            judgement.blocked_by = "PRD-05"
    (folder / "report.html").write_text(run_page(run))
    (folder / "matrix.html").write_text(matrix_page(matrix([run, a_run()])))
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.mark.sampled(days=3)
@pytest.mark.parametrize("name", ["report", "matrix"])
@pytest.mark.parametrize(("width", "dark"), [(390, False), (390, True), (820, False), (1280, False), (1280, True)])
def test_everyone_can_read_it_at_every_width(browser, pages, name, width, dark):
    browser.open(f"file://{pages}/{name}.html", width=width, dark=dark)
    browser.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    browser.evaluate("new Promise((done) => setTimeout(done, 100))")
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it is wider than the window"
    assert browser.serious() == []


def test_axe_would_find_what_is_unreadable(browser, pages):
    browser.open(f"file://{pages}/report.html")
    browser.evaluate(
        "document.querySelector('main').insertAdjacentHTML('beforeend', '<p style=\"color:#ccc;background:#fff\">pale</p><img src=x>')"
    )
    assert {"color-contrast", "image-alt"} <= {one.split("'")[1] for one in browser.serious()}


def test_a_sentence_has_the_width_of_a_phone(browser, pages):
    browser.open(f"file://{pages}/report.html", width=390)
    narrowest = browser.evaluate(
        "Math.min(...[...document.querySelectorAll('.sentence')].map((one) => one.getBoundingClientRect().width))"
    )
    assert narrowest > 300


def test_failures_come_before_areas_and_the_gravest_cause_first(browser, pages):
    browser.open(f"file://{pages}/report.html")
    assert browser.evaluate(SHOWN)[:3] == ["PRD-05", "FRM-02", "TOP-01"]


def test_the_filters_are_in_the_url(browser, pages):
    browser.open(f"file://{pages}/report.html")
    browser.evaluate("document.querySelector('button[value=fail]').click()")
    assert browser.evaluate(SHOWN) == ["PRD-05", "FRM-02"]
    browser.evaluate(
        "(() => { const box = document.getElementById('search'); box.value = 'FRM'; box.dispatchEvent(new Event('input')); })()"
    )
    assert browser.evaluate("location.hash") == "#verdict=fail&q=FRM"
    browser.open(f"file://{pages}/report.html#verdict=fail,blocked&level=must")
    assert browser.evaluate(SHOWN) == ["PRD-05", "FRM-02", "FET-01"]
    assert browser.evaluate("document.getElementById('count').textContent") == "3 of 8 shown"


def test_a_link_to_a_requirement_opens_it_in_sight(browser, pages):
    browser.open(f"file://{pages}/report.html#FET-01", width=390)
    top, opened = browser.evaluate(
        "(() => { const one = document.getElementById('FET-01'); return [one.querySelector('summary').getBoundingClientRect().top, one.open]; })()"
    )
    assert opened and 0 <= top < 900


def test_on_paper_failures_are_open_and_the_dark_is_left_out(browser, pages):
    browser.open(f"file://{pages}/report.html", dark=True)
    browser.call("Emulation.setEmulatedMedia", media="print")
    browser.evaluate("dispatchEvent(new Event('beforeprint'))")
    opened = browser.evaluate("[...document.querySelectorAll('details.req[open]')].map((one) => one.id)")
    ground = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    filters = browser.evaluate("getComputedStyle(document.querySelector('.filters')).display")
    browser.call("Emulation.setEmulatedMedia", media="")
    assert (opened, ground, filters) == (["PRD-05", "FRM-02"], "rgb(255, 255, 255)", "none")


def test_an_exchange_is_unpacked_when_it_is_opened(browser, pages):
    browser.open(f"file://{pages}/report.html#FRM-02")
    browser.evaluate("document.querySelector('#FRM-02 details.ex').open = true")
    browser.evaluate("new Promise((done) => setTimeout(done, 300))")
    assert "api_key" in browser.evaluate("document.querySelector('#FRM-02 .fields').textContent")
