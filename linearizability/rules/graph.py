"""Directed graphs of operations: strongly connected components, a shortest cycle, and the edges of time."""

from __future__ import annotations

from collections import deque

import numpy as np

from linearizability.rules.partition import Array


class Graph:
    """Edges between operations; nodes are numbered by rank."""

    def __init__(self, before: Array, after: Array) -> None:
        self.before, self.after = before, after
        self.nodes = np.unique(np.concatenate([before, after]))
        source, target = np.searchsorted(self.nodes, before), np.searchsorted(self.nodes, after)
        order = np.argsort(source, kind="stable")
        self.targets: list[int] = target[order].tolist()
        counts = np.bincount(source, minlength=len(self.nodes))
        self.bounds: list[int] = np.concatenate([[0], np.cumsum(counts)]).tolist()

    def successors(self, node: int) -> list[int]:
        return self.targets[self.bounds[node] : self.bounds[node + 1]]


def strongly_connected(graph: Graph) -> list[list[int]]:
    """The components of more than one operation (Tarjan's algorithm, without recursion), each sorted."""
    count = len(graph.nodes)
    if not count or _ascending(graph):
        return []
    index, low = [-1] * count, [0] * count
    on_stack = [False] * count
    stack: list[int] = []
    components: list[list[int]] = []
    clock = 0
    for root in range(count):
        if index[root] >= 0:
            continue
        work = [(root, graph.bounds[root])]
        while work:
            node, edge = work.pop()
            if index[node] < 0:
                index[node] = low[node] = clock
                clock += 1
                stack.append(node)
                on_stack[node] = True
            descended = False
            while edge < graph.bounds[node + 1]:
                target = graph.targets[edge]
                edge += 1
                if index[target] < 0:
                    work += [(node, edge), (target, graph.bounds[target])]
                    descended = True
                    break
                if on_stack[target]:
                    low[node] = min(low[node], index[target])
            if descended:
                continue
            if low[node] == index[node]:
                component: list[int] = []
                while True:
                    member = stack.pop()
                    on_stack[member] = False
                    component.append(member)
                    if member == node:
                        break
                if len(component) > 1:
                    components.append(sorted(graph.nodes[component].tolist()))
            if work:
                parent = work[-1][0]
                low[parent] = min(low[parent], low[node])
    return sorted(components)


def _ascending(graph: Graph) -> bool:
    """All edges lead to higher numbers: no cycle. True of most histories of one process."""
    return bool((graph.before < graph.after).all())


def shortest_cycle(graph: Graph, component: list[int]) -> list[int]:
    """A shortest cycle through the component's first operations (a few are tried), in order."""
    ranks = {int(np.searchsorted(graph.nodes, operation)): operation for operation in component}
    best: list[int] = []
    for root in list(ranks)[:20]:
        parent = {root: root}
        queue = deque([root])
        found = -1
        while queue and found < 0:
            node = queue.popleft()
            for target in graph.successors(node):
                if target == root:
                    found = node
                    break
                if target in ranks and target not in parent:
                    parent[target] = node
                    queue.append(target)
        if found < 0:
            continue
        cycle = [found]
        while cycle[-1] != root:
            cycle.append(parent[cycle[-1]])
        if not best or len(cycle) < len(best):
            best = cycle[::-1]
    return [ranks[node] for node in best] or component


def add_precedence(graph: Graph, operation: Array, invoked: Array, completed: Array, by_process: bool) -> Graph:
    """The graph with an edge from each operation to those that began after it had ended: the ones that matter.

    An edge that others imply is left out: an operation points to those that begin after it ends, until one of them ends.
    """
    names, place = np.unique(operation, return_inverse=True)
    began, ended = np.full(len(names), np.iinfo(np.int64).max), np.full(len(names), np.iinfo(np.int64).min)
    np.minimum.at(began, place, invoked)
    np.maximum.at(ended, place, completed)
    ended = np.maximum(ended, began)  # also where the clock stepped back
    events = [(int(time), 0, i) for i, time in enumerate(began)] + [(int(time), 1, i) for i, time in enumerate(ended)]
    events.sort()
    frontier: dict[int, set[int]] = {}
    preceding: dict[int, set[int]] = {}
    before: list[int] = []
    after: list[int] = []
    for _, kind, i in events:
        process = int(names[i]) >> 32 if by_process else 0
        ready = frontier.setdefault(process, set())
        if kind == 0:
            preceding[i] = set(ready)
            before += [int(names[j]) for j in ready]
            after += [int(names[i])] * len(ready)
        else:
            ready -= preceding.pop(i)
            ready.add(i)
    return Graph(
        np.concatenate([graph.before, np.array(before, np.int64)]),
        np.concatenate([graph.after, np.array(after, np.int64)]),
    )
