"""Counts the cost of each hop of an operation in Python: calls and bytecodes, which do not depend on the machine's load.

    python -m tests.tools.hops [OPERATION] [--functions N]

The operations, and the three nodes in one process, are those of `tests.tools.way`. A hop is one input of a node, with the
question for its next deadline that drivers ask after it. For each:

    calls        calls of functions below `reference/`, without those of `reference/protocol`
    codec        calls of functions of `reference/protocol`, and of those that it generates for messages
    bytecodes    instructions of the interpreter, in these functions and in those of the standard library that they call

What C code does between two bytecodes (checksums, copies, system calls) is not counted: `tests.tools.cost` counts the processor's
instructions, and system calls. With --functions the functions with the most bytecodes follow.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

from tests.tools.way import CODEC, OPERATIONS, REFERENCE, Operations, Way

WARM_UP = 3
"""Records before the one that is counted: they compile the codecs and fill the caches."""
COLUMNS = ("calls", "codec", "bytecodes")


@dataclass(slots=True)
class Hop:
    """One input of a node."""

    name: str
    calls: Counter[CodeType] = field(default_factory=Counter[CodeType])
    bytecodes: Counter[CodeType] = field(default_factory=Counter[CodeType])

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        """Count a frame that begins or (a generator's) resumes; return the tracer of its bytecodes."""
        self.calls[frame.f_code] += not frame.f_code.co_name.startswith("<")
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self.count

    def count(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "opcode":
            self.bytecodes[frame.f_code] += 1
        return self.count

    def row(self) -> tuple[int, int, int]:
        """The columns' numbers."""
        codec = sum(number for code, number in self.calls.items() if is_codec(code))
        own = sum(number for code, number in self.calls.items() if code.co_filename.startswith(REFERENCE))
        generated = sum(number for code, number in self.calls.items() if code.co_filename.startswith("<"))
        return own - (codec - generated), codec, self.bytecodes.total()


def is_codec(code: CodeType) -> bool:
    """Whether a function is one of the protocol's; generated ones have no file."""
    return code.co_filename.startswith((CODEC, "<"))


@dataclass(slots=True)
class Hops(Way):
    """The cost of an operation, hop by hop."""

    hops: list[Hop] = field(default_factory=list[Hop])

    @contextmanager
    def traced(self, name: str = "") -> Iterator[None]:
        hop = Hop(name)
        self.hops.append(hop)
        sys.settrace(hop.trace)
        try:
            yield
        finally:
            sys.settrace(None)


class Counted(Operations):
    new_way = Hops


def hops_of(operation: str) -> list[Hop]:
    """The hops of one operation, in a cluster of its own."""
    nodes = Counted()
    for _ in range(WARM_UP):
        nodes.write()
    nodes.settle()
    OPERATIONS[operation](nodes)
    assert isinstance(nodes.way, Hops)
    return nodes.way.hops


def name_of(code: CodeType) -> str:
    file = code.co_filename
    return f"{file.removeprefix(REFERENCE + '/')}: {code.co_qualname}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operation", nargs="*", help=f"of {', '.join(OPERATIONS)}; produce where none is named")
    parser.add_argument("--functions", type=int, default=0, metavar="N", help="print the N most expensive functions")
    options = parser.parse_args()
    for operation in options.operation or ["produce"]:
        hops = hops_of(operation)
        print(f"{operation:44}" + "".join(f"{name:>11}" for name in COLUMNS))
        for hop in hops:
            print(f"  {hop.name:42}" + "".join(f"{number:11,}" for number in hop.row()))
        print(
            f"  {'all':42}"
            + "".join(f"{sum(numbers):11,}" for numbers in zip(*(hop.row() for hop in hops), strict=True))
        )
        bytecodes: Counter[CodeType] = sum((hop.bytecodes for hop in hops), Counter())
        calls: Counter[CodeType] = sum((hop.calls for hop in hops), Counter())
        for code, number in bytecodes.most_common(options.functions):
            print(f"    {name_of(code):72}{calls[code]:6}{number:8,}")


if __name__ == "__main__":
    main()
