"""The broker's pure rules: those over plain values are confirmed over all paths, all are searched, and none is left out."""

import importlib.util
import inspect
import json
import typing
from collections.abc import Iterable
from enum import Enum
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from spec import pure_rules
from spec.commands import app
from spec.models import SPEC
from spec.pure_rules import Finding, Knowledge, PureRule, confirm, find_rules, judge, load, page
from tests.health_checks import UNCHECKED

RULES = find_rules()
IDS = [rule.title for rule in RULES]
WORDED = [rule for rule in RULES if not rule.post]
NUMBERS = st.one_of(st.integers(-2, 6), st.integers(-(2**33), 2**33))


def drawn(kind: object) -> st.SearchStrategy:
    """Values of a parameter's type. Rules may take numbers, truths, words, members of a set, and lists of these."""
    if kind is bool:
        return st.booleans()
    if kind is int:
        return NUMBERS
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(list(kind))
    if typing.get_origin(kind) is not None and issubclass(typing.get_origin(kind), Iterable):  # type: ignore[arg-type]
        return st.lists(drawn(typing.get_args(kind)[0]), max_size=5)
    return st.from_type(kind)  # type: ignore[arg-type]


def arguments_of(rule: PureRule) -> st.SearchStrategy[dict]:
    hints = typing.get_type_hints(rule.function)
    return st.fixed_dictionaries({name: drawn(hints[name]) for name in inspect.signature(rule.function).parameters})


def search(rule: PureRule, backend: str, examples: int) -> int:
    """The number of admitted arguments that were tried. Errors: AssertionError on a counterexample."""
    admitted = 0

    @settings(backend=backend, max_examples=examples, suppress_health_check=UNCHECKED, database=None)
    @given(arguments_of(rule))
    def keeps_its_contract(arguments: dict) -> None:
        nonlocal admitted
        holds = rule.evaluate(arguments)
        assume(holds is not None)  # others are drawn instead, up to ten for each
        admitted += 1
        assert holds

    keeps_its_contract()
    return admitted


@pytest.mark.sampled(days=6)
@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.post], ids=lambda rule: rule.title)
def test_hypothesis_finds_no_counterexample(rule: PureRule) -> None:
    assert search(rule, "hypothesis", 200) > 5


GENERAL = [rule for rule in RULES if rule.post and not rule.is_scalar]


@pytest.mark.skipif(
    importlib.util.find_spec("hypothesis_crosshair_provider") is None, reason="hypothesis-crosshair is not installed"
)
@pytest.mark.sampled(days=7)
@pytest.mark.parametrize("rule", GENERAL, ids=lambda rule: rule.title)
def test_the_other_backend_finds_none_either(rule: PureRule) -> None:
    """General forms have too many paths to confirm; the symbolic backend looks where chance does not."""
    assert search(rule, "crosshair", 25) > 0


PARTS = 7
SCALAR = {rule.title for rule in RULES if rule.is_scalar and rule.post}


def test_the_rules_over_plain_values_are_many() -> None:
    assert len(SCALAR) >= 12


@pytest.mark.sampled(days=PARTS)
@pytest.mark.parametrize("part", range(PARTS))
def test_rules_over_plain_values_are_confirmed_and_none_is_refuted(part: int) -> None:
    findings = confirm(RULES[part::PARTS])
    assert [finding for finding in findings if finding.knowledge == Knowledge.REFUTED] == []
    assert [f for f in findings if f.rule in SCALAR and f.knowledge != Knowledge.CONFIRMED] == []


def test_a_rule_with_a_contract_in_prose_has_a_bounded_form() -> None:
    bounded = {called for rule in RULES for called in rule.calls}
    assert [rule.title for rule in WORDED if rule.title not in bounded] == []
    assert [rule.title for rule in GENERAL if rule.title not in bounded] == []


def test_the_page_has_every_rule_and_what_was_found() -> None:
    """`tidegauge spec rules --record` makes it current."""
    assert sorted(load()) == sorted(IDS)
    assert (SPEC / "PURE_RULES.md").read_text() == page(load())


BROKEN = '''"""A rule with a mistake."""


def least(one: int, other: int) -> int:
    """The lesser.

    post: __return__ <= one and __return__ <= other
    post: __return__ in (one, other)
    """
    return one if one < other or other == 1234567 else other
'''


def test_a_broken_rule_is_refuted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted" / "rule.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(pure_rules, "ROOT", tmp_path)
    (found,) = find_rules(["planted"])
    assert found.is_scalar
    (finding,) = confirm([found], 20)
    assert finding.knowledge == Knowledge.REFUTED, finding
    assert found.evaluate({"one": 9999999, "other": 1234567}) is False


BUGS = [
    ("controller/quorum_rules.py", "if reached > epoch_start else", "if reached >= epoch_start else"),
    ("replication/isr.py", "end >= high_watermark and end >= epoch_start", "end >= high_watermark"),
    ("replication/isr.py", "if is_fenced or is_shutting_down or", "if is_fenced or"),
    ("replication/isr.py", "now - last_caught_up > lag_max_ms\n", "now - last_caught_up >= lag_max_ms\n"),
    ("storage/sequence_check.py", "0 if last_sequence == MAX_SEQUENCE else last_sequence + 1", "last_sequence + 1"),
]


@pytest.mark.parametrize("number", range(len(BUGS)))
def test_a_bug_in_a_rule_of_the_broker_is_refuted(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, right, wrong = BUGS[number]
    text = (pure_rules.ROOT / "reference" / file).read_text()
    at = text.rindex(right)
    folder = f"planted_{number}"
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "rule.py").write_text(text[:at] + wrong + text[at + len(right) :])
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(pure_rules, "ROOT", tmp_path)
    assert Knowledge.REFUTED in [finding.knowledge for finding in confirm(find_rules([folder]), 20)]


RULE = next(rule for rule in RULES if rule.name == "may_join")
CONFIRMED = f"{RULE.path}:{RULE.lines[0] + 5}: info: Confirmed over all paths."


@pytest.mark.parametrize(
    ("output", "knowledge"),
    [
        (f"{CONFIRMED}\n{CONFIRMED}\n", Knowledge.CONFIRMED),
        (f"{CONFIRMED}\n", Knowledge.SEARCHED),
        ("", Knowledge.SEARCHED),
        (f"{CONFIRMED}\n{RULE.path}:{RULE.lines[0] + 6}: info: Not confirmed.\n", Knowledge.SEARCHED),
        (f"{CONFIRMED}\n{CONFIRMED}\n{RULE.path}:{RULE.lines[1]}: error: false when end = 0\n", Knowledge.REFUTED),
    ],
)
def test_silence_is_not_consent(output: str, knowledge: str) -> None:
    assert judge(RULE, output).knowledge == knowledge


def test_a_finding_survives_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pure_rules, "STORE", tmp_path / "pure_rules.json")
    assert load() == {}
    monkeypatch.setattr(pure_rules, "SPEC", tmp_path)
    pure_rules.record([Finding("a.rule", Knowledge.CONFIRMED)])
    assert load() == {"a.rule": Finding("a.rule", "confirmed")}


@pytest.mark.parametrize(
    ("knowledge", "verdict", "code"),
    [(Knowledge.CONFIRMED, "pass", 0), (Knowledge.REFUTED, "fail", 1), (Knowledge.SEARCHED, "unknown", 2)],
)
def test_the_command_distinguishes_them(
    knowledge: Knowledge, verdict: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pure_rules, "confirm_all", lambda seconds: ([RULE], [Finding(RULE.title, knowledge)], 0.1))
    done = CliRunner().invoke(app, ["spec", "rules", "--json"])
    assert (done.exit_code, json.loads(done.stdout.splitlines()[-1])["verdict"]) == (code, verdict)
