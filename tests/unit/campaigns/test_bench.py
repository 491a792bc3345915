"""The benchmarks' own machinery: figures, verdicts, and the page that is made from results."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Progress

from bench.__main__ import as_json, run, updated
from bench.page import page, verdict
from bench.registry import benchmarks, chosen
from bench.table import Benchmark, Context, Measurement, Row, ratio, take_turns

FASTER = Row(key="faster", work="work", against="other", figure="times its speed", target=2)
SLOWER = Row(key="slower", work="work", against="other", figure="times its time", target=1.1, at_least=False)
NO_TARGET = Row(key="no-target", work="work", against="other", figure="times its time")


def _benchmark(*found: Measurement, error: Exception | None = None) -> Benchmark:
    def measure(context: Context) -> list[Measurement]:
        context.tick("now")
        if error is not None:
            raise error
        return list(found)

    return Benchmark(name="some", how="Somehow.", rows=(FASTER, SLOWER, NO_TARGET), measure=measure)


def _run(benchmark: Benchmark, folder: Path) -> dict[str, object]:
    return {
        "date": "2026-01-01",
        "minutes": 1.0,
        "machine": {"processor": "a fast one"},
        "benchmarks": [run(benchmark, folder, Progress(console=Console(file=io.StringIO())))],
    }


def test_the_figure_is_the_median_of_the_rounds_ratios() -> None:
    found = ratio("faster", [2.0, 9.0, 30.0], [1.0, 3.0, 10.0], note_ms=1)
    assert found.rounds == (2.0, 3.0, 3.0)
    assert found.figure == 3.0
    assert found.details == {"note_ms": 1}


@pytest.mark.parametrize(
    ("row", "figure", "met"),
    [
        (FASTER, 2.0, True),
        (FASTER, 1.99, False),
        (SLOWER, 1.1, True),
        (SLOWER, 1.11, False),
        (NO_TARGET, 7.0, None),
    ],
)
def test_a_figure_at_the_target_meets_it(row: Row, figure: float, met: bool | None) -> None:
    assert row.met(figure) is met


def test_turns_alternate_and_the_warm_up_does_not_count(tmp_path: Path) -> None:
    order: list[str] = []
    calls = {"a": lambda: order.append("a"), "b": lambda: order.append("b")}
    found = take_turns(calls, Context(tmp_path, lambda _: None), rounds=3, warm_up=1)
    assert "".join(order) == "abbaabba"
    assert {name: len(seconds) for name, seconds in found.items()} == {"a": 3, "b": 3}


def test_the_page_has_every_row_with_its_verdict(tmp_path: Path) -> None:
    missed = Row(key="faster", work="w", against="o", figure="f", target=5, note="The limit is elsewhere.")
    text = page(
        _run(_benchmark(*(Measurement(key, (1.0,)) for key in ("faster", "slower", "no-target"))), tmp_path)
    )
    assert "| work | other | times its speed | ≥ 2 | 1.00 (1.00 to 1.00) | missed |" in text
    assert "| work | other | times its time | ≤ 1.10 | 1.00 (1.00 to 1.00) | met |" in text
    assert "| work | other | times its time | – | 1.00 (1.00 to 1.00) | reported |" in text
    assert "| processor | a fast one |" in text
    assert as_json(missed, Measurement("faster", (1.0,)))["note"] == "The limit is elsewhere."


def test_what_fails_or_is_left_out_is_a_row_that_says_so(tmp_path: Path) -> None:
    results = _run(_benchmark(error=ValueError("no disk")), tmp_path)
    text = page(results)
    assert text.count("| not measured |") == 3
    assert "not measured: ValueError: no disk" in text
    left_out = _run(_benchmark(Measurement("faster", (3.0,))), tmp_path)["benchmarks"][0]["rows"]  # type: ignore[index]
    assert [verdict(row) for row in left_out] == ["met", "not measured", "not measured"]


def test_names_and_keys_are_distinct_and_a_word_narrows() -> None:
    known = benchmarks()
    names = [each.name for each in known]
    keys = [row.key for each in known for row in each.rows]
    assert len(set(names)) == len(names)
    assert len(set(keys)) == len(keys)
    assert [each.name for each in chosen(names[0])] == [name for name in names if names[0] in name]
    assert chosen("") == known
    with pytest.raises(SystemExit, match="no benchmark is called like nothing-of-that-name"):
        chosen("nothing-of-that-name")


def test_results_of_some_benchmarks_replace_their_older_ones_and_say_when() -> None:
    first, second, *others = (benchmark.name for benchmark in benchmarks())
    kept = {"date": "2026-01-01", "benchmarks": [{"name": name, "rows": []} for name in (first, *others)]}
    found = [{"name": name, "rows": [name]} for name in (second, others[0])]
    results = updated(kept, found, "2026-02-02", "abc")
    assert [one["name"] for one in results["benchmarks"]] == [first, second, *others]
    assert [one.get("date") for one in results["benchmarks"]] == [
        None,
        "2026-02-02",
        "2026-02-02",
        *(None for _ in others[1:]),
    ]
    assert results["benchmarks"][2]["rows"] == [others[0]]
    assert results["date"] == "2026-01-01"
