"""Turns the links of the network namespace that it runs in off and on: `python -m linearizability.faults.link_agent`.

Orders come as JSON lines, each with at most one link: `{"cut": ADDRESS}`, `{"join": ADDRESS}`, or `{}`, which only checks that
the agent runs. Each is answered with `done`, or with an error. The agent ends with its input.
"""

import json
import sys

INTERFACE = "eth0"
UNUSED_ADDRESS = "02:77:00:00:ff:ff"
"""A hardware address that no interface has."""
PERMANENT = 128
"""The kernel's NUD_PERMANENT: a neighbour that is not asked for."""


def main() -> None:
    from pyroute2 import IPRoute

    with IPRoute() as link:
        (interface,) = link.link_lookup(ifname=INTERFACE)
        for line in sys.stdin:
            try:
                order = json.loads(line)
                if "cut" in order:
                    link.neigh("replace", dst=order["cut"], lladdr=UNUSED_ADDRESS, ifindex=interface, state=PERMANENT)
                if "join" in order:
                    link.neigh("del", dst=order["join"], ifindex=interface)
                print("done", flush=True)
            except Exception as error:
                print(f"{type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    main()
