"""Two brokers are compared after each has applied a change, and remaining differences are reported."""

from __future__ import annotations

import pytest

from tests.tools import alike
from tests.tools.alike import Step, compare


class Late:
    """A broker that shows a topic from its `first` look on."""

    def __init__(self, first: int = 0) -> None:
        self.first = first
        self.ran: list[str] = []

    def run(self, step: Step) -> list[str]:
        self.ran.append(step.arguments)
        return ["one"] if len(self.ran) > self.first else []


def test_a_look_is_repeated_until_both_have_applied_the_change() -> None:
    kafka, reference = Late(2), Late()
    compare([kafka, reference], [Step("kafka-topics", "--list")], {})
    assert len(kafka.ran) == len(reference.ran) == 3


def test_a_change_is_not_repeated() -> None:
    kafka, reference = Late(1), Late()
    with pytest.raises(AssertionError, match="kafka-topics --create --topic one"):
        compare([kafka, reference], [Step("kafka-topics", "--create --topic one")], {})
    assert len(kafka.ran) == 1


@pytest.mark.parametrize(("first", "differs"), [(1_000, {}), (0, {"kafka-topics --list": "a reason"})])
def test_an_unexpected_difference_is_reported(
    monkeypatch: pytest.MonkeyPatch, first: int, differs: dict[str, str]
) -> None:
    monkeypatch.setattr(alike, "APPLIED_WITHIN_S", 0.3)
    with pytest.raises(AssertionError, match="kafka-topics --list"):
        compare([Late(first), Late()], [Step("kafka-topics", "--list")], differs)
