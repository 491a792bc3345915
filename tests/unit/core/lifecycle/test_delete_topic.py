"""A topic leaves the state with all that is its own, and its name may be given again."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.unit.core.full_state import checkpoint_of
from tests.unit.core.lifecycle.checked_log import AUDIT, AUDIT_KEY, KEY, both, log_of
from tests.unit.core.memory_log import ABORT, COMMIT, ORDERS, Log, rows
from tests.unit.core.transactions.staging import staged
from txnformat.core.app_versions.state import Content, TopicContent
from txnformat.core.assemble import assemble
from txnformat.core.entry import CommitEntry, sha256_hex
from txnformat.core.fold import apply, apply_operation
from txnformat.core.folding import At
from txnformat.core.groups.operations import OffsetCommit, PositionCommit
from txnformat.core.intents import (
    Acks,
    Action,
    AllocateIds,
    AppRef,
    Done,
    EnableFeatures,
    GroupOffsets,
    Included,
    Intent,
    MarkVacuum,
    OpenProducer,
    ProducerRef,
    RemoveTopic,
    SealSegments,
    TrimTopic,
    Undecidable,
    Write,
)
from txnformat.core.invariants import check_state, check_whole
from txnformat.core.lifecycle.operations import DeleteTopic, Trim, TrimmedPartition
from txnformat.core.operations import AppVersion, CreateTopic, EndTxn, Operation
from txnformat.core.records.state import PartitionState
from txnformat.core.snapshot.codec import decode_snapshot, encode_snapshot, state_digest
from txnformat.core.snapshot.state import encode_state
from txnformat.core.state import FEATURES, INTENT_WINDOW_ENTRIES, LIFECYCLE, IntentWindow, LogState
from txnformat.core.subscriptions.operations import (
    AckedPartition,
    AckMode,
    CreateSubscription,
    DeleteSubscription,
)
from txnformat.core.transactions.state import TransactionStatus
from txnformat.errors import (
    ConflictError,
    CorruptDataError,
    InvalidTransactionStateError,
    NotFoundError,
    ProducerFencedError,
    UnsupportedFeatureError,
)
from txnformat.persistent import Columns, replace
from txnformat.types import Outcome
from txnlog_testing.seal_of import seal_of
from txnlog_testing.strategies import in_table, make_append, make_topic

DELETE = RemoveTopic(ORDERS.topic_id)
FORCED = replace(DELETE, force=True)
BILLING = (ORDERS.topic_id, "billing")


def plain(partition: PartitionState) -> list[object]:
    """Return a partition as values that compare, whatever its chunks are."""
    fields = structs.astuple(partition)
    return [one.array().tolist() if isinstance(one, Columns) else one for one in fields]


def ids_in(state: LogState) -> set[str]:
    """Return the topic ids that a snapshot names, in its own words."""
    named = str(encode_state(state))
    return {one.topic_id for one in (ORDERS, AUDIT) if one.topic_id in named}


def test_everything_of_the_topic_leaves_the_state_and_the_rest_stays() -> None:
    log = log_of(OpenProducer("etl"), AllocateIds("process"), CreateSubscription(*BILLING))
    log.commit(Write(log.producer(), both(), COMMIT))  # type: ignore[arg-type]
    log.commit(SealSegments(seal_of(log.state)))
    log.commit(Write(ProducerRef(1, 0), rows(content="plain")))
    log.commit(Write(ProducerRef(2, 0), both(content="plain too")))  # type: ignore[arg-type]
    offsets = (OffsetCommit(*KEY, 1), OffsetCommit(*AUDIT_KEY, 1))
    log.commit(Write(offsets=(GroupOffsets("readers", offsets, (PositionCommit("x", "y"),)),)))
    log.commit(Write(acks=(Acks(*BILLING, AckMode.INDIVIDUAL, (AckedPartition(0, ((0, 1),)),)),)))
    before = log.state
    assert set(before.producers) == {1, 2}
    assert isinstance(log.commit(DELETE), Included)
    after = log.state
    assert (set(after.topics), after.topic_ids) == ({AUDIT.topic_id}, {"audit": AUDIT.topic_id})
    assert set(after.partitions) == {AUDIT_KEY}
    assert plain(after.partition(AUDIT_KEY)) == plain(before.partition(AUDIT_KEY))
    assert after.partition_count == AUDIT.partitions
    assert (len(after.segments), after.segments.end) == (1, 2)
    assert len(after.files) == 1
    assert set(after.producers) == {2}, "what it has in the other topic is remembered"
    assert after.subscriptions == {}
    assert set(after.groups["readers"].committed) == {AUDIT_KEY, "x"}
    assert (after.deleted[ORDERS.directory].topic_id, after.deleted[ORDERS.directory].entry) == (
        ORDERS.topic_id,
        after.entry,
    )
    assert ids_in(replace(after, deleted={})) == {AUDIT.topic_id}
    assert isinstance(
        log.commit(Write(ProducerRef(1, 0), (make_append(AUDIT, {0: (0, 1)}, content="n"),))), Included
    )


def test_a_log_must_be_upgraded_first() -> None:
    assert isinstance(Log(ORDERS).refusal(DELETE), UnsupportedFeatureError)


def test_a_topic_that_is_not_there_is_gone_and_one_that_was_deleted_is_done() -> None:
    log = log_of()
    error = log.refusal(RemoveTopic("00000000-0000-4000-8000-000000000000"))
    assert isinstance(error, NotFoundError)
    assert error.kind == "topic-gone"
    log.commit(DELETE)
    assert log.commit(DELETE) == Done(log.state.entry)


def touched(log: Log, how: str) -> ProducerRef:
    """Touch ``orders`` in a transaction that is not decided, and ``audit``, too."""
    log.commit(OpenProducer("etl"))
    producer = log.producer()
    audit = make_append(AUDIT, {0: (0, 2)}, content="audit")
    match how:
        case "append":
            log.commit(Write(producer, (*rows(), audit)))
        case "stage":
            log.commit(Write(producer, (*staged(), in_table(audit)), deferred=True))
        case "positions":
            log.commit(Write(producer, (audit,)))
            log.commit(Write(producer, offsets=(GroupOffsets("readers", (OffsetCommit(*KEY, 0),)),)))
        case _:
            log.commit(CreateSubscription(*BILLING))
            log.commit(Write(appends=rows(-1)))
            log.commit(Write(producer, (audit,)))
            part = AckedPartition(0, ((0, 1),))
            log.commit(Write(producer, acks=(Acks(*BILLING, AckMode.INDIVIDUAL, (part,)),)))
    return producer


WAYS = ("append", "stage", "positions", "acks")


@pytest.mark.parametrize("how", WAYS)
def test_an_open_transaction_that_touches_the_topic_holds_it_unless_forced(how: str) -> None:
    log = log_of()
    producer = touched(log, how)
    error = log.refusal(DELETE)
    assert isinstance(error, ConflictError)
    assert (error.kind, error.values["transactional_ids"]) == ("topic-in-use", ["etl"])
    verdict = log.commit(FORCED)
    assert isinstance(verdict, Included)
    assert [type(op) for op in verdict.operations] == [EndTxn, DeleteTopic]
    known = log.state.transactional_ids["etl"]
    assert (known.status, known.epoch) == (TransactionStatus.COMPLETE_ABORT, 1)
    assert log.state.partition(AUDIT_KEY).aborted_transactions == (0 if how == "stage" else 1)
    error = log.refusal(Write(producer, end=COMMIT))
    assert isinstance(error, ProducerFencedError)
    assert error.kind == "aborted-by-operator"


def test_markers_of_transactions_that_are_aborted_together_follow_each_other() -> None:
    log = log_of(OpenProducer("a"), OpenProducer("b"), OpenProducer("c"))
    for name in "abc":
        log.commit(Write(log.producer(name), both(content=name)))  # type: ignore[arg-type]
    verdict = log.commit(FORCED)
    assert isinstance(verdict, Included)
    assert log.state.partition(AUDIT_KEY).log_end == 9


def test_a_transaction_of_other_topics_does_not_hold_it() -> None:
    log = log_of(OpenProducer("etl"))
    log.commit(Write(log.producer(), (make_append(AUDIT, {0: (0, 2)}, content="audit"),)))
    verdict = log.commit(FORCED)
    assert isinstance(verdict, Included)
    assert [type(op) for op in verdict.operations] == [DeleteTopic]
    assert isinstance(log.commit(Write(log.producer(), end=COMMIT)), Included)


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
def test_a_prepared_transaction_is_given_up_by_name_and_keeps_the_rest(how: str, outcome: Outcome) -> None:
    log = log_of()
    producer = touched(log, how)
    log.commit(Write(producer, prepare=True))
    for action in (DELETE, FORCED, replace(FORCED, prepared=("other",))):
        error = log.refusal(action)
        assert isinstance(error, InvalidTransactionStateError)
        assert (error.kind, error.values["transactional_ids"]) == ("transaction-prepared", ["etl"])
    verdict = log.commit(replace(DELETE, prepared=("etl", "other")))
    assert isinstance(verdict, Included)
    assert verdict.operations == (DeleteTopic(ORDERS.topic_id, ("etl",)),), "recorded by name"
    known = log.state.transactional_ids["etl"]
    assert known.status is TransactionStatus.PREPARED
    assert not known.groups
    assert not known.subscriptions
    verdict = log.commit(Write(producer, end=outcome))
    assert isinstance(verdict, Included)
    partition = log.state.partition(AUDIT_KEY)
    if how == "stage":
        assert partition.log_end == (3 if outcome is COMMIT else 0)
    else:
        assert (partition.log_end, partition.aborted_transactions) == (3, 0 if outcome is COMMIT else 1)
    assert ids_in(replace(log.state, deleted={}, topics=log.state.topics)) <= {AUDIT.topic_id}


@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
def test_a_prepared_transaction_with_nothing_left_still_ends(outcome: Outcome) -> None:
    log = log_of(OpenProducer("etl"))
    producer = log.producer()
    log.commit(Write(producer, rows(), prepare=True))
    log.commit(replace(DELETE, prepared=("etl",)))
    verdict = log.commit(Write(producer, end=outcome))
    assert isinstance(verdict, Included)
    assert log.state.undecided == frozenset()


def test_positions_elsewhere_stay_pending_in_a_prepared_transaction() -> None:
    log = log_of(OpenProducer("etl"))
    producer = log.producer()
    offsets = (OffsetCommit(*KEY, 0), OffsetCommit(*AUDIT_KEY, 0))
    log.commit(Write(producer, offsets=(GroupOffsets("readers", offsets),), prepare=True))
    log.commit(replace(DELETE, prepared=("etl",)))
    assert set(log.state.groups["readers"].pending["etl"]) == {AUDIT_KEY}
    log.commit(Write(producer, end=COMMIT))
    assert set(log.state.groups["readers"].committed) == {AUDIT_KEY}


def test_whoever_has_its_id_is_told_that_it_is_gone() -> None:
    log = log_of(CreateSubscription(*BILLING))
    log.commit(Write(appends=rows(-1)))
    seal = SealSegments(seal_of(log.state))
    log.commit(DELETE)
    log.commit(make_topic("orders", 1))
    part = TrimmedPartition(0, 1, -1, 0, 0, 0, 0)
    for action in (
        Write(appends=rows(-1)),
        Write(offsets=(GroupOffsets("readers", (OffsetCommit(*KEY, 0),)),)),
        Write(acks=(Acks(*BILLING, AckMode.CUMULATIVE, (AckedPartition(0, position=1),)),)),
        CreateSubscription(ORDERS.topic_id, "new"),
        DeleteSubscription(*BILLING),
        TrimTopic(Trim(ORDERS.topic_id, (part,)), (0,)),
        ORDERS,
    ):
        error = log.refusal(action)
        assert isinstance(error, NotFoundError)
        assert error.kind == "topic-gone"
    error = log.refusal(seal)
    assert (type(error), error.kind) == (ConflictError, "seal-superseded")


def test_the_name_is_given_to_another_topic_but_never_the_directory() -> None:
    log = log_of()
    log.commit(DELETE)
    twin = replace(ORDERS, topic_id=ORDERS.topic_id[:8] + "-0000-4000-8000-000000000000")
    for action in (twin, Write(create=(twin,))):
        error = log.refusal(action)
        assert isinstance(error, ConflictError)
        assert (error.kind, error.values["deleted_topic_id"]) == ("directory-in-use", ORDERS.topic_id)
    with pytest.raises(CorruptDataError, match="has the directory of another topic"):
        folded(log.state, twin)
    again = make_topic("orders", 1)
    assert isinstance(log.commit(again), Included)
    assert log.state.topic("orders").topic_id == again.topic_id


def folded(state: LogState, op: Operation) -> LogState:
    return apply_operation(state, op, At(state.entry + 1, state.timestamp_ms + 1))


def test_a_deletion_that_does_not_fit_is_corrupt() -> None:
    log = log_of()
    state = log.state
    for wrong in (replace(state, topics={}), replace(state, features=FEATURES)):
        with pytest.raises(CorruptDataError, match="does not exist, or in a log without the feature"):
            folded(wrong, DeleteTopic(ORDERS.topic_id))
    producer = touched(log, "append")
    for prepared in ((), ("etl",)):
        with pytest.raises(CorruptDataError, match="touch"):
            folded(log.state, DeleteTopic(ORDERS.topic_id, prepared))
    log.commit(Write(producer, prepare=True))
    for named in ((), ("other",), ("etl", "other")):
        with pytest.raises(CorruptDataError, match="does not name"):
            folded(log.state, DeleteTopic(ORDERS.topic_id, named))


@pytest.mark.parametrize("opens_first", [True, False])
def test_an_id_that_the_deletion_aborts_is_opened_in_another_entry(opens_first: bool) -> None:
    log = log_of()
    touched(log, "append")
    actions: list[Action] = [OpenProducer("etl"), FORCED] if opens_first else [FORCED, OpenProducer("etl")]
    intents = [log.intent(action) for action in actions]
    verdicts = log.assemble(*intents).verdicts
    assert all(isinstance(verdict, Included) for verdict in verdicts.values())
    assert len(verdicts) == (2 if opens_first else 1)


# --- versions of applications -------------------------------------------------------------------------------


def version(number: int, app_id: str = "job", namespace: str = "spark-stream") -> AppRef:
    return AppRef(namespace, app_id, number)


def test_versions_name_their_topics_only_where_topics_may_be_deleted() -> None:
    log = Log(ORDERS)
    log.commit(Write(appends=rows(-1), app=version(0)))
    assert log.state.app_versions["spark-stream", "job"].topics == ()
    log.commit(EnableFeatures((LIFECYCLE,)))
    log.commit(Write(app=version(1)))
    assert log.state.app_versions["spark-stream", "job"].topics == ()
    log.commit(Write(appends=rows(-1, content="more"), app=version(2), create=(AUDIT,)))
    log.commit(Write(app=version(3)))
    assert log.state.app_versions["spark-stream", "job"].topics == tuple(
        sorted((ORDERS.topic_id, AUDIT.topic_id))
    )


@pytest.mark.parametrize("deferred", [True, False])
def test_the_version_of_a_transaction_names_the_topics_of_all_its_records(deferred: bool) -> None:
    log = log_of(OpenProducer("etl"))
    producer = log.producer()
    log.commit(Write(producer, staged() if deferred else rows(), deferred=deferred))
    log.commit(Write(producer, end=COMMIT, app=version(0)))
    assert log.state.app_versions["spark-stream", "job"].topics == (ORDERS.topic_id,)


@pytest.mark.parametrize("is_made_again", [True, False])
def test_an_application_does_not_go_on_in_another_topic_of_the_same_name(is_made_again: bool) -> None:
    log = log_of(Write(appends=rows(-1), app=version(0)))
    again = make_topic("orders", 1)
    log.commit(DELETE)
    assert log.commit(Write(appends=rows(-1), app=version(0))) == Done(3), "it was written"
    if is_made_again:
        log.commit(again)
    more = make_append(again, {0: (-1, 1)}, content="more")
    wanted = Write(appends=(more,), app=version(1), create=(again,))
    for write in (wanted, replace(wanted, app=version(0, "another"), apps_beside=(version(1),))):
        error = log.refusal(write)
        assert isinstance(error, NotFoundError)
        assert (error.kind, error.values["topic"]) == ("topic-gone", "orders")
    audit = make_append(AUDIT, {0: (-1, 1)}, content="audit")
    assert isinstance(log.commit(Write(appends=(audit,), app=version(1))), Included), (
        "other topics take its rows"
    )
    assert isinstance(log.refusal(replace(wanted, app=version(2))), NotFoundError)
    assert isinstance(log.commit(replace(wanted, app=version(0, "new"))), Included)


def test_versions_of_the_topic_go_with_it() -> None:
    apps = {
        name: version(7, name, "spark-batch") for name in ("orders/nightly", "audit/nightly", "*/nightly")
    }
    beside = (apps["orders/nightly"], apps["audit/nightly"])
    write = Write(appends=both(-1), app=apps["*/nightly"], apps_beside=beside)  # type: ignore[arg-type]
    log = log_of(write, Write(appends=rows(-1, content="more"), app=version(0, "orders/x")))
    log.commit(DELETE)
    assert {key[1] for key in log.state.app_versions} == {"audit/nightly", "*/nightly", "orders/x"}
    again = make_topic("orders", 1)
    log.commit(again)
    more = make_append(again, {0: (-1, 1)}, content="more")
    assert isinstance(log.commit(Write(appends=(more,), app=apps["orders/nightly"])), Included)


def test_a_version_beside_another_names_the_topics_of_its_content() -> None:
    """An entry with 3,000 topics has as many versions beside; each that named all of them would make it too
    large."""
    content = Content((TopicContent(ORDERS.topic_id, 1, "0" * 32),))
    own = replace(version(7, "orders/nightly", "spark-batch"), content=content)
    none = replace(version(7, "audit/nightly", "spark-batch"), content=Content(()))
    silent = version(7, "other/nightly", "spark-batch")
    write = Write(
        appends=both(-1),  # type: ignore[arg-type]
        app=version(7, "*/nightly", "spark-batch"),
        apps_beside=(own, none, silent),
    )
    log = log_of()
    verdict = log.commit(write)
    assert isinstance(verdict, Included)
    named = {op.app_id: op.topics for op in verdict.operations if isinstance(op, AppVersion)}
    everything = tuple(sorted(one.topic_id for one in write.appends))
    assert named == {
        "*/nightly": everything,
        "orders/nightly": (ORDERS.topic_id,),
        "audit/nightly": (),
        "other/nightly": everything,
    }


def test_a_version_of_a_topic_that_is_not_there_is_corrupt() -> None:
    log = log_of(Write(appends=rows(-1), app=version(0)))
    verdict = log.commit(Write(appends=rows(-1, content="more"), app=version(1)))
    assert isinstance(verdict, Included)
    gone = log_of(DELETE).state
    with pytest.raises(CorruptDataError, match="names a topic that does not exist"):
        folded(gone, verdict.operations[-1])


# --- what proves that nothing has landed --------------------------------------------------------------------


def late(log: Log, action: Action) -> object:
    """Decide an intent that was sent before the window begins."""
    intent = Intent("late", log.state.entry + INTENT_WINDOW_ENTRIES, action)
    state = replace(log.state, window=IntentWindow(log.state.entry + 2 * INTENT_WINDOW_ENTRIES))
    return assemble(state, [intent], store_time_ms=1_700_000_000_000, write_id="write").verdicts["late"]


def test_a_topic_that_is_missing_proves_nothing_once_topics_may_be_deleted() -> None:
    other = make_topic("raw")
    made = Write(appends=(make_append(other, {0: (-1, 1)}, content="raw"),), create=(other,))
    for action in (other, made):
        assert isinstance(late(Log(ORDERS), action), Included)
        assert isinstance(late(log_of(), action), Undecidable)


def test_what_was_appended_to_a_deleted_topic_is_not_known() -> None:
    log = log_of(AllocateIds("process"))
    write = Write(ProducerRef(0, 0), rows())
    log.commit(write)
    log.commit(DELETE)
    assert isinstance(late(log, write), Undecidable)


def test_a_topic_that_is_there_proves_that_its_deletion_has_not_landed() -> None:
    assert isinstance(late(log_of(), DELETE), Included)
    assert isinstance(late(log_of(DELETE), DELETE), Done)


def test_entries_of_a_deletion_and_of_what_follows_share_nothing() -> None:
    """One entry: records to the topic, its deletion, a topic of its name, records to that."""
    log = log_of(OpenProducer("etl"))
    again: CreateTopic = make_topic("orders", 1)
    more = make_append(again, {0: (-1, 1)}, content="more")
    actions: list[Action] = [
        Write(log.producer(), both()),  # type: ignore[arg-type]
        FORCED,
        again,
        Write(appends=(more,)),
    ]
    before = log.state
    intents = [log.intent(action) for action in actions]
    assembled = assemble(before, intents, store_time_ms=1_700_000_000_000, write_id="write")
    entry = assembled.entry
    assert isinstance(entry, CommitEntry)
    assert len(entry.intents) == 4
    after = apply(before, entry, sha256_hex(assembled.data))
    assert check_state(before, entry, after) == []
    assert check_whole(after) == []
    assert state_digest(after) == state_digest(assembled.after)
    assert len(after.files) == 2


# --- what is remembered, and for how long -------------------------------------------------------------------


def test_a_directory_is_remembered_until_the_floor_has_passed_its_deletion() -> None:
    log = log_of(DELETE)
    deleted = log.state.entry
    log.commit(make_topic("raw"))
    log.commit(make_topic("other"))
    log.commit(MarkVacuum(deleted))
    assert ORDERS.directory in log.state.deleted
    log.commit(MarkVacuum(deleted + 1))
    assert log.state.deleted == {}
    error = log.refusal(DELETE)
    assert isinstance(error, NotFoundError)
    assert error.kind == "topic-gone"
    twin = replace(ORDERS, topic_id=ORDERS.topic_id[:8] + "-0000-4000-8000-000000000000")
    assert isinstance(log.commit(twin), Included)


@pytest.mark.parametrize("how", ["a topic has it", "twice"])
def test_a_snapshot_whose_deleted_directories_are_not_apart_is_corrupt(how: str) -> None:
    state = log_of(DELETE).state
    gone = state.deleted[ORDERS.directory]
    held = (
        {AUDIT.directory: replace(gone, directory=AUDIT.directory)}
        if how == "a topic has it"
        else {"x": gone}
    )
    data = encode_snapshot(replace(state, deleted={**state.deleted, **held}))
    with pytest.raises(CorruptDataError, match="deleted"):
        decode_snapshot(data, checkpoint_of(state, data), state.log_id)
