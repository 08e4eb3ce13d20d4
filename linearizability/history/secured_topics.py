"""Local entrances to history topics of a secured broker: they accept the plain protocol, from this machine alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from linearizability.faults.entrance import entrance
from linearizability.history.topic import HistoryTopic, TopicError, is_topic
from linearizability.targets import Access, TargetError, WrongTarget, open_target
from linearizability.targets.security import ClientSecurity


@contextmanager
def entered(files: Sequence[str], client_config: Path) -> Iterator[list[str]]:
    """The same names, with a topic's brokers replaced by entrances on this machine, which encrypt and authenticate.

    Errors: TopicError, which names the topic, where no broker lets the client in; WrongTarget where the properties cannot be
    served, no name is a topic's, or a topic's name is not `kafka:HOST:PORT/TOPIC`.
    """
    if not any(map(is_topic, files)):
        raise WrongTarget("it is the way to topics, and no topic is given: kafka:HOST:PORT/TOPIC")
    security = ClientSecurity.read(client_config)
    with ExitStack() as stack:
        yield [stack.enter_context(_entered(file, security)) if is_topic(file) else file for file in files]


@contextmanager
def _entered(name: str, security: ClientSecurity) -> Iterator[str]:
    try:
        topic = HistoryTopic.parse(name)
    except ValueError as error:
        raise WrongTarget(str(error)) from None
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="tidegauge-topic-")))
        try:
            target = stack.enter_context(
                open_target(f"addr:{topic.brokers}", folder=folder, access=Access(security=security))
            )
        except WrongTarget:
            raise
        except TargetError as error:
            raise TopicError(f"{topic}: {error}") from error
        yield str(HistoryTopic(stack.enter_context(entrance(target)), topic.name))
