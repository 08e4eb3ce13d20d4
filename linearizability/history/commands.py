"""`tidegauge history check|show|excerpt|import|export`; `rule_commands` has `rules` and `watch`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from linearizability.progress import Progress

if TYPE_CHECKING:
    from linearizability.history.contract import Contract
    from linearizability.history.topic import HistoryTopic
    from linearizability.pipeline.verdict import Judgement

ENGINE_ERROR = 3

app = typer.Typer(
    name="history", help="Check, show, import and export histories.", no_args_is_help=True, rich_markup_mode=None
)


@app.callback()
def history() -> None:
    """Check, show, import and export histories: what clients did and saw."""


class Engine(StrEnum):
    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


Files = Annotated[
    list[str],
    typer.Argument(
        help="History files, folders that hold them, patterns of them, URIs that Hadoop reads (hdfs:, s3a:, file:), or "
        "kafka:HOST:PORT/TOPIC.",
        show_default=False,
    ),
]
Terms = Annotated[
    list[str] | None,
    typer.Option(
        "--contract",
        metavar="NAME=VALUE",
        help="What clients asked for and the cluster was to promise, where the files do not declare it: acks, idempotence, "
        "max_in_flight, isolation, replication_factor, min_isr, unclean_election, replicas_losing_unflushed_data, cleanup, "
        "reads_from_start, strict_recency, bound_after_healing_ms; may repeat. A file that declares another value is refused.",
    ),
]
ClientConfig = Annotated[
    Path | None,
    typer.Option(
        "--client-config",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="client.properties of the topics' broker, by the names of Kafka's clients: security.protocol, ssl.*, sasl.*. Topics "
        "are then read and written by this process, not by Spark's workers.",
    ),
]
Format = Annotated[str, typer.Option("--format", help="auto, native, neutral, or an importer's name.")]


@app.command(
    epilog="Examples: tidegauge history check results/latest | tidegauge history check --format neutral --json FILE.jsonl.gz "
    "| tidegauge history check history.edn --contract acks=1 --contract idempotence=false --contract strict_recency=true"
)
def check(
    files: Files,
    form: Format = "auto",
    engine: Annotated[Engine, typer.Option(help="Where the rules run; auto goes by size.")] = Engine.AUTO,
    master: Annotated[str, typer.Option(help="The Spark master; default: as Spark is configured, else local[*].")] = "",
    conf: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A setting of Spark; may repeat. Starts Spark.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a history, and one that sums up.")] = False,
    report: Annotated[Path | None, typer.Option(help="Also write a one-file HTML report here.")] = None,
    output: Annotated[Path | None, typer.Option(help="Also write anomalies, series, pictures and report here.")] = None,
    contract: Terms = None,
    client_config: ClientConfig = None,
) -> int:
    """Judge histories: valid (exit 0), invalid (1) or unknown (2); of several the worst counts."""
    from linearizability.history.topic import TopicError
    from linearizability.pipeline.engine import check as judgements
    from linearizability.pipeline.spark_session import failure_of
    from linearizability.pipeline.verdict import EXIT_CODES, VALID, worst

    _known_format(form)
    if conf:
        _start_spark(master, conf)
    done = []
    given = _given(contract or [])
    drawn = report is not None or output is not None
    if client_config and engine is Engine.SPARK:
        raise typer.BadParameter(
            "Spark's workers have no way to a secured broker: --engine local", param_hint="--engine"
        )
    engine = Engine.LOCAL if client_config else engine
    try:
        with reached(files, client_config) as names:
            on_workers, here = _read_by_workers(names, form, engine, master, given, drawn)
            paths = _existing(here)
            expected = _how_many(paths, form)
            progress = Progress(expected)
            progress(f"judging {f'{expected} histories' if expected > 1 else ', '.join(files)}")
            for judgement in chain(
                on_workers, judgements(paths, form, engine.value, master, over_time=drawn, given=given)
            ):
                done.append(judgement)
                progress.clear()
                if not drawn:
                    judgement.history = None  # so that a file may hold any number of histories
                if as_json:
                    print(json.dumps(judgement.to_json(), ensure_ascii=False), flush=True)
                else:
                    _print(judgement)
                if len(done) != expected:
                    progress.often(f"{len(done)}{f' of {expected}' if expected else ''} histories judged", len(done))
            progress.clear()
    except Exception as error:
        known = error if isinstance(error, TopicError) else failure_of(error)
        if known is None:
            raise
        print(json.dumps({"verdict": "error", "error": str(known)}) if as_json else f"error: {known}")
        print(known, file=sys.stderr)
        return ENGINE_ERROR
    verdict = worst(judgement.verdict for judgement in done)
    summary: dict[str, object] = {"verdict": verdict, "histories": len(done)}
    for name in ("valid", "invalid", "unknown"):
        summary[name] = sum(judgement.verdict == name for judgement in done)
    summary["facts"] = sum(judgement.facts for judgement in done)
    if report is not None:
        from linearizability.pipeline.report import write_report

        write_report(report, done)
        summary["report"] = str(report)
    if output is not None:
        from linearizability.pipeline.output import write_output

        write_output(output, done)
        summary["output"] = str(output)
    if as_json:
        print(json.dumps(summary))
    elif len(done) != 1 or verdict != VALID:
        print(", ".join(f"{name}: {value}" for name, value in summary.items()))
    return EXIT_CODES[verdict]


@contextmanager
def reached(names: list[str], client_config: Path | None) -> Iterator[list[str]]:
    """The names by which topics of a secured broker are reached. Errors: TopicError; typer.BadParameter."""
    if client_config is None:
        yield names
        return
    from linearizability.history.secured_topics import entered
    from linearizability.targets import WrongTarget

    try:
        with entered(names, client_config) as entrances:
            yield entrances
    except WrongTarget as error:
        raise typer.BadParameter(str(error), param_hint="--client-config") from None


def _how_many(paths: list[Path], form: str) -> int:
    """How many histories there are, where that is known before they are read; otherwise 0."""
    from linearizability.history.reader import sources_of
    from linearizability.history.store import is_store
    from linearizability.history.topic import is_topic

    if any(is_topic(path) or (path.is_dir() and is_store(path)) for path in paths):
        return 0
    sources = sources_of(paths, form)
    return 0 if sources.others else len(sources.runs)  # another tool's file may hold any number


def _print(judgement) -> None:  # type: ignore[no-untyped-def]
    """One history for people: the verdict, why, and each kind of anomaly with one witness."""
    from linearizability.history.facts import operation_name
    from linearizability.history.keys import join_key
    from linearizability.rules import RULES

    print(f"{judgement.id}: {judgement.verdict} ({judgement.facts} facts, {judgement.engine})")
    if judgement.given:
        print(f"  contract given: {', '.join(f'{name}={value}' for name, value in judgement.given.items())}")
    for reason in judgement.reasons:
        print(f"  not known: {reason}")
    if judgement.share_excused:
        print(f"  {judgement.share_excused}")
    for item in judgement.findings:
        mark = f"permitted: {item.permitted}" if item.permitted else RULES[item.rule].weight.value
        print(f"  {item.rule} × {item.count} ({mark})")
        for anomaly in item.anomalies[:3]:
            operations = " ".join(operation_name(operation) for operation in anomaly.operations)
            print(
                f"    {join_key(anomaly.topic, anomaly.partition)} value {anomaly.value}: {anomaly.text} [{operations}]"
            )


@app.command(
    epilog="Examples: tidegauge history show results/latest | tidegauge history show FILE --rule lost-write --limit 1"
)
def show(
    files: Files,
    form: Format = "auto",
    rule: Annotated[list[str] | None, typer.Option(help="Only anomalies of this type; may repeat.")] = None,
    identifier: Annotated[str | None, typer.Option("--id", help="Only the history of this id.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Anomalies of each type and partition.")] = 3,
    svg: Annotated[Path | None, typer.Option(help="Also draw each anomaly into this folder.")] = None,
    page: Annotated[
        Path | None, typer.Option(help="Also write a page to this file that plays the first history.")
    ] = None,
) -> None:
    """Show each anomaly with the fewest operations that prove it: times, processes, offsets, and a picture if asked."""
    from linearizability.history.events import diagram, text_of
    from linearizability.history.keys import join_key
    from linearizability.pipeline.engine import check as judgements
    from linearizability.pipeline.report import witness_title, witnesses

    _known_format(form)
    paths = _existing(files)
    known_rules(rule or [])
    if svg is not None:
        svg.mkdir(parents=True, exist_ok=True)
    drawn = 0
    for judgement in judgements(paths, form, "local"):
        if identifier not in (None, judgement.id):
            continue
        print(
            f"{judgement.id}: {judgement.verdict}",
            *(f"  not known: {reason}" for reason in judgement.reasons),
            sep="\n",
        )
        if judgement.history is None:
            continue
        if page is not None:
            from linearizability.explorer.history import run_of
            from linearizability.explorer.page import page as explorer

            page.write_text(explorer(run_of(judgement.history, judgement)))
            page = None
        for anomaly, operations in witnesses(judgement.history, judgement, limit).items():
            if rule and anomaly.rule not in rule:
                continue
            key = join_key(anomaly.topic, anomaly.partition) or None
            permitted = f" (permitted: {anomaly.permitted})" if anomaly.permitted else ""
            print(f"  {anomaly.rule}: {witness_title(anomaly, judgement.history.names)}{permitted}")
            print(*(f"    {line}" for line in text_of(operations, key, anomaly.offset)), sep="\n")
            if svg is not None:
                drawn += 1
                (svg / f"{drawn:04d}-{anomaly.rule}.svg").write_text(diagram(operations, key, anomaly.offset))


class Target(StrEnum):
    NEUTRAL = "neutral"
    EDN = "edn"
    PARQUET = "parquet"
    TOPIC = "topic"


@app.command(
    "import",
    epilog="Examples: tidegauge history import history.edn imported.jsonl --contract acks=1 | … --format verifiable FOLDER OUT "
    "--contract acks=1 --contract idempotence=false",
)
def import_(
    files: Files,
    output: Annotated[
        Path, typer.Argument(help="The file to write: neutral JSON lines, gzipped if its name ends in .gz.")
    ],
    form: Format = "auto",
    contract: Terms = None,
) -> int:
    """Bring histories of other tools into the neutral form, one JSON line each; each declares its whole contract there."""
    return _convert(files, form, output, Target.NEUTRAL, _given(contract or []))


@app.command(
    epilog="Examples: tidegauge history export results/latest STORE --to parquet | … FILE OUT.edn --to edn | … "
    "kafka:127.0.0.1:9092/histories --to topic"
)
def export(
    files: Files,
    output: Annotated[Path, typer.Argument(help="The file to write; a folder for parquet; kafka:HOST:PORT/TOPIC.")],
    to: Annotated[
        Target,
        typer.Option(
            help="neutral, edn (one history, Jepsen's form), parquet (facts for analysis), or topic (native histories, "
            "line by line, into a Kafka topic)."
        ),
    ],
    form: Format = "auto",
    client_config: ClientConfig = None,
) -> int:
    """Write histories in another form."""
    from linearizability.history.topic import TopicError

    try:
        if to is Target.TOPIC:
            _topic(output)
            with reached([str(output)], client_config) as (name,):
                return _publish(files, name, output)
        with reached(files, client_config) as names:
            return _convert(names, form, output, to, _given([]))
    except TopicError as error:
        print(f"error: {error}", file=sys.stderr)
        return ENGINE_ERROR


def _publish(folders: list[str], name: str, output: Path) -> int:
    from linearizability.history.files import HistoryError
    from linearizability.history.topic import publish

    topic = _topic(Path(name))
    try:
        count = sum(publish(folder, topic) for folder in _existing(folders))
    except HistoryError as error:
        print(error.defect, file=sys.stderr)
        return 2
    print(f"{count} lines written to {output}")
    return 0


def _topic(text: Path) -> HistoryTopic:
    from linearizability.history.topic import HistoryTopic

    try:
        return HistoryTopic.parse(str(text))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="FILES") from None


def _convert(files: list[str], form: str, output: Path, to: Target, given: Contract) -> int:
    """Convert all histories; what is wrong with one is said, and the exit code is 2."""
    from linearizability.history.exporters import unsayable, write_edn, write_neutral
    from linearizability.history.files import HistoryError
    from linearizability.history.reader import read_histories
    from linearizability.history.store import write_histories

    _known_format(form)
    paths = _existing(files)
    complaints: list[str] = []

    def readable():  # type: ignore[no-untyped-def]
        for history in read_histories(paths, form, given):
            if isinstance(history, HistoryError):
                complaints.append(str(history.defect))
                continue
            complaints.extend(str(defect) for defect in history.defects)
            if refused := unsayable(history, to.value):
                complaints.append(refused)
                continue
            yield history

    if to is Target.PARQUET:
        output.mkdir(parents=True, exist_ok=True)
        count = len(write_histories(output, readable()))
    else:
        count = (write_neutral if to is Target.NEUTRAL else write_edn)(output, readable())
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    print(f"{count} histories written to {output}")
    return 2 if complaints or not count else 0


@app.command(
    epilog="Examples: tidegauge history excerpt results/latest OUT --key orders-0 --offsets 3770-3830 | tidegauge history "
    "check OUT"
)
def excerpt(
    history_folder: Annotated[Path, typer.Argument(metavar="HISTORY", help="A native history's folder.")],
    output: Annotated[Path, typer.Argument(help="The new folder to write.")],
    key: Annotated[str, typer.Option(help="Topic and partition, as orders-0.")],
    offsets: Annotated[str, typer.Option(metavar="FIRST-LAST", help="Offsets of the partition, both included.")],
) -> int:
    """Cut out what a history says of some offsets of one partition: small enough to keep, and judged like the whole."""
    from linearizability.history import excerpt as excerpts
    from linearizability.history.files import HistoryError

    (history_folder,) = _existing([str(history_folder)])
    first, _, last = offsets.partition("-")
    if not (first.isdigit() and last.isdigit() and int(first) <= int(last)):
        raise typer.BadParameter(f"{offsets!r} is not FIRST-LAST", param_hint="--offsets")
    if output.exists():
        raise typer.BadParameter(f"{output} exists already", param_hint="OUTPUT")
    try:
        kept = excerpts.excerpt(history_folder, output, key, int(first), int(last))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--offsets") from None
    except HistoryError as error:
        print(error.defect, file=sys.stderr)
        return 2
    print(f"{kept} events written to {output}")
    return 0


def _read_by_workers(
    files: list[str], form: str, engine: Engine, master: str, given: Contract, over_time: bool
) -> tuple[list[Judgement], list[str]]:
    """Judgements of what Spark's workers read where it lies, and what is read here: all but native runs and stores at URIs."""
    from linearizability.history.places import NoSuchPlace, is_on_hadoop

    chosen = [text for text in files if is_on_hadoop(text)]
    if not chosen or engine is Engine.LOCAL or form not in ("auto", "native"):
        return [], files
    from linearizability.pipeline.frames_check import judgements
    from linearizability.pipeline.spark_session import session

    judged: list[Judgement] = []
    here = [text for text in files if text not in chosen]
    for text in chosen:
        try:
            judged += judgements(session(master), text, given, over_time)
        except NoSuchPlace:
            here.append(text)
    return judged, here


def _start_spark(master: str, conf: list[str]) -> None:
    from linearizability.pipeline.spark_session import session, settings_of_terms

    try:
        session(master, settings_of_terms(conf))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--conf") from None


def known_rules(names: list[str]) -> None:
    from linearizability.rules import RULES

    for name in names:
        if name not in RULES:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(RULES)}", param_hint="--rule")


def _given(terms: list[str]) -> Contract:
    from linearizability.history.contract import Contract
    from linearizability.history.files import reason

    try:
        return Contract.from_terms(terms)
    except ValueError as error:
        raise typer.BadParameter(reason(error), param_hint="--contract") from None


def _known_format(form: str) -> None:
    from linearizability.history.importers import IMPORTERS

    known = ("auto", "native", "neutral", *IMPORTERS)
    if form not in known:
        raise typer.BadParameter(f"{form!r} is none of {', '.join(known)}", param_hint="--format")


def _existing(files: list[str]) -> list[Path]:
    from linearizability.history.places import local_paths

    try:
        return local_paths(files)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="FILES") from None
