"""The names that users import."""

from txnformat.describe import LogDescription, PartitionOffsets, TransactionOutcome
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
from txnformat.history import HistoryEntry
from txnformat.log import TxnLog
from txnformat.types import IsolationLevel, Outcome
from txnformat.verify_report import VerifyNote, VerifyProblem, VerifyProgress, VerifyReport
from txnformat.version import __version__
from writers.producer import Producer
from writers.transaction import CommitInfo, ProducerStatus, Transaction

__all__ = [
    "AckConflictError",
    "CommitInfo",
    "CommitStateUnknownError",
    "ConflictError",
    "CorruptDataError",
    "FormatError",
    "HistoryEntry",
    "InternalError",
    "InvalidInputError",
    "InvalidTransactionStateError",
    "IsolationLevel",
    "LogDescription",
    "NotFoundError",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceError",
    "Outcome",
    "PartitionOffsets",
    "Producer",
    "ProducerFencedError",
    "ProducerIdConflictError",
    "ProducerStatus",
    "SequenceError",
    "StaleAppVersionError",
    "StorageError",
    "Transaction",
    "TransactionOutcome",
    "TransactionTimedOutError",
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
    "__version__",
]
