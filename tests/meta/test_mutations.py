"""Every mutation can be made, claims cases that tests cite, and is on the page. A line that moves is found
out here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance.cases import ROOT
from tests.conformance.mutation_rules import Mutation
from tests.conformance.mutations import (
    MUTATIONS,
    PAGE,
    claiming_tests,
    mutate,
    page,
)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: one.name)
def test_a_mutation_is_of_a_line_that_is_there_and_claims_cases_that_tests_cite(
    mutation: Mutation, tmp_path: Path
) -> None:
    copied = tmp_path / mutation.path
    copied.parent.mkdir(parents=True)
    before = (ROOT / mutation.path).read_text(encoding="utf-8")
    copied.write_text(before, encoding="utf-8")
    mutate(tmp_path, mutation)
    assert copied.read_text(encoding="utf-8") != before
    assert all(claiming_tests(mutation).values())
    for test in mutation.tests:
        path, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8") if name else (ROOT / path).exists()


def test_there_are_mutations_of_every_part_that_has_rules() -> None:
    files = {mutation.path for mutation in MUTATIONS}
    for part in (
        *(
            "transactions/abort_index",
            "records/decide",
            "records/state",
            "producers/state",
            "records/visibility",
        ),
    ):
        assert f"txnformat/core/{part}.py" in files
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS) >= 10


def test_the_page_is_of_these_mutations() -> None:
    assert (ROOT / PAGE).read_text(encoding="utf-8") == page(MUTATIONS), "run: make mutations"


def test_a_line_that_is_gone_or_not_unique_and_a_case_without_tests_are_errors(tmp_path: Path) -> None:
    path = tmp_path / MUTATIONS[0].path
    path.parent.mkdir(parents=True)
    for text, count in (("", 0), (2 * f"{MUTATIONS[0].before}\n", 2)):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=f"{count} times"):
            mutate(tmp_path, MUTATIONS[0])
    for claims in ((), (("librdkafka-0105-transactions_mock", "do_test_txn_slow_reinit (with sleep)"),)):
        with pytest.raises(ValueError, match="no test cites"):
            claiming_tests(replace(MUTATIONS[0], claims=claims))
