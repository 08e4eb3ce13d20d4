"""Every way in which TLC ends has its own name, and nothing but success reads as "holds"."""

from pathlib import Path

import pytest

from spec.checker import SHORT_RUN, Job, Verdict, action_coverage, check, read_output


def message(number: int, text: str) -> str:
    return f"@!@!@STARTMSG {number}:0 @!@!@\n{text}\n@!@!@ENDMSG {number} @!@!@\n"


SUCCESS = message(2193, "Model checking completed. No error has been found.")
STATISTICS = message(2199, "12 states generated, 7 distinct states found, 0 states left on queue.")
VIOLATION = message(2110, "Invariant Small is violated.")


@pytest.mark.parametrize(
    ("output", "code", "timed_out", "verdict"),
    [
        (SUCCESS + STATISTICS, 0, False, Verdict.HOLDS),
        ("", 0, False, Verdict.BROKEN),
        (STATISTICS, 0, False, Verdict.BROKEN),
        (SUCCESS, 1, False, Verdict.BROKEN),
        (SUCCESS, 0, True, Verdict.OUT_OF_TIME),
        (VIOLATION, 12, False, Verdict.VIOLATED),
        (VIOLATION, 0, False, Verdict.BROKEN),
        (message(2116, "Temporal properties were violated."), 13, False, Verdict.VIOLATED),
        (message(2114, "Deadlock reached."), 11, False, Verdict.DEADLOCK),
        (message(2222, "The constant parameter N is not assigned a value."), 151, False, Verdict.WRONG_MODEL),
        (message(3002, "Parsing or semantic analysis failed."), 150, False, Verdict.WRONG_MODEL),
        (message(2104, "Assumption is false."), 10, False, Verdict.WRONG_MODEL),
        (message(1001, "Java ran out of memory."), 255, False, Verdict.OUT_OF_MEMORY),
        ("java.lang.OutOfMemoryError: Java heap space", 3, False, Verdict.OUT_OF_MEMORY),
        ("Killed", -9, False, Verdict.BROKEN),
    ],
)
def test_each_end_has_its_verdict(output: str, code: int, timed_out: bool, verdict: Verdict) -> None:
    assert read_output(output, code, timed_out).verdict == verdict


DRAWN = message(
    2209, "Progress(-1) at 2026-11-21 11:01:11: 12674 states generated, -1 distinct states found, -1 on queue."
)
FINISHED = message(2186, "Finished in 12963ms at (2026-11-21 11:01:11)")


@pytest.mark.parametrize(
    ("output", "code", "timed_out", "verdict"),
    [
        (DRAWN + FINISHED, 0, False, Verdict.SEARCHED),
        (DRAWN, 0, False, Verdict.BROKEN),
        (FINISHED, 0, False, Verdict.BROKEN),
        (DRAWN + FINISHED, 1, False, Verdict.BROKEN),
        (DRAWN, -9, True, Verdict.OUT_OF_TIME),
        (VIOLATION + DRAWN, 12, False, Verdict.VIOLATED),
    ],
)
def test_a_simulation_searches_and_never_holds(output: str, code: int, timed_out: bool, verdict: Verdict) -> None:
    assert read_output(output, code, timed_out, simulated=True).verdict == verdict


def test_what_is_not_meant_to_be_a_simulation_is_none() -> None:
    assert read_output(DRAWN + FINISHED, 0).verdict == Verdict.BROKEN


def test_numbers_and_trace_are_read() -> None:
    states = message(2217, "1: <Initial predicate>\n/\\ x = 0\n") + message(
        2217, "2: <Up line 4, col 1 of module M>\n/\\ x = 1\n"
    )
    outcome = read_output(VIOLATION + states + STATISTICS, 12)
    assert (outcome.violated, outcome.generated, outcome.distinct) == ("Small", 12, 7)
    assert [(step.action, step.state) for step in outcome.trace] == [("Initial", {"x": 0}), ("Up", {"x": 1})]


COUNTER = """---- MODULE Counter ----
EXTENDS Naturals
CONSTANT Limit
VARIABLE x
Init == x = 0
Up == x < Limit /\\ x' = x + 1
Wide == \\E n \\in 1..Limit : x' = x + n
Spec == Init /\\ [][Up]_x
WideSpec == Init /\\ [][Wide]_x
Small == x < 5
Reaches == <>(x = Limit)
====
"""


def counter(configuration: str, folder: Path, budget_s: float = 120, memory_mb: int = 200) -> Verdict:
    job = Job(folder, "Counter", configuration, budget_s, memory_mb, modules={"Counter": COUNTER})
    return check(job).verdict


@pytest.mark.java
@pytest.mark.parametrize(
    ("configuration", "verdict"),
    [
        ("SPECIFICATION Spec\nCONSTANT Limit = 4\nINVARIANT Small\nCHECK_DEADLOCK FALSE", Verdict.HOLDS),
        ("SPECIFICATION Spec\nCONSTANT Limit = 9\nINVARIANT Small\nCHECK_DEADLOCK FALSE", Verdict.VIOLATED),
        ("SPECIFICATION Spec\nCONSTANT Limit = 4\nPROPERTY Reaches\nCHECK_DEADLOCK FALSE", Verdict.VIOLATED),
        ("SPECIFICATION Spec\nCONSTANT Limit = 4\nINVARIANT Small", Verdict.DEADLOCK),
        ("SPECIFICATION Spec\nINVARIANT Small", Verdict.WRONG_MODEL),
        ("SPECIFICATION Spec\nCONSTANT Limit = 4\nINVARIANT Large", Verdict.WRONG_MODEL),
        ("SPECIFICATION Spec\nCONSTANT Limit = TRUE\nINVARIANT Small", Verdict.WRONG_MODEL),
        ("SPECIFCATION Spec", Verdict.WRONG_MODEL),
    ],
)
def test_tlc_itself(configuration: str, verdict: Verdict, tmp_path: Path) -> None:
    assert counter(configuration, tmp_path) == verdict


@pytest.mark.java
def test_a_module_that_does_not_parse_is_a_wrong_model(tmp_path: Path) -> None:
    job = Job(
        tmp_path, "Torn", "SPECIFICATION Spec", 60, 200, modules={"Torn": "---- MODULE Torn ----\nSpec == \n===="}
    )
    assert check(job).verdict == Verdict.WRONG_MODEL


@pytest.mark.java
def test_a_model_without_end_runs_out_of_time(tmp_path: Path) -> None:
    endless = "SPECIFICATION WideSpec\nCONSTANT Limit = 2\nCHECK_DEADLOCK FALSE"
    assert counter(endless, tmp_path, budget_s=4) == Verdict.OUT_OF_TIME


HEAVY = """---- MODULE Heavy ----
EXTENDS Naturals
VARIABLE sets
Init == sets = {}
Spec == Init /\\ [][sets' = SUBSET (0..22)]_sets
====
"""


@pytest.mark.java
def test_a_model_with_too_large_a_state_runs_out_of_memory(tmp_path: Path) -> None:
    configuration = "SPECIFICATION Spec\nCHECK_DEADLOCK FALSE"
    job = Job(tmp_path, "Heavy", configuration, 120, memory_mb=40, jvm=SHORT_RUN, modules={"Heavy": HEAVY})
    assert check(job).verdict == Verdict.OUT_OF_MEMORY


def test_a_missing_jar_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from linearizability.targets import artifacts

    def missing() -> Path:
        raise artifacts.ArtifactError("tlc cannot be fetched")

    monkeypatch.setattr(artifacts, "tlc_jar", missing)
    outcome = check(Job(tmp_path, "Counter", "", modules={"Counter": COUNTER}))
    assert (outcome.verdict, outcome.reason) == (Verdict.NO_CHECKER, "tlc cannot be fetched")


def test_a_step_whose_inner_lines_tlc_does_not_count_is_counted_by_its_action(tmp_path: Path) -> None:
    """TLC 2.18 prints no more of Truncate than this."""
    module = tmp_path / "Small.tla"
    module.write_text(
        'Counted ==\n    Step("Counted", 1)\nNamed ==\n    Step("Named", 1)\nNever ==\n    Step("Never", 1)\n'
    )
    printed = (
        "<Counted line 1, col 1 to line 1, col 7 of module Small>: 2:9\n"
        "  line 2, col 5 to line 2, col 22 of module Small: 7\n"
        "<Named line 3, col 1 to line 3, col 5 of module Small>: 60:200\n"
        "<Never line 5, col 1 to line 5, col 5 of module Small>: 0:0\n"
    )
    assert action_coverage(printed, [module]) == {"Counted": 7, "Named": 200}
