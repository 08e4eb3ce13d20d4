"""TLA+ values are read as TLC prints them."""

import pytest

from spec.values import ModelValue, ValueSyntaxError, parse_state, parse_value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-1", -1),
        ("TRUE", True),
        ('"all"', "all"),
        ("b1", ModelValue("b1")),
        ("<<>>", []),
        ("<<1, <<2>>>>", [1, [2]]),
        ("{}", ()),
        ("{b2, b1}", ("b1", "b2")),
        ("1..3", (1, 2, 3)),
        ("[end |-> -1, isr |-> {b1}]", {"end": -1, "isr": ("b1",)}),
        ("( b1 :>\n   [a |-> 1] @@\n  b2 :> None )", {"b1": {"a": 1}, "b2": "None"}),
    ],
)
def test_a_value_is_read(text: str, value: object) -> None:
    assert parse_value(text) == value


@pytest.mark.parametrize("text", ["", "<<1", "[a |-> ]", "{1 2}", "1 2", "(b1 :> 1", "$"])
def test_what_is_no_value_is_refused(text: str) -> None:
    with pytest.raises(ValueSyntaxError):
        parse_value(text)


def test_a_state_is_read() -> None:
    state = parse_state('/\\ log = (b1 :> <<>> @@\n  b2 :> <<1>>)\n/\\ step = [action |-> "Init"]\n')
    assert state == {"log": {"b1": [], "b2": [1]}, "step": {"action": "Init"}}
