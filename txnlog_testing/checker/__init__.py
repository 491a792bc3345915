"""The history checker: what clients saw of a log, judged by the anomaly classes of transactional logs.

* ``vocabulary``: the events of a history; ``codec`` and ``recording`` write and read them. Start reading
  here.
* ``anomalies``: the classes of anomalies, and the report; ``check``: :func:`check_history`, all classes, one
  report.
* ``evidence`` infers from a history who wrote what; ``value_checks``, ``send_checks``, ``position_checks``,
  ``cycles``, ``readers`` and ``holding`` judge it.
* ``generate`` makes valid histories, and ``mutate`` breaks them: ``mutation_list``, with ``mutated_reads``,
  ``mutated_writes`` and ``history_view``.

May import: the types and errors of ``txnformat``: the checker judges a log by what clients saw, so it calls
nothing of it.
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
