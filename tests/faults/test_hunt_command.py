"""What the command line makes of a hunt's target."""

import pytest

from linearizability import commands


@pytest.mark.parametrize(
    ("target", "nodes"), [("kafka:4.3.1", 3), ("kafka:0.10.2.2", 3), ("reference", 3), ("reference:1", 1)]
)
def test_a_hunt_without_a_number_of_nodes_is_for_three(target, nodes, monkeypatch, tmp_path):
    from linearizability.faults.backend import planned_target

    carried_out = []
    monkeypatch.setattr(commands, "_carry_out", lambda plan, *rest: carried_out.append(plan))
    commands.hunt(target=target, results=tmp_path, backend=commands.Backend.PLAIN)
    assert planned_target(carried_out[0], tmp_path).size == nodes


def test_the_help_names_every_fault():
    from linearizability.faults import all_faults

    assert sorted(commands.FAULT_NAMES.split(", ")) == sorted(all_faults())
