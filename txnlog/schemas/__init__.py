"""Schemas of topics from those of other systems, and back: Avro, JSON Schema, Protobuf, Arrow, Parquet,
Spark's DDL and JSON.

Start reading in ``conversion`` (:func:`read_schema`, :func:`parse_schema`, :func:`export_schema`).

* Pure: ``formats`` (which form a file has), ``avro``, ``json_schema``, ``protobuf``, ``ddl`` (Spark's DDL and
  JSON), ``walk`` (problems and bounds).
* With libraries of others: ``parsing`` (Avro and Protobuf as fastavro and protobuf have them; also for
  :mod:`txnlog.kafka`).
* With other processes: ``protoc`` (Protobuf's compiler), and ``txnlog.foreign_files`` for Arrow and Parquet.

The extra ``schemas`` has what Avro and Protobuf need.

May import: ``txnformat``, and ``txnlog.foreign_files``.
"""

from txnlog.schemas.conversion import export_schema, growth, parse_schema, read_schema

__all__ = ["export_schema", "growth", "parse_schema", "read_schema"]
