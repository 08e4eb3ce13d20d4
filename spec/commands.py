"""`tidegauge spec`: list, check, reach, mutate, explain, counterexample, trace, rules, behaviours.

Exit codes: 0 everything as expected, 1 a promise is broken or a switch was not caught, 2 a checker ran out of time or memory,
3 a wrong model or a missing checker, 64 wrong usage.
"""

from __future__ import annotations

import typer

from spec import (
    behaviour_commands,
    check_commands,
    explain_commands,
    mutate_commands,
    pure_rule_commands,
    reach_commands,
    trace_commands,
)

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)
spec = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Model-check the TLA+ specification.",
    epilog="Examples:  tidegauge spec list   ·   tidegauge spec check MCTruncation   ·   tidegauge spec check --all --json",
)
app.add_typer(spec, name="spec")


@app.callback()
def root() -> None:
    """The specification's commands."""


spec.command("list", epilog=check_commands.LIST_EXAMPLES)(check_commands.list_models)
spec.command(epilog=check_commands.CHECK_EXAMPLES)(check_commands.check)
spec.command(epilog=reach_commands.EXAMPLES)(reach_commands.reach)
spec.command(epilog=mutate_commands.EXAMPLES)(mutate_commands.mutate)
spec.command(epilog=explain_commands.EXPLAIN_EXAMPLES)(explain_commands.explain)
spec.command(epilog=explain_commands.COUNTEREXAMPLE_EXAMPLES)(explain_commands.counterexample)
spec.command(epilog=trace_commands.EXAMPLES)(trace_commands.trace)
spec.command(epilog=pure_rule_commands.EXAMPLES)(pure_rule_commands.rules)
spec.command(epilog=behaviour_commands.EXAMPLES)(behaviour_commands.behaviours)
