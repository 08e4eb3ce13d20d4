"""Two checkers that share no line of code find the same states."""

import pytest

from spec import second
from spec.catalogue import all_cases
from spec.second import SecondCheckerError, compare, read_count, second_checker

TINY = ("MCTransactionsLiveness", "MCGroupsLiveness", "MCFailover")


def installed() -> str:
    """The reason why the second checker is missing; empty if it is installed."""
    try:
        second_checker()
    except SecondCheckerError as error:
        return str(error)
    return ""


@pytest.mark.java
@pytest.mark.skipif(bool(installed()), reason=installed())
@pytest.mark.parametrize("name", TINY)
def test_both_find_as_many_states(name: str) -> None:
    found = compare(all_cases()[name])
    assert found.first == found.second > 100


OK = '{"status": "ok", "stats": {"states_explored": 1131, "transitions": 9}}'


def test_a_count_is_read() -> None:
    assert read_count("M", OK, "", 0) == 1131


@pytest.mark.parametrize(
    ("output", "code"),
    [
        ("", 0),
        ("{torn", 0),
        (OK, 1),
        ('{"status": "invariant_violation", "stats": {"states_explored": 3}}', 0),
        ('{"status": "ok"}', 0),
        ('{"status": "ok", "stats": {"states_explored": 100000}}', 0),
    ],
)
def test_what_is_no_count_is_no_agreement(output: str, code: int) -> None:
    with pytest.raises(SecondCheckerError, match="M: it did not judge"):
        read_count("M", output, "torn", code)


def test_where_it_is_missing_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second, "PLACE", second.PLACE.parent / "nowhere")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SecondCheckerError, match="cargo install --locked"):
        second_checker()
