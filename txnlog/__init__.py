"""The names that users import.

What needs pyarrow is loaded when it is first used, so that ``txnlog --help`` answers at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from txnformat.errors import (
    AckConflictError,
    CommitStateUnknownError,
    ConflictError,
    CorruptDataError,
    FormatError,
    InternalError,
    InvalidInputError,
    InvalidTransactionStateError,
    NotFoundError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    ProducerIdConflictError,
    SequenceError,
    StaleAppVersionError,
    StorageError,
    TransactionTimedOutError,
    TxnLogError,
    UnknownProducerIdError,
    UnsupportedFeatureError,
    UnsupportedStoreError,
    UploadExpiredError,
)
from txnformat.types import IsolationLevel, Outcome
from txnformat.version import __version__

if TYPE_CHECKING:
    from spark_datasource.write.transaction import SparkTransaction
    from txnformat.admin.describe import LogDescription, PartitionOffsets, TransactionOutcome
    from txnformat.admin.groups import DeletedGroup, GroupReset, Groups
    from txnformat.admin.history import HistoryEntry
    from txnformat.admin.metrics import LogMetrics
    from txnformat.admin.prepared import PreparedTransaction
    from txnformat.admin.subscriptions import (
        Backlog,
        SubscriptionDetails,
        SubscriptionListing,
        Subscriptions,
    )
    from txnformat.admin.transactions import EndedTransaction, EndingOutcome, Transactions
    from txnformat.consumers.consumer import Consumer
    from txnformat.consumers.group_offsets import GroupMetadata, OffsetAndMetadata
    from txnformat.consumers.subscription import Subscription
    from txnformat.core.groups.listing import GroupDetails, GroupListing, GroupPosition
    from txnformat.core.transactions.hanging import HangingReport
    from txnformat.core.transactions.lingering import LingeringTransaction
    from txnformat.core.transactions.listing import (
        ProducerOfPartition,
        TransactionDetails,
        TransactionListing,
    )
    from txnformat.log import TxnLog
    from txnformat.log_reads import LogSnapshot
    from txnformat.values import WholeRecord, read_values
    from txnformat.verify.report import VerifyNote, VerifyProblem, VerifyProgress, VerifyReport
    from writers.producer import Producer
    from writers.transaction import CommitInfo, ProducerStatus, Transaction

__all__ = [
    "AckConflictError",
    "Backlog",
    "CommitInfo",
    "CommitStateUnknownError",
    "ConflictError",
    "Consumer",
    "CorruptDataError",
    "DeletedGroup",
    "EndedTransaction",
    "EndingOutcome",
    "FormatError",
    "GroupDetails",
    "GroupListing",
    "GroupMetadata",
    "GroupPosition",
    "GroupReset",
    "Groups",
    "HangingReport",
    "HistoryEntry",
    "InternalError",
    "InvalidInputError",
    "InvalidTransactionStateError",
    "IsolationLevel",
    "LingeringTransaction",
    "LogDescription",
    "LogMetrics",
    "LogSnapshot",
    "NotFoundError",
    "OffsetAndMetadata",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceError",
    "Outcome",
    "PartitionOffsets",
    "PreparedTransaction",
    "Producer",
    "ProducerFencedError",
    "ProducerIdConflictError",
    "ProducerOfPartition",
    "ProducerStatus",
    "SequenceError",
    "SparkTransaction",
    "StaleAppVersionError",
    "StorageError",
    "Subscription",
    "SubscriptionDetails",
    "SubscriptionListing",
    "Subscriptions",
    "Transaction",
    "TransactionDetails",
    "TransactionListing",
    "TransactionOutcome",
    "TransactionTimedOutError",
    "Transactions",
    "TxnLog",
    "TxnLogError",
    "UnknownProducerIdError",
    "UnsupportedFeatureError",
    "UnsupportedStoreError",
    "UploadExpiredError",
    "VerifyNote",
    "VerifyProblem",
    "VerifyProgress",
    "VerifyReport",
    "WholeRecord",
    "__version__",
    "read_values",
]

# The names imported above for type checkers only, and the modules that they are loaded from. New names that need
# pyarrow go to both places; tests/meta/test_facade.py tells what is missing.
_LATER = {
    "Backlog": "txnformat.admin.subscriptions",
    "CommitInfo": "writers.transaction",
    "Consumer": "txnformat.consumers.consumer",
    "DeletedGroup": "txnformat.admin.groups",
    "EndedTransaction": "txnformat.admin.transactions",
    "EndingOutcome": "txnformat.admin.transactions",
    "GroupDetails": "txnformat.core.groups.listing",
    "GroupListing": "txnformat.core.groups.listing",
    "GroupMetadata": "txnformat.consumers.group_offsets",
    "GroupPosition": "txnformat.core.groups.listing",
    "GroupReset": "txnformat.admin.groups",
    "Groups": "txnformat.admin.groups",
    "HangingReport": "txnformat.core.transactions.hanging",
    "HistoryEntry": "txnformat.admin.history",
    "LingeringTransaction": "txnformat.core.transactions.lingering",
    "LogDescription": "txnformat.admin.describe",
    "LogMetrics": "txnformat.admin.metrics",
    "LogSnapshot": "txnformat.log_reads",
    "OffsetAndMetadata": "txnformat.consumers.group_offsets",
    "PartitionOffsets": "txnformat.admin.describe",
    "PreparedTransaction": "txnformat.admin.prepared",
    "Producer": "writers.producer",
    "ProducerOfPartition": "txnformat.core.transactions.listing",
    "ProducerStatus": "writers.transaction",
    "SparkTransaction": "spark_datasource.write.transaction",
    "Subscription": "txnformat.consumers.subscription",
    "SubscriptionDetails": "txnformat.admin.subscriptions",
    "SubscriptionListing": "txnformat.admin.subscriptions",
    "Subscriptions": "txnformat.admin.subscriptions",
    "Transaction": "writers.transaction",
    "TransactionDetails": "txnformat.core.transactions.listing",
    "TransactionListing": "txnformat.core.transactions.listing",
    "TransactionOutcome": "txnformat.admin.describe",
    "Transactions": "txnformat.admin.transactions",
    "TxnLog": "txnformat.log",
    "VerifyNote": "txnformat.verify.report",
    "VerifyProblem": "txnformat.verify.report",
    "VerifyProgress": "txnformat.verify.report",
    "VerifyReport": "txnformat.verify.report",
    "WholeRecord": "txnformat.values",
    "read_values": "txnformat.values",
}


def __getattr__(name: str) -> Any:
    module = _LATER.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
