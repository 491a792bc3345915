"""The mutation run itself: a broken rule is noticed, and a change of nothing survives."""

from __future__ import annotations

from pathlib import Path

from tests.conformance.mutations import MUTATIONS, copy_to, try_mutation
from txnformat.persistent import replace


def test_a_broken_rule_is_noticed_and_a_change_of_nothing_survives(tmp_path: Path) -> None:
    original = copy_to(tmp_path / "original")
    broken = MUTATIONS[0]
    assert try_mutation(original, tmp_path / "broken", broken).survived == []
    harmless = replace(broken, name="nothing", after=broken.before.replace("==", " =="))
    assert try_mutation(original, tmp_path / "harmless", harmless).survived == [
        ".".join(claim) for claim in broken.claims
    ]
