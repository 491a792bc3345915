"""Circles of transactions: G0 and G1c, also with the order of processes and of real time.

Edges: *ww*, from the writer of a record to the writer of the next one in the partition, among transactions
that write at one moment; *wr*, from the writer of a record to who read it as committed; *process*, from an
operation to the same process's next one; *realtime*, from an operation to all that began after it had ended,
by way of a chain of moments, so that edges are as many as operations. Strongly connected components by
Tarjan's algorithm, without recursion: linear.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from txnlog_testing.checker.anomalies import Anomaly, AnomalyClass
from txnlog_testing.checker.evidence import Evidence, Operation
from txnlog_testing.checker.vocabulary import EventType, Function

__all__ = ["Graph", "check_cycles", "components"]

Graph = dict[int, dict[int, str]]
"""Node to its successors, with the kind of each edge. Operations are numbered from 0, moments below 0."""


def check_cycles(evidence: Evidence, *, writes_isolated: bool) -> Iterator[Anomaly]:
    """Yield G0, G1c and their variants: one circle of each component.

    Parameters
    ----------
    writes_isolated : bool
        Whether the order of writes counts for G1c.
    """
    writes, reads = _writes(evidence), _reads(evidence)
    told: list[set[int]] = []
    for cls, graph, needed in (
        (AnomalyClass.G0, writes, "ww"),
        (AnomalyClass.G1C, _joined(writes, reads) if writes_isolated else reads, "wr"),
    ):
        yield from _circles(evidence, cls, graph, needed, told)
    for name, order in (("process", _processes(evidence)), ("realtime", _realtime(evidence))):
        g0 = AnomalyClass(f"G0-{name}")
        yield from _circles(evidence, g0, _joined(writes, order), name, told, "ww")
        graph = _joined(reads, order, *([writes] if writes_isolated else []))
        yield from _circles(evidence, AnomalyClass(f"G1c-{name}"), graph, "wr", told)


def _circles(
    evidence: Evidence,
    cls: AnomalyClass,
    graph: Graph,
    needed: str,
    told: list[set[int]],
    also: str | None = None,
) -> Iterator[Anomaly]:
    """Yield a circle with an edge of the needed kind for each component that has one, and no smaller one told
    before.
    """
    for component in components(graph):
        members = set(component)
        if any(other <= members for other in told):
            continue
        circle = _circle(graph, members, needed)
        if circle is None or (also is not None and also not in {kind for _, kind in circle}):
            continue
        told.append(members)
        numbers = [number for number, _ in circle if number >= 0]
        operations = [evidence.operations[number] for number in numbers]
        yield Anomaly(cls, _sentence(evidence, circle), (), (), tuple(one.invoked for one in operations))


def _sentence(evidence: Evidence, circle: list[tuple[int, str]]) -> str:
    means = {
        "ww": "wrote before",
        "wr": "was read by",
        "process": "was followed in its process by",
        "realtime": "ended before the beginning of",
    }
    text = ""
    for number, kind in circle:
        if number >= 0:
            text += f"{evidence.operations[number]} {means[kind]} "
    first = next(number for number, _ in circle if number >= 0)
    return f"{text}{evidence.operations[first]}"


def _circle(graph: Graph, members: set[int], needed: str) -> list[tuple[int, str]] | None:
    """Return a shortest circle through the first edge of a kind: nodes, each with the edge that leaves it."""
    for start in sorted(members):
        for end, kind in graph.get(start, {}).items():
            if kind == needed and end in members:
                way = _way(graph, members, end, start)
                if way is not None:
                    return [(start, kind), *way]
    return None


def _way(graph: Graph, members: set[int], start: int, end: int) -> list[tuple[int, str]] | None:
    """Return a shortest way, without its last node."""
    came: dict[int, tuple[int, str]] = {}
    waiting = deque([start])
    while waiting:
        node = waiting.popleft()
        if node == end:
            way: list[tuple[int, str]] = []
            while node != start:
                before, kind = came[node]
                way.append((before, kind))
                node = before
            return way[::-1]
        for successor, kind in graph.get(node, {}).items():
            if successor in members and successor not in came and successor != start:
                came[successor] = (node, kind)
                waiting.append(successor)
    return None


# --- edges --------------------------------------------------------------------------------------------------


def _add(graph: Graph, start: int, end: int, kind: str) -> None:
    if start != end:
        graph.setdefault(start, {}).setdefault(end, kind)


def _joined(*graphs: Graph) -> Graph:
    joined: Graph = {}
    for graph in graphs:
        for start, successors in graph.items():
            into = joined.setdefault(start, {})
            for end, kind in successors.items():
                into.setdefault(end, kind)
    return joined


def _writes(evidence: Evidence) -> Graph:
    graph: Graph = {}
    for key, line in evidence.committed_line.items():
        before: Operation | None = None
        for offset in line.offsets:
            for found in evidence.values_at(key, offset):
                writer = found.writer
                if writer is None or not writer.is_isolated or not found.is_committed:
                    continue
                if before is not None:
                    _add(graph, before.number, writer.number, "ww")
                before = writer
    return graph


def _reads(evidence: Evidence) -> Graph:
    graph: Graph = {}
    for polled in evidence.polls:
        if not polled.is_committed_only:
            continue
        for key, records in polled.poll.records.items():
            for _, value in records:
                writer = evidence.written(key, value).writer
                if writer is not None:
                    _add(graph, writer.number, polled.operation.number, "wr")
    return graph


def _nodes(evidence: Evidence) -> Iterator[Operation]:
    """Yield the operations whose order means something: who has nothing to do with records takes part in no
    circle.
    """
    for one in evidence.operations:
        if one.f in (Function.SEND, Function.TXN, Function.POLL):
            yield one


def _processes(evidence: Evidence) -> Graph:
    graph: Graph = {}
    last: dict[str, Operation] = {}
    for one in _nodes(evidence):
        before = last.get(one.process)
        if before is not None and before.told < one.began:
            _add(graph, before.number, one.number, "process")
        last[one.process] = one
    return graph


def _realtime(evidence: Evidence) -> Graph:
    """Return edges from ends to the moment at which they are, from each moment to the next, and to what
    begins after it.
    """
    graph: Graph = {}
    nodes = list(_nodes(evidence))
    ends = sorted((one.told, one.number) for one in nodes if one.outcome is not EventType.INFO)
    begins = sorted((one.began, one.number) for one in nodes)
    moment, place = 0, 0
    for began, number in begins:
        if place < len(ends) and ends[place][0] < began:
            moment -= 1
            if moment < -1:
                _add(graph, moment + 1, moment, "realtime")
            while place < len(ends) and ends[place][0] < began:
                _add(graph, ends[place][1], moment, "realtime")
                place += 1
        if moment < 0:
            _add(graph, moment, number, "realtime")
    return graph


# --- Tarjan -------------------------------------------------------------------------------------------------


def components(graph: Graph) -> list[list[int]]:
    """Return the strongly connected components of more than one node (Tarjan 1972, with a stack of its
    own).
    """
    found: list[list[int]] = []
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    on_stack: set[int] = set()
    stack: list[int] = []
    for root in graph:
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        work = [(root, iter(graph.get(root, ())))]
        while work:
            node, successors = work[-1]
            for successor in successors:
                if successor not in index:
                    index[successor] = low[successor] = len(index)
                    stack.append(successor)
                    on_stack.add(successor)
                    work.append((successor, iter(graph.get(successor, ()))))
                    break
                if successor in on_stack:
                    low[node] = min(low[node], index[successor])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        component.append(member)
                        if member == node:
                            break
                    if len(component) > 1:
                        found.append(component)
    return found
