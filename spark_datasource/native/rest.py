"""The rest of a table: offsets that no whole file holds, read by a DataSource of their own.

It is the DataSource ``txnlog`` with two differences. The read comes pinned, in one option, from the process
that divided it. And of each partition it reads ranges instead of one range, so that a file that was replaced
since gives no row twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.types import StructType

from spark_datasource.datasource import TxnLogDataSource
from spark_datasource.failures import clean_errors
from spark_datasource.native.ranges import clipped, clipped_sealed
from spark_datasource.options.declared import ReadOptions
from spark_datasource.options.storage import PREFIX, Storage, storage_for
from spark_datasource.options.topics import TopicChoice
from spark_datasource.read.pinning import Pin, TopicPin, log_starts
from spark_datasource.read.reader import TxnLogBatchReader
from spark_datasource.read.split_reader import read_here
from spark_datasource.read.splits import TopicPlan
from spark_datasource.schema import Projection
from spark_datasource.worker.logs import check_same, open_log
from txnformat.core.state import LogState
from txnformat.errors import InvalidInputError
from txnformat.log import TxnLog
from txnformat.types import IsolationLevel, OffsetRange

__all__ = ["PIN", "Rest", "RestReader", "TxnLogRest"]

PIN = "pin"
"""The option: :meth:`Rest.to_json`. It is no secret, and no right: it names ranges of a log that the options
can open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """The rest of a pinned read of one topic: plain values, which travel as text."""

    log_id: str
    entry: int
    topic_id: str
    name: str
    schema_id: int
    isolation: str
    ranges: Mapping[int, Sequence[OffsetRange]]
    where: str | None = None

    def to_json(self) -> str:
        """Return the value of the option."""
        ranges = [[number, *map(list, found)] for number, found in sorted(self.ranges.items())]
        values = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(values | {"ranges": ranges}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Rest:
        """Return what an option says.

        Raises InvalidInputError of kind ``invalid-option``: it was not made here.
        """
        try:
            values = json.loads(text)
            ranges = {
                int(number): tuple(OffsetRange(int(start), int(end)) for start, end in found)
                for number, *found in values.pop("ranges")
            }
            IsolationLevel(values["isolation"])
            return cls(**values, ranges=ranges)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise InvalidInputError(
                f"option {PIN} is internal, and {text!r:.100} is not a value that read_table sets",
                kind="invalid-option",
                hint='use txnlog.spark.read_table, or format("txnlog")',
            ) from None


class TxnLogRest(TxnLogDataSource):
    """``format("txnlog_rest")``: internal, for ``txnlog.spark.read_table``."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "txnlog_rest"

    @clean_errors
    def schema(self) -> StructType:
        """Refuse: the schema is always given."""
        raise InvalidInputError(
            "format txnlog_rest is internal", kind="invalid-option", hint='use format("txnlog")'
        )

    @clean_errors
    def reader(self, schema: StructType) -> RestReader:
        """Return the reader of the rest. Requests: those of following the log."""
        rest = Rest.from_json(self.options.get(PIN, ""))
        path = self.options["path"]
        storage = storage_for(path, storage_given(self.options), self.hadoop)
        return RestReader(rest, path, storage, schema)


def storage_given(options: Mapping[str, str]) -> dict[str, str]:
    """Return the storage options among a read's, without their prefix."""
    return {name[len(PREFIX) :]: value for name, value in options.items() if name.startswith(PREFIX)}


class RestReader(TxnLogBatchReader):
    """Reads the ranges of the rest.

    ``log``: where this process has it open, at the entry of the rest or a later one.
    """

    def __init__(
        self, rest: Rest, path: str, storage: Storage, schema: StructType, log: TxnLog | None = None
    ) -> None:
        log = log or open_log(path, storage)
        check_same(
            log.state,
            log.url,
            rest.log_id,
            rest.entry,
            "the log is not the one that this table was made from",
            hint="read it again",
            topic=rest.name,
        )
        topic = log.state.topic_of(rest.topic_id, "the table")
        hull = [(0, 0)] * (max(rest.ranges) + 1)
        for number, found in rest.ranges.items():
            hull[number] = found[0].start, found[-1].end
        ranges = tuple(OffsetRange(*one) for one in hull)
        pinned = TopicPin(topic.topic_id, topic.name, topic.schema.at_version(rest.schema_id), ranges)
        options = ReadOptions(
            path=path,
            topics=TopicChoice((topic.name,)),
            isolation=IsolationLevel(rest.isolation),
            where=rest.where,
            storage=storage,
        )
        super().__init__(options, Pin(rest.log_id, rest.entry, (pinned,)), schema)
        self._within = {number: tuple(found) for number, found in rest.ranges.items()}

    def rows(self, log: TxnLog, bytes_max: int) -> pa.Table | None:
        """Return the rows, read in this process as tasks would read them, in their order; None: they take
        more than ``bytes_max`` in memory.

        Requests: those of the files, and 1 GET for each batch table in range that is not kept; none to follow
        the log.
        """
        batches: list[pa.RecordBatch] = []
        size = 0
        for split in self._splits(log):
            for batch in read_here(log, split, self._options, self._schema):
                size += batch.nbytes
                if size > bytes_max:
                    return None
                batches.append(batch)
        return pa.Table.from_batches(batches, Projection((), self._schema).arrow_schema())

    def _ranges(self, state: LogState, topic: TopicPin) -> Sequence[OffsetRange]:
        """Return one range by partition; of partitions of which nothing is read an empty one, where the log
        begins by now.
        """
        starts = log_starts(state, state.topics[topic.topic_id])
        return [
            wanted if number in self._within else OffsetRange(starts[number], starts[number])
            for number, wanted in enumerate(topic.ranges)
        ]

    def _planned(self, plan: TopicPlan) -> TopicPlan:
        """Return a plan of those ranges without what lies between the ranges of the rest."""
        parts = [
            replace(part, rows=clipped(part.rows, self._within.get(part.partition, ())))
            for part in plan.partitions
        ]
        sealed = [
            piece
            for part in plan.sealed
            for piece in clipped_sealed(part, self._within.get(part.partition, ()))
        ]
        return replace(plan, partitions=parts, sealed=sealed)
