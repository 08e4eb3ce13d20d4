"""`python -m linearizability.mutants list | serve NAME CONFIG | adapter NAME | judge [NAME...]`."""

from __future__ import annotations

import sys

from linearizability.mutants.adapter import MutantAdapter
from linearizability.mutants.registry import MUTANTS, UnknownMutant, planted

USAGE = "usage: python -m linearizability.mutants list | serve NAME CONFIG | adapter NAME | judge [NAME...]"
WRONG_USAGE, ENGINE_ERROR = 64, 3


def main(arguments: list[str]) -> int:
    match arguments:
        case ["list"]:
            width = max(map(len, MUTANTS)) + 2
            for mutant in MUTANTS.values():
                print(f"{mutant.name:<{width}}{mutant.bug}")
            return 0
        case ["serve", name, config]:
            return _serve(name, config)
        case ["adapter", name]:
            if name not in MUTANTS:
                print(UnknownMutant(name), file=sys.stderr)
                return WRONG_USAGE
            MutantAdapter(name).answer_requests()
            return 0
        case ["judge", *names]:
            for name in names:
                if name not in MUTANTS:
                    print(UnknownMutant(name), file=sys.stderr)
                    return WRONG_USAGE
            from linearizability.mutants.judging import judge

            return judge(names)
        case _:
            print(USAGE, file=sys.stderr)
            return WRONG_USAGE


def _serve(name: str, config: str) -> int:
    """Run `tidegauge serve CONFIG` with the bug; return the exit code."""
    import tidegauge

    try:
        with planted(name):
            tidegauge.main(["serve", config])
    except UnknownMutant as error:
        print(error, file=sys.stderr)
        return WRONG_USAGE
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
