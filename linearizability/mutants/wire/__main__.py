"""`python -m linearizability.mutants.wire list | adapter NAME [BEHIND]`; the name `honest` is that of no lie."""

from __future__ import annotations

import sys

from linearizability.mutants.wire.adapter import BEHIND, answer_requests
from linearizability.mutants.wire.lies import LIES
from linearizability.mutants.wire.proxy import Honest
from linearizability.mutants.wire.rewriting import Liar

USAGE = "usage: python -m linearizability.mutants.wire list | adapter NAME [BEHIND]"
HONEST = "honest"


def main(arguments: list[str]) -> int:
    match arguments:
        case ["list"]:
            for lie in LIES.values():
                print(f"{lie.name:<48} {lie.what} [{lie.spoken_of or 'gap'}]")
            return 0
        case ["adapter", name, *behind] if len(behind) < 2 and (name == HONEST or name in LIES):
            answer_requests(name, Honest() if name == HONEST else Liar(LIES[name]), *(behind or [BEHIND]))
            return 0
        case _:
            print(USAGE, file=sys.stderr)
            return 64


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
