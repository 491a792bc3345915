"""txnlog: a transactional log on object storage, native to Spark, with no broker.

The names that users import, and nothing else; :mod:`txnformat` and :mod:`writers` hold what they do.
"""

from __future__ import annotations

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
from txnformat.log import TxnLog
from txnformat.types import IsolationLevel, Outcome
from txnformat.version import __version__
from writers.producer import CommitInfo, Producer

__all__ = [
    "AckConflictError",
    "CommitInfo",
    "CommitStateUnknownError",
    "ConflictError",
    "CorruptDataError",
    "FormatError",
    "InternalError",
    "InvalidInputError",
    "InvalidTransactionStateError",
    "IsolationLevel",
    "NotFoundError",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceError",
    "Outcome",
    "Producer",
    "ProducerFencedError",
    "ProducerIdConflictError",
    "SequenceError",
    "StaleAppVersionError",
    "StorageError",
    "TransactionTimedOutError",
    "TxnLog",
    "TxnLogError",
    "UnknownProducerIdError",
    "UnsupportedFeatureError",
    "UnsupportedStoreError",
    "UploadExpiredError",
    "__version__",
]
