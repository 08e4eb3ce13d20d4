#!/usr/bin/env python3
"""An adapter for a cluster on other machines: each hook is a command that runs there by ssh. Change the constants.

    tidegauge adapter check ./remote.py
    tidegauge run --target exec:./remote.py

The nodes' addresses must be those that the brokers advertise; `--map` translates those that this machine cannot reach.
"""

import json
import sys

from linearizability.targets.shell_adapter import serve

NODES = {1: ("broker-1.example.com", 9092), 2: ("broker-2.example.com", 9092), 3: ("broker-3.example.com", 9092)}
PREFIX = "ssh -o BatchMode=yes root@{host}"
COMMANDS = {
    "start": "systemctl stop kafka; rm -rf /var/lib/kafka/* && kafka-format && systemctl start kafka",
    "stop": "systemctl stop kafka",
    "kill": "systemctl kill -s KILL kafka",
    "restart": "systemctl restart kafka",
    "pause": "systemctl kill -s STOP kafka",
    "resume": "systemctl kill -s CONT kafka",
    "logs": "journalctl -u kafka --no-pager",
}

if len(sys.argv) > 1:  # exec:./remote.py cluster.json: the same three things in a file
    with open(sys.argv[1]) as file:
        cluster = json.load(file)
    NODES = {int(node): tuple(address) for node, address in cluster["nodes"].items()}
    PREFIX, COMMANDS = cluster["prefix"], cluster["commands"]

serve("a remote cluster", NODES, COMMANDS, PREFIX)
