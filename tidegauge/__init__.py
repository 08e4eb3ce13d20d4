"""The command line's root: mounts the commands of each package and imports them only when they are called.

Exit codes: 0 pass or valid, 1 fail or invalid, 2 unknown or nothing but skips, 3 engine or target error, 64 wrong usage.
"""

import errno
import importlib
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Annotated

import typer
from typer import _click as click  # typer carries its own click: only its error classes tell wrong usage apart
from typer.core import TyperGroup

from linearizability.interrupting import raise_lost_interrupts
from linearizability.progress import QUIET, VERBOSE, choose

WRONG_USAGE = 64
ENGINE_ERROR = 3

COMMANDS: dict[str, tuple[str, str]] = {
    "format": ("reference.commands", "Prepare a data folder and give the cluster its id."),
    "serve": ("reference.commands", "Run one broker of the reference."),
    "cluster": ("linearizability.commands", "Run a cluster of the reference, alone or with Apache Kafka."),
    "run": ("conformance.commands", "Judge a broker by the requirements."),
    "list": ("conformance.commands", "List the requirements."),
    "explain": ("conformance.commands", "Show all that is known of one requirement."),
    "report": ("conformance.commands", "Write the report of a stored run again."),
    "compare": ("conformance.commands", "Set several stored runs side by side in one matrix."),
    "releases": ("conformance.commands", "Show or measure what the suite says of Apache Kafka's releases."),
    "strangers": ("conformance.commands", "Keep and show what the suite says of brokers that others wrote."),
    "doctor": ("conformance.commands", "Say what this machine has, and what it can be used for."),
    "adapter": ("conformance.commands", "Write and check an adapter to your own broker."),
    "targets": ("linearizability.commands", "List and add the releases of Apache Kafka that can be a target."),
    "fuzz": ("linearizability.commands", "Hurt simulated brokers, in virtual time."),
    "hunt": ("linearizability.commands", "Hurt a real broker and judge what its clients saw."),
    "replay": ("linearizability.commands", "Run a stored schedule again, or judge its history again."),
    "history": ("linearizability.commands", "Check, show, import and export histories."),
    "bench": ("linearizability.commands", "Measure brokers and checkers side by side."),
    "findings": ("linearizability.commands", "Show and reproduce what was found in releases of Apache Kafka."),
    "spec": ("spec.commands", "Model-check the TLA+ specification."),
}
"""Command name -> (module that holds its Typer application `app`, one-line help)."""
GROUPS = {
    "Judge a broker": ("run", "report", "compare", "list", "explain", "doctor", "adapter", "targets"),
    "Break a broker": ("hunt", "fuzz", "replay", "history"),
    "Run brokers of the reference": ("cluster", "format", "serve"),
    "Look further": ("spec", "findings", "releases", "strangers", "bench"),
}
"""How --help orders the commands: what most come for is first."""


class LazyCommands(TyperGroup):
    """A click group that knows its commands by name and imports a package's commands when one is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for names in GROUPS.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _ = COMMANDS[cmd_name]
        group = typer.main.get_command(importlib.import_module(module).app)
        return _with_progress(_with_lines(group.commands[cmd_name] if isinstance(group, TyperGroup) else group))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, COMMANDS))
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), COMMANDS[name][1]) for name in names])


def _with_lines(command: click.Command) -> click.Command:
    """Examples of --help stand in one line each, however narrow the terminal is, so that they can be copied.

    A group of commands shows the first example of each.
    """
    inside = [_with_lines(each) for each in command.commands.values()] if isinstance(command, TyperGroup) else []
    before, heading, after = (command.epilog or "").partition("Examples:")
    if heading and "\b" not in before:
        lines = "\n".join(f"  {example}" for example in re.split(r"\s+[·|]\s+", after.strip()))
        command.epilog = f"\b\n{heading}\n{lines}"
    elif inside:
        firsts = [each.epilog.splitlines()[2] for each in inside if each.epilog]
        command.epilog = "\n".join(("\b", "Examples:", *firsts))
    return command


def _with_progress(command: click.Command) -> click.Command:
    """Each command takes --quiet and --verbose behind its name too; one that has its own --verbose keeps it."""
    if isinstance(command, TyperGroup):
        for each in command.commands.values():
            _with_progress(each)
        if not command.invoke_without_command:
            return command
    own = {name for each in command.params for name in each.opts}
    command.params += [each for each in typer.main.get_command(_progress).params if not own & set(each.opts)]
    return command


def _chosen(variable: str) -> Callable[[bool], None]:
    return lambda asked: choose(variable) if asked else None


Quiet = Annotated[
    bool,
    typer.Option("--quiet", expose_value=False, callback=_chosen(QUIET), help="No progress: results and errors alone."),
]
Verbose = Annotated[
    bool,
    typer.Option("--verbose", expose_value=False, callback=_chosen(VERBOSE), help="Each step in a line with its time."),
]
_progress = typer.Typer(add_completion=False)


@_progress.command()
def _options(quiet: Quiet = False, verbose: Verbose = False) -> None:
    """Holds the options that every command takes."""


app = typer.Typer(cls=LazyCommands, no_args_is_help=True, add_completion=True, rich_markup_mode=None)


def _version(asked: bool) -> None:
    if asked:
        from linearizability.results import suite_version  # takes as long as all of Typer

        print(f"tidegauge {suite_version()}")
        raise typer.Exit


@app.callback(
    epilog="\b\nExamples:\n"
    "  tidegauge run --target addr:localhost:9092\n  tidegauge explain PRD-05\n  tidegauge cluster --nodes 3"
)
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version and exit.")
    ] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Does a broker keep the promises of Apache Kafka's replicated log? The suite that judges any broker, and its reference.

    Exit codes: 0 pass or valid, 1 fail or invalid, 2 unknown, 3 engine or target error, 64 wrong usage, 130 interrupted.
    With NO_COLOR=1 nothing is coloured.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit by its code; wrong usage exits 64 with the sentence that says what was wrong."""
    raise_lost_interrupts()
    try:
        code = typer.main.get_command(app).main(args=arguments, prog_name="tidegauge", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        code = 0
    except click.exceptions.UsageError as error:
        error.show()
        code = WRONG_USAGE
    except click.exceptions.ClickException as error:
        error.show()
        code = ENGINE_ERROR
    except (typer.Abort, KeyboardInterrupt):
        code = 130
    except OSError as error:
        if error.filename is None and error.errno != errno.ENOSPC:
            traceback.print_exc()
        else:
            print(f"Error: {f'{error.filename}: ' if error.filename else ''}{error.strerror}", file=sys.stderr)
        code = ENGINE_ERROR
    except ModuleNotFoundError as error:
        from linearizability.extras import advice

        if said := advice(error.name or ""):
            print(f"Error: {said}", file=sys.stderr)
        else:
            traceback.print_exc()
        code = ENGINE_ERROR
    except Exception:
        traceback.print_exc()  # a mistake of ours is no verdict on a target: Python itself would exit 1, which is "invalid"
        code = ENGINE_ERROR
    sys.exit(code if isinstance(code, int) else 0)
