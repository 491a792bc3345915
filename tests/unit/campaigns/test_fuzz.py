"""A share of ``make fuzz``: only errors of txnlog come out of decoders, parsers and rows, never a signal; the
corpus is tried whole."""

from __future__ import annotations

import pytest

from tests.fuzz.targets import CORPUS, Target, targets
from tests.mutants.runner import run

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

SHARE = 500
"""Changed inputs for each target."""


@pytest.mark.parametrize("target", targets(), ids=lambda target: target.name)
def test_only_errors_of_txnlog_come_out(target: Target) -> None:
    report = run([*target.corpus(), *target.inputs(11, max(5, int(SHARE * target.weight)))], target.use)
    assert [what for _, what in report.failures] == []


@pytest.mark.parametrize("target", targets(), ids=lambda target: target.name)
def test_seeds_are_inputs_that_are_taken(target: Target) -> None:
    """Else the campaign would only meet the first check."""
    report = run(list(target.seeds), target.use)
    assert report.failures == []
    is_drawn = list(target.seeds) == [b""]
    assert is_drawn or report.refused < report.inputs


def test_the_corpus_belongs_to_targets() -> None:
    assert {folder.name for folder in CORPUS.iterdir()} <= {target.name for target in targets()}
