"""Guards of upkeep, each removed by a change, and the narrow test that must then fail. No other system has
cases of them."""

from __future__ import annotations

from tests.conformance.mutation_rules import Mutation

__all__ = ["UPKEEP_RULES"]

CORE, UNIT = "txnformat/core/lifecycle", "tests/unit/core/lifecycle"
FOLD, GARBAGE, LIVE = f"{CORE}/fold.py", "txnformat/admin/garbage.py", "txnformat/verify/live.py"
ERASURE, ERASED = f"{CORE}/erasure.py", f"{CORE}/erased.py"
SPOOLED = "tests/integration/upkeep/test_vacuum_spooled.py"
GARBAGE_TESTS = "tests/unit/admin/test_garbage.py"


def _rule(name: str, path: str, before: str, after: str, *tests: str) -> Mutation:
    return Mutation(name, path, before, after, tests=tests)


COMPACTION = (
    _rule(
        "a compaction replaces what another one has replaced",
        f"{CORE}/compaction.py",
        "if (known.revision, known.log_start) != seen:",
        "if known.log_start != seen[1]:",
        f"{UNIT}/test_replace.py::test_what_another_client_has_changed_is_refused",
    ),
    _rule(
        "a compaction does not see that the log start has moved",
        f"{CORE}/compaction.py",
        "if (known.revision, known.log_start) != seen:",
        "if known.revision != part.revision:",
        f"{UNIT}/test_replace.py::test_what_another_client_has_changed_is_refused",
    ),
    _rule(
        "a compaction replaces segment lists that others have written anew",
        f"{CORE}/compaction.py",
        "if lists_replaced(state, op) is None:",
        "if op is None:",
        f"{UNIT}/test_replace.py::test_what_another_client_has_changed_is_refused",
    ),
    _rule(
        "a key compaction goes back behind another one",
        f"{CORE}/compaction.py",
        "if known.cleaned_end > cleaned.cleaned_end or not keeps_latest(topic.settings):",
        "if not keeps_latest(topic.settings):",
        f"{UNIT}/test_replace.py::test_what_another_client_has_compared_meanwhile_is_not_taken_back",
    ),
    _rule(
        "a topic that keeps all records loses some to later ones of their key",
        f"{CORE}/compaction.py",
        "if known.cleaned_end > cleaned.cleaned_end or not keeps_latest(topic.settings):",
        "if known.cleaned_end > cleaned.cleaned_end:",
        f"{UNIT}/test_replace.py::test_only_a_topic_with_the_policy_loses_records_to_later_ones",
    ),
    _rule(
        "a compaction may have more records than it replaces",
        FOLD,
        "> min(part.old_records - part.old_aborted_records, part.end_offset - part.start_offset)",
        "> part.old_records + part.end_offset",
        f"{UNIT}/test_replace.py::test_a_compaction_that_does_not_fit_its_partition_is_corrupt",
    ),
    _rule(
        "a compaction goes beyond what is listed",
        FOLD,
        "if not (begins >= end and begins < part.end_offset <= partition.listed_end):",
        "if not (begins >= end and begins < part.end_offset):",
        f"{UNIT}/test_replace.py::test_a_compaction_that_does_not_fit_its_partition_is_corrupt",
    ),
)
REMOVAL = (
    _rule(
        "a trim is counted from another log start",
        f"{CORE}/trim.py",
        "if known.log_start != seen or known.revision != revision:",
        "if known.revision != revision:",
        f"{UNIT}/test_trim.py::test_numbers_that_were_counted_from_another_log_start_are_refused",
    ),
    _rule(
        "a trim is counted before a compaction",
        f"{CORE}/trim.py",
        "if known.log_start != seen or known.revision != revision:",
        "if known.log_start != seen:",
        f"{UNIT}/test_replace.py::test_a_trim_that_was_counted_before_a_compaction_is_refused",
    ),
    _rule(
        "retention passes readers that hold records",
        f"{CORE}/trim.py",
        "if unread is not None and part.log_start > max(unread, free):",
        "if unread is not None and part.log_start < 0:",
        f"{UNIT}/test_trim.py::test_retention_is_refused_where_a_reader_has_not_read_and_holds_more_than_is_free",
    ),
    _rule(
        "a log start goes beyond what is sealed",
        FOLD,
        "if not partition.log_start < part.log_start <= partition.sealed_end:",
        "if not partition.log_start < part.log_start:",
        f"{UNIT}/test_trim.py::test_a_trim_that_does_not_fit_is_corrupt",
    ),
    _rule(
        "records are removed from a log that was not upgraded",
        f"{CORE}/features.py",
        "if state.lacks(feature):",
        "if False:",
        f"{UNIT}/test_trim.py::test_a_log_must_be_upgraded_first",
    ),
    _rule(
        "a prepared transaction is given up without its name",
        f"{CORE}/touching.py",
        "left = [name for name in names if is_prepared(state, name) and name not in named]",
        "left = [name for name in names if is_prepared(state, name) and name in named]",
        f"{UNIT}/test_force.py::test_a_prepared_transaction_has_to_be_named_and_keeps_the_rest",
    ),
    _rule(
        "a topic goes while open transactions touch it",
        f"{CORE}/deletion.py",
        "if opened and not action.force:",
        "if opened and action.force is None:",
        f"{UNIT}/test_delete_topic.py::test_an_open_transaction_that_touches_the_topic_holds_it_unless_forced",
    ),
    _rule(
        "a topic goes with a prepared transaction that was not named",
        f"{CORE}/deletion.py",
        "if is_prepared(state, name) and name not in action.prepared]",
        "if is_prepared(state, name) and name in action.prepared]",
        f"{UNIT}/test_delete_topic.py::test_a_prepared_transaction_is_given_up_by_name_and_keeps_the_rest",
    ),
)
TRUNCATION = (
    _rule(
        "the boundary passes the second newest snapshot",
        f"{CORE}/truncation.py",
        "(state.checkpoints[0].entry, LimitedBy.SNAPSHOT),",
        "(state.checkpoints[1].entry, LimitedBy.SNAPSHOT),",
        f"{UNIT}/test_truncation.py::test_the_boundary_is_below_what_is_young_and_what_the_second_newest_snapshot_needs",
    ),
    _rule(
        "young entries go",
        f"{CORE}/truncation.py",
        "(old_entry + 1, LimitedBy.AGE),",
        "(state.entry, LimitedBy.AGE),",
        f"{UNIT}/test_truncation.py::test_the_boundary_is_below_what_is_young_and_what_the_second_newest_snapshot_needs",
    ),
    _rule(
        "entries go with rows that are nowhere else",
        f"{CORE}/truncation.py",
        "*((file.place.entry, LimitedBy.EMBEDDED) for file in state.files if file.place is not None),",
        "",
        "tests/integration/producers/test_embedding_truncation.py::test_a_truncation_keeps_rows_that_are_nowhere_else",
    ),
    _rule(
        "verification takes what a deleted entry has sealed for a problem",
        "txnformat/verify/lifecycle.py",
        "sealed_end = 0 if self._anchor is None else self._anchor.partition(key).sealed_end",
        "sealed_end = 0",
        "tests/integration/verify/test_verify_truncated.py::test_a_part_that_a_deleted_entry_has_sealed_is_no_problem",
    ),
    _rule(
        "verification believes any compaction",
        "txnformat/verify/lifecycle.py",
        "return covered >= min(wanted.end, sealed_end)",
        "return False",
        "tests/integration/verify/test_verify_truncated.py::test_a_compaction_that_lies_is_found_where_the_seals_are_known",
    ),
)
VACUUM = (
    _rule(
        "a floor goes down",
        f"{CORE}/vacuum.py",
        "if action.floor <= state.vacuum_floor:",
        "if action.floor < 0:",
        f"{UNIT}/test_vacuum_mark.py::test_a_mark_that_does_not_move_the_floor_up_is_refused",
    ),
    _rule(
        "an entry may name what a vacuum may have deleted",
        f"{CORE}/vacuum.py",
        "return next((key for key in named_objects(op) if keys.born_of(key) < floor), None)",
        "return None",
        f"{UNIT}/test_vacuum_mark.py::test_a_decision_names_no_object_that_was_born_below_the_floor",
        f"{UNIT}/test_vacuum_mark.py::test_an_entry_that_names_an_object_born_below_the_floor_is_corrupt",
    ),
    _rule(
        "an object in use goes when a list has it",
        GARBAGE,
        "if key in known.live:",
        "if key in known.live and not lists:",
        f"{GARBAGE_TESTS}::test_what_is_live_stays_whatever_a_list_says",
    ),
    _rule(
        "an object goes that an upload may still commit",
        GARBAGE,
        "elif name.born >= self._limits.floor:",
        "elif name.born > self._limits.floor:",
        f"{GARBAGE_TESTS}::test_an_object_goes_when_it_is_below_the_floor_and_was_condemned_by_an_old_entry",
    ),
    _rule(
        "an object goes without a list of the grace before",
        GARBAGE,
        "is_due=document.entry <= self._limits.old_entry,",
        "is_due=True,",
        f"{GARBAGE_TESTS}::test_an_object_goes_when_it_is_below_the_floor_and_was_condemned_by_an_old_entry",
    ),
    _rule(
        "a list goes while some of its objects are left",
        GARBAGE,
        "one.is_open = True",
        "one.is_open = False",
        f"{GARBAGE_TESTS}::test_a_list_goes_when_none_of_its_objects_is_left",
    ),
    _rule(
        "snapshots go although the newest are damaged",
        GARBAGE,
        "elif not self._sound:",
        "elif False:",
        f"{GARBAGE_TESTS}::test_snapshots_go_below_the_two_newest_and_the_floor",
    ),
    _rule(
        "files of a range that was replaced are in use for ever",
        LIVE,
        "index.rows_from(partition, live, live.start)",
        "index.rows_from(partition, OffsetRange(0, 2**62), 0)",
        "tests/unit/verify/test_live.py::test_the_files_of_a_range_that_was_replaced_are_not_live",
    ),
    _rule(
        "rows of one key come in two parts",
        "txnformat/verify/spool.py",
        "self._held[_part(row[0])] +=",
        "self._held[0] +=",
        "tests/unit/verify/test_spool.py::test_all_rows_come_back_and_those_of_a_key_in_order_and_in_one_part",
    ),
    _rule(
        "a listing that broke off is counted as well",
        "txnformat/admin/vacuum.py",
        "        listed = _Listed()\n        spool = Spool()\n",
        "        listed = _Listed()\n        spool = self.__dict__.setdefault('spool', Spool())\n",
        f"{SPOOLED}::test_a_listing_that_ends_in_the_middle_begins_anew_and_counts_nothing_twice",
    ),
)
ERASING = (
    _rule(
        "a certificate does not wait for a vacuum",
        ERASURE,
        "or not known.needed_floor <= action.floor <= state.vacuum_floor",
        "or action.floor > state.vacuum_floor",
        f"{UNIT}/test_erasures.py::test_a_certificate_needs_a_vacuum_above_the_last_replace",
    ),
    _rule(
        "a certificate of what is not rewritten yet",
        ERASURE,
        "or known.rewritten_entry < 0\n        or not",
        "or not",
        f"{UNIT}/test_erasures.py::test_there_is_no_certificate_before_everything_is_rewritten",
    ),
    _rule(
        "an erasure does not wait for transactions that had begun",
        ERASED,
        "if known.ends_entry < 0 and not begun_by(state, known.entry):",
        "if known.ends_entry < 0:",
        f"{UNIT}/test_erasures.py::test_transactions_that_had_begun_are_waited_for",
    ),
    _rule(
        "an erasure goes back",
        ERASURE,
        "if not reached.get(part.partition, 0) <= part.end_offset <= listed:",
        "if part.end_offset > listed:",
        f"{UNIT}/test_erasures.py::test_an_advance_stays_between_the_last_one_and_what_is_listed",
    ),
    _rule(
        "a complete erasure is abandoned",
        ERASURE,
        "if known.complete_entry >= 0:\n        raise",
        "if known.complete_entry > state.entry:\n        raise",
        f"{UNIT}/test_erasures.py::test_an_erasure_is_abandoned_in_a_later_entry_and_never_when_it_is_complete",
    ),
)

UPKEEP_RULES = (*COMPACTION, *REMOVAL, *TRUNCATION, *VACUUM, *ERASING)
