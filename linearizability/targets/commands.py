"""`tidegauge targets list | add`: the releases of Apache Kafka that `kafka:VERSION` can start."""

import json
import sys
from typing import Annotated

import typer

BROKEN = 3

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)

Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


@app.callback()
def root() -> None:
    """The releases of Apache Kafka that can be a target."""


@app.command(name="list", epilog="Examples:  tidegauge targets list   ·   tidegauge targets list --json")
def list_(as_json: Json = False) -> None:
    """List the releases that are pinned: number of jars, whether they are cached, how a node is started."""
    from linearizability.targets import artifacts
    from linearizability.targets.zookeeper_kafka import needs_zookeeper

    lock = artifacts.read_lock()
    releases = [
        {
            "version": version,
            "jars": len(lock[artifacts.KAFKA + version]),
            "cached": artifacts.is_cached(artifacts.KAFKA + version),
            "zookeeper": needs_zookeeper(version),
        }
        for version in artifacts.kafka_versions()
    ]
    if as_json:
        print(json.dumps({"releases": releases}))
        return
    for one in releases:
        cached, mode = "cached" if one["cached"] else "", "ZooKeeper" if one["zookeeper"] else "KRaft"
        print(f"kafka:{one['version']:<10} {one['jars']:>4} jars  {mode:<10} {cached}".rstrip())


@app.command(
    epilog="Examples:  tidegauge targets add 3.8.1   ·   tidegauge targets add 0.8.2.2 2.0.0 --json   ·   "
    "tidegauge doctor --target kafka:3.8.1"
)
def add(
    versions: Annotated[list[str], typer.Argument(metavar="VERSION...", help="Releases of Kafka, as 3.8.1.")],
    again: Annotated[bool, typer.Option("--again", help="Resolve also what is pinned already.")] = False,
    as_json: Json = False,
) -> None:
    """Resolve a release's jars, show their sha256 hashes and write them into the lock file.

    From then on `kafka:VERSION` is fetched by these pins and refused where a jar has other bytes. Exit code 3 where a
    release is not published complete, or cannot be reached.
    """
    from linearizability.targets import artifacts

    added: dict[str, dict[str, str]] = {}
    try:
        artifacts.ensure_java()
        for version in versions:
            name = artifacts.KAFKA + version
            pins = artifacts.read_lock().get(name) if not again else None
            added[version] = {str(module): digest for module, digest in (pins or artifacts.add(name)).items()}
            if not as_json:
                print(f"kafka:{version} {'was pinned already' if pins else 'is pinned'}, {len(added[version])} jars")
                for module, digest in added[version].items():
                    print(f"  {digest}  {module}")
    except (artifacts.ArtifactError, artifacts.JavaMissing, OSError) as error:
        print(error, file=sys.stderr)
        raise typer.Exit(BROKEN) from None
    if as_json:
        print(json.dumps({"added": added}))
