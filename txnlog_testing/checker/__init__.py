"""The history checker: what clients saw of a log, judged by the anomaly classes of transactional logs.

:mod:`~txnlog_testing.checker.vocabulary` says what a history is, :mod:`~txnlog_testing.checker.recording` writes and reads it,
:mod:`~txnlog_testing.checker.anomalies` what can be wrong with it, and :func:`check_history` judges it.
"""

from txnlog_testing.checker.anomalies import (
    DEFINITIONS,
    KAFKA,
    TXNLOG,
    Allowances,
    Anomaly,
    AnomalyClass,
    Definition,
    Report,
)
from txnlog_testing.checker.check import check_history
from txnlog_testing.checker.codec import event_from_json, event_to_json
from txnlog_testing.checker.recording import (
    HistoryWriter,
    Recording,
    merge_histories,
    read_history,
    records_of,
)
from txnlog_testing.checker.vocabulary import (
    CommitOffsets,
    Event,
    EventType,
    Function,
    Key,
    MicroOperation,
    Order,
    Poll,
    ReadOffsets,
    Send,
    StableOffset,
    TransactionTag,
    Value,
    partition_key,
    topic_of,
)

__all__ = [
    "DEFINITIONS",
    "KAFKA",
    "TXNLOG",
    "Allowances",
    "Anomaly",
    "AnomalyClass",
    "CommitOffsets",
    "Definition",
    "Event",
    "EventType",
    "Function",
    "HistoryWriter",
    "Key",
    "MicroOperation",
    "Order",
    "Poll",
    "ReadOffsets",
    "Recording",
    "Report",
    "Send",
    "StableOffset",
    "TransactionTag",
    "Value",
    "check_history",
    "event_from_json",
    "event_to_json",
    "merge_histories",
    "partition_key",
    "read_history",
    "records_of",
    "topic_of",
]
