"""Behaviours become schedules: counterexamples, random ones, and paths that take every edge of a state graph."""

import itertools
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spec.behaviours import NoBehaviours, read_behaviour, schedule
from spec.catalogue import all_cases
from spec.checker import Verdict
from spec.commands import app
from spec.covering import Graph, covering_paths, edges_covered, read_graph
from spec.trace import check_traces, read_trace

DOT = r"""strict digraph DiskGraph {
nodesep=0.35;
subgraph cluster_graph {
-12 [label="/\\ x = 0\n/\\ step = [action |-> \"Init\"]",style = filled]
7 [label="/\\ x = 1\n/\\ step = [action |-> \"Up\"]"];
-12 -> 7 [label="Up",color="black",fontcolor="black"];
7 -> -12 [label="Down",color="black",fontcolor="black"];
7 -> 7 [label="Up",color="black",fontcolor="black"];
}
}"""


def test_a_graph_is_read() -> None:
    graph = read_graph(DOT)
    assert graph.first == ("-12",)
    assert graph.edges == {"-12": ["7"], "7": ["-12"]}
    assert graph.states["7"] == '/\\ x = 1\n/\\ step = [action |-> "Up"]'


def test_paths_take_every_edge_and_begin_at_the_beginning() -> None:
    edges = {"a": ["b", "c"], "b": ["d", "a"], "c": ["d"], "d": ["e", "a"], "e": []}
    graph = Graph(dict.fromkeys("abcde", ""), ("a",), edges)
    paths = covering_paths(graph)
    assert edges_covered(paths) == graph.size == 7
    assert {path[0] for path in paths} == {"a"}
    assert all(target in edges[source] for path in paths for source, target in itertools.pairwise(path))


def test_what_is_too_far_away_is_not_counted_as_covered() -> None:
    chain = {str(number): [str(number + 1)] for number in range(10)}
    graph = Graph(dict.fromkeys(map(str, range(11)), ""), ("0",), chain)
    assert edges_covered(covering_paths(graph, longest=4)) < graph.size


def test_a_simulated_behaviour_is_read() -> None:
    text = 'STATE_1 == \n/\\ x = 0\n/\\ step = [action |-> "Init"]\n\nSTATE_2 == \n/\\ x = 1\n/\\ step = [action |-> "Up"]\n\n=='
    assert [(step.number, step.action, step.state["x"]) for step in read_behaviour(text)] == [
        (1, "Init", 0),
        (2, "Up", 1),
    ]


def test_not_every_grain_has_schedules() -> None:
    with pytest.raises(NoBehaviours, match="MCMessages has no schedules"):
        schedule(all_cases()["MCMessages"], "random", ())
    refused = CliRunner().invoke(app, ["spec", "behaviours", "MCMessages"])
    assert refused.exit_code == 2
    assert CliRunner().invoke(app, ["spec", "behaviours", "NoSuchModel"]).exit_code == 2


def schedules(*arguments: str) -> list[dict]:
    done = CliRunner().invoke(app, ["spec", "behaviours", *arguments])
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.java
def test_random_schedules_are_traces_that_the_specification_accepts(tmp_path: Path) -> None:
    out = tmp_path / "schedules.jsonl"
    done = CliRunner().invoke(app, ["spec", "behaviours", "MCRecovery", "--count", "25", "--out", str(out), "--json"])
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert json.loads(done.stdout.splitlines()[-1])["behaviours"] == len(rows) == 25
    assert {row["kind"] for row in rows} == {"random"}
    traces = [read_trace([json.dumps(event) for event in row["events"]], str(n)) for n, row in enumerate(rows)]
    found = check_traces(traces)
    assert found.outcome.verdict == Verdict.HOLDS
    assert found.rejected == ()


@pytest.mark.java
def test_the_schedule_of_a_switch_leaves_the_specification() -> None:
    """At its last event at the latest: the wrong step may precede the state that breaks the promise."""
    row = schedules("IgnoreMinIsr")[0]
    assert (row["model"], row["switch"], row["violates"]) == ("MCIsr", "IgnoreMinIsr", "EligibleAreComplete")
    done = check_traces([read_trace([json.dumps(event) for event in row["events"]], "counterexample")])
    (rejected,) = done.rejected
    assert 0 < rejected.place < len(row["events"])
