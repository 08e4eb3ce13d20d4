"""The contract of a third-party target: lines of JSON, in on standard input, out on standard output.

`CONTRACT.md` explains it; these models check it. One request at a time; each gets one response with its number.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

VERSION = 1

HookName = Literal[
    "kill", "stop", "restart", "pause", "resume", "partition", "heal", "power-loss", "disk", "clock", "config", "logs"
]


class Said(BaseModel):
    """A request of the suite. The suite may add fields, so an adapter must ignore fields that it does not know."""

    model_config = ConfigDict(extra="forbid")

    id: int = Field(description="the request's number, repeated in the answer")


class Describe(Said):
    """Describe the adapter. Always the first request."""

    command: Literal["describe"] = "describe"
    contract: int = VERSION


class Start(Said):
    """Start a fresh, empty cluster, and answer when it serves clients."""

    command: Literal["start"] = "start"
    nodes: int = Field(ge=1, description="how many brokers are wanted")
    folder: str = Field(description="an existing empty folder for data and logs; the adapter may use it")
    config: dict[str, str] = Field(default={}, description="broker properties by Kafka's names")


class Stop(Said):
    """Without a node: end the cluster and remove its data. With a node: shut it down cleanly (hook `stop`)."""

    command: Literal["stop"] = "stop"
    node: int | None = None


class OnNode(Said):
    """A hook on one node. The response comes when the node is gone, answers again, is frozen, or runs again."""

    command: Literal["kill", "restart", "pause", "resume", "logs"]
    node: int


class CutNetwork(Said):
    """Cut the network between these groups of nodes; clients still reach every node. Replaces an earlier cut."""

    command: Literal["partition"] = "partition"
    groups: list[list[int]]


class Heal(Said):
    """Heal the network between the nodes."""

    command: Literal["heal"] = "heal"


class PowerLoss(Said):
    """Kill these nodes at once, and discard the bytes that they have not fsynced."""

    command: Literal["power-loss"] = "power-loss"
    nodes: list[int]


class Disk(Said):
    """Make the node's writes fail with ENOSPC (after `bytes_left` bytes) or EIO; without an error, repair the disk."""

    command: Literal["disk"] = "disk"
    node: int
    error: Literal["full", "broken"] | None = None
    bytes_left: int = Field(default=0, ge=0)


class Clock(Said):
    """Shift the node's wall clock by `seconds`; 0 corrects it."""

    command: Literal["clock"] = "clock"
    node: int
    seconds: float


class Config(Said):
    """Restart the node with changed broker properties."""

    command: Literal["config"] = "config"
    node: int
    config: dict[str, str]


class Answer(BaseModel):
    """A response of the adapter: `ok` with a result, or `error` with a sentence."""

    model_config = ConfigDict(extra="forbid")

    id: int
    ok: dict[str, Any] | None = None
    error: str | None = None


class Result(BaseModel):
    """A result. Unknown fields are refused, because they are mostly misspelt."""

    model_config = ConfigDict(extra="forbid")


class Nothing(Result):
    """The result of hooks: an empty object."""


OF_LISTENERS = ("listener.", "sasl.")
"""Prefixes of the properties of listeners, which use the listener names of the suite's own clusters."""


class Description(Result):
    """The result of `describe`."""

    contract: Literal[1]
    name: str = Field(min_length=1, description="the software under judgement")
    version: str = ""
    hooks: list[HookName] = Field(default=[], description="the hooks that this adapter offers")
    max_nodes: int = Field(default=1, ge=1)
    config: bool = Field(default=False, description="whether `start` honours broker properties")
    listeners: bool = Field(
        default=False, description="whether these may be of listeners, which are named PLAINTEXT and CONTROLLER"
    )
    client: dict[str, str] = Field(
        default={},
        repr=False,
        description="the client properties of a secured broker: security.protocol, ssl.*, sasl.*",
    )


class Address(Result):
    """One broker's address for clients."""

    id: int
    host: str = Field(min_length=1)
    port: int = Field(ge=1, le=65535)


class Started(Result):
    """The result of `start`."""

    nodes: list[Address] = Field(min_length=1)


class Logs(Result):
    """The result of `logs`."""

    paths: list[str]


class ContractBroken(ValueError):
    """A line breaks the contract."""


def read_answer(line: str, expected: int) -> Answer:
    """Parse the response with the expected id. Errors: ContractBroken, which shows the line."""
    try:
        answer = Answer.model_validate_json(line)
    except ValidationError as error:
        raise ContractBroken(f"{_what(error)}; the line was {_shown(line)}") from None
    if answer.id != expected:
        raise ContractBroken(
            f"the answer's id is {answer.id}, the request's was {expected}; the line was {_shown(line)}"
        )
    if (answer.ok is None) == (answer.error is None):
        raise ContractBroken(f"an answer has either `ok` or `error`; the line was {_shown(line)}")
    return answer


def read_result(model: type[Result], content: dict[str, Any], command: str) -> Any:
    """Parse the result of a command. Errors: ContractBroken."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise ContractBroken(f"the result of {command}: {_what(error)}; it was {_shown(str(content))}") from None


def _what(error: ValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    said = "the contract has no such field" if first["type"] == "extra_forbidden" else str(first["msg"])
    return f"{place}: {said}" if place else said


def _shown(text: str) -> str:
    text = text.strip()
    return repr(text if len(text) <= 300 else text[:300] + "…")
