"""A counterexample is reported in words, and drawn between the places where its steps happen."""

import xml.etree.ElementTree as ElementTree

import pytest

from spec.actions import ACTIONS, Action
from spec.checker import TraceStep
from spec.rendering import FIXED, PATHS, Arrow, arrows, changes, diagram_svg, diagram_text, show, steps_text, title

FIRST = {"log": {"b1": [], "b2": []}, "faults": {"crash": 1}, "step": {"action": "Init"}}
PRODUCED = {
    "log": {"b1": [{"epoch": 1, "number": 1}], "b2": []},
    "faults": {"crash": 1},
    "step": {"action": "Produce", "leader": "b1", "number": 1, "acks": "all"},
}
FETCHED = {
    "log": {"b1": [{"epoch": 1, "number": 1}], "b2": [{"epoch": 1, "number": 1}]},
    "faults": {"crash": 0},
    "step": {"action": "AppendFetched", "leader": "b1", "follower": "b2", "end": 1},
}
TRACE = [TraceStep(number, "Next", state) for number, state in enumerate((FIRST, PRODUCED, FETCHED), 1)]


def test_steps_bear_their_own_names_and_say_what_they_change() -> None:
    assert steps_text(TRACE).splitlines() == [
        "  1  Init",
        "  2  Produce  acks all, leader b1, number 1",
        "       log[b1]: <> becomes <1@1>",
        "  3  AppendFetched  end 1, follower b2, leader b1",
        "       log[b2]: <> becomes <1@1>",
    ]


def test_a_step_that_was_not_recorded_has_the_name_that_tlc_gives_it() -> None:
    assert title(TraceStep(2, "Crash", {"step": []})) == "Crash"
    assert title(TraceStep(2, "Crash", {})) == "Crash"


def test_sender_and_receiver_are_in_the_arrow_and_not_in_the_words() -> None:
    step = TraceStep(2, "Next", {"step": {"action": "GrantVote", "from": "v1", "to": "v2", "epoch": 3}})
    assert title(step) == "GrantVote  epoch 3"
    assert arrows([TRACE[0], step]) == (["v1", "v2"], [Arrow("v1", "v2", "GrantVote")])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "yes"),
        ({"epoch": 2, "number": 7}, "7@2"),
        ({"end": 3, "isr": ("b1", "b2")}, "[end 3, isr {b1, b2}]"),
        ([1, [2]], "<1 <2>>"),
        ((), "{}"),
    ],
)
def test_values_are_short(value: object, text: str) -> None:
    assert show(value) == text


def test_only_what_differs_is_a_change() -> None:
    before = {"a": {"x": 1, "y": 2}, "b": {"x": 1}, "published": 1}
    assert changes(before, {"a": {"x": 1, "y": 3}, "b": {"z": 1}, "published": 2}) == [
        "a[y]: 2 becomes 3",
        "b: [x 1] becomes [z 1]",
    ]
    assert changes({}, before) == []


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.name)
def test_every_action_happens_where_its_arguments_say(action: Action) -> None:
    """Between the brokers that it names, the controller and the client; and nowhere else."""
    reported = {name: f"the {name}" for name in action.arguments} | {"action": action.name}
    places, (arrow,) = arrows([TRACE[0], TraceStep(2, "Next", {"step": reported})])
    assert {arrow.source, arrow.target} <= FIXED | {f"the {role}" for role in ("broker", "leader", "follower")}
    assert {*places} == {arrow.source, arrow.target}
    if action.name not in PATHS:
        assert arrow.source == arrow.target


def test_a_path_names_arguments_of_its_action() -> None:
    arguments = {action.name: {*action.arguments} | FIXED for action in ACTIONS}
    assert {name: roles for name, roles in PATHS.items() if not {*roles} <= arguments[name]} == {}


DIAGRAM = """
              b1                            b2                          client
               |<------------------------ Produce 1 -----------------------|
               |------- AppendFetched 1 ---->|                             |
"""


def test_the_diagram_has_a_lifeline_for_each_place_and_a_row_for_each_step() -> None:
    assert diagram_text(TRACE) == DIAGRAM.strip("\n")


def test_the_picture_is_well_formed_whatever_the_heading() -> None:
    picture = ElementTree.fromstring(diagram_svg(TRACE, "a < b & c"))
    texts = [each.text for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0] == "a < b & c"
    assert texts[1:] == ["b1", "b2", "client", "1. Produce 1", "2. AppendFetched 1"]
