"""Which columns of a data file get dictionaries."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from txnformat.segments.column_values import DICTIONARY_ROWS_MIN, SAMPLE_ROWS
from txnformat.segments.writer import SegmentFileWriter
from txnformat.store.memory import MemoryStore

KEY = "t-00000000/data/00000000000000000000-00000000-0000-4000-8000-000000000000.parquet"


def footer_of(batches: list[pa.Table]) -> pq.FileMetaData:
    """Write batches to a file, and return what Parquet says of it."""
    store = MemoryStore()
    writer = SegmentFileWriter(store.open_write(KEY), KEY, batches[0].schema)
    for batch in batches:
        writer.write_batch(0, batch)
    writer.close()
    return pq.read_metadata(pa.BufferReader(store.get(KEY) or b""))


def test_small_files_go_without_dictionaries_and_large_ones_have_them() -> None:
    for rows, expected in ((DICTIONARY_ROWS_MIN - 1, False), (DICTIONARY_ROWS_MIN, True)):
        footer = footer_of([pa.table({"c": ["x"] * rows})])
        assert footer.row_group(0).column(0).has_dictionary_page is expected


def test_columns_whose_values_do_not_repeat_go_without_dictionaries() -> None:
    rows = SAMPLE_ROWS
    half = [number // 2 for number in range(rows)]
    more = [*half[:-1], rows]
    table = pa.table(
        {
            "half": half,
            "more than half": more,
            "nulls count for nothing": pa.array([None] * (rows - 2) + [1, 2], pa.int64()),
            "struct": pa.array([{"alike": 1, "own": number} for number in range(rows)]),
            "list": pa.array([[number, number] for number in range(rows)]),
            "map": pa.array(
                [[("key", float(number))] for number in range(rows)], pa.map_(pa.string(), pa.float64())
            ),
            "no values": pa.array([[] for _ in range(rows)], pa.list_(pa.string())),
        }
    )
    group = footer_of([table]).row_group(0)
    columns = [group.column(index) for index in range(group.num_columns)]
    assert {column.path_in_schema: column.has_dictionary_page for column in columns} == {
        "half": True,
        "more than half": False,
        "nulls count for nothing": False,
        "struct.alike": True,
        "struct.own": False,
        "list.list.element": True,
        "map.key_value.key": True,
        "map.key_value.value": False,
        "no values.list.element": True,
    }


def test_only_the_first_rows_of_the_first_batch_say_which_columns_get_dictionaries() -> None:
    alike, own = [1] * SAMPLE_ROWS, list(range(SAMPLE_ROWS))
    footer = footer_of([pa.table({"c": alike + own + own}), pa.table({"c": own})])
    assert [footer.row_group(index).column(0).has_dictionary_page for index in (0, 1)] == [True, True]
