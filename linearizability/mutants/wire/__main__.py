"""`python -m linearizability.mutants.wire list | restricted | adapter NAME [BEHIND]`.

NAME is a lie, `honest` for none, or `restricted-NAME` for a correct broker that serves less.
"""

from __future__ import annotations

import sys

from linearizability.mutants.wire.adapter import BEHIND, LieAdapter
from linearizability.mutants.wire.lies import LIES
from linearizability.mutants.wire.proxy import Honest
from linearizability.mutants.wire.restricted import PREFIX, RESTRICTIONS, Restricted
from linearizability.mutants.wire.rewriting import Liar

USAGE = "usage: python -m linearizability.mutants.wire list | restricted | adapter NAME [BEHIND]"
HONEST = "honest"


def main(arguments: list[str]) -> int:
    match arguments:
        case ["list"]:
            for lie in LIES.values():
                print(f"{lie.name:<48} {lie.what} [{lie.spoken_of or 'gap'}]")
            return 0
        case ["restricted"]:
            for name, row in RESTRICTIONS.items():
                print(f"{PREFIX}{name:<30} {row.what}")
            return 0
        case ["adapter", name, *behind] if len(behind) < 2 and name.removeprefix(PREFIX) in RESTRICTIONS:
            row = RESTRICTIONS[name.removeprefix(PREFIX)]
            LieAdapter(name, Restricted(row), behind[0] if behind else BEHIND, row).answer_requests()
            return 0
        case ["adapter", name, *behind] if len(behind) < 2 and (name == HONEST or name in LIES):
            tamper = Honest() if name == HONEST else Liar(LIES[name])
            LieAdapter(name, tamper, behind[0] if behind else BEHIND).answer_requests()
            return 0
        case _:
            print(USAGE, file=sys.stderr)
            return 64


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
