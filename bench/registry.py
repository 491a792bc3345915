"""All benchmarks, in the order of the page."""

from __future__ import annotations

from bench.table import Benchmark

__all__ = ["benchmarks", "chosen"]


def benchmarks() -> tuple[Benchmark, ...]:
    """Return all benchmarks. Imported here, because they bring in what they compare with."""
    from bench import contention, ingest, latency, one_shot, plan, python_read, store_commits
    from bench.lifecycle import (
        cold_open,
        compaction,
        importing,
        publishing,
        small_commits,
        small_counts,
        vacuuming,
    )
    from bench.lifecycle import scan as compacted
    from bench.spark import (
        catch_up,
        delta_view,
        hundred_queries,
        native_table,
        scan,
        stream,
        stream_copy,
        warm_start,
    )

    modules = (
        one_shot,
        ingest,
        python_read,
        compacted,
        compaction,
        cold_open,
        small_commits,
        vacuuming,
        importing,
        scan,
        small_counts,
        native_table,
        delta_view,
        publishing,
        stream,
        stream_copy,
        warm_start,
        latency,
        catch_up,
        plan,
        contention,
        hundred_queries,
        store_commits,
    )
    return tuple(benchmark for module in modules for benchmark in module.BENCHMARKS)


def chosen(words: str) -> tuple[Benchmark, ...]:
    """Return the benchmarks that any of the words is part of the name of; all without a word.

    Raises
    ------
    SystemExit
        A word fits none.
    """
    known = benchmarks()
    asked = words.split()
    unknown = [word for word in asked if not any(word in each.name for each in known)]
    if unknown:
        names = ", ".join(each.name for each in known)
        raise SystemExit(f"bench: no benchmark is called like {', '.join(unknown)}; there are {names}")
    return tuple(each for each in known if not asked or any(word in each.name for word in asked))
