"""Schemas of Avro and Protobuf as the libraries of these systems have them: fastavro, protobuf."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from txnformat.errors import UnsupportedFeatureError
from txnlog.schemas.walk import invalid

__all__ = ["add_well_known", "message_in", "parsed_avro"]


def parsed_avro(text: str, named: dict[str, Any]) -> Any:
    """Return an Avro schema as fastavro reads with it; its named types are added to ``named``.

    Raises InvalidInputError (``invalid-schema``); UnsupportedFeatureError (``missing-package``).
    """
    try:
        from fastavro import parse_schema
    except ModuleNotFoundError as error:
        raise _missing_package(error, "Avro") from None
    try:
        return parse_schema(json.loads(text), named_schemas=named)
    except Exception as error:  # noqa: BLE001 - fastavro raises whatever its parts raise
        raise invalid(f"not an Avro schema: {type(error).__name__}: {error!s:.200}") from None


def message_in(data: bytes, message: str | None) -> Any:
    """Return the descriptor of a message in a set of Protobuf descriptors.

    ``message``: its full name; None: the only message of the last file, which is the one that the set was
    made for. Raises InvalidInputError (``invalid-schema``); UnsupportedFeatureError (``missing-package``).
    """
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool
    except ModuleNotFoundError as error:
        raise _missing_package(error, "Protobuf") from None
    files = descriptor_pb2.FileDescriptorSet()
    pool = descriptor_pool.DescriptorPool()
    try:
        files.ParseFromString(data)
        add_well_known(pool, {file.name for file in files.file})
        for file in files.file:
            pool.Add(file)
    except Exception as error:  # noqa: BLE001 - of a file that is none
        raise invalid(f"not a set of Protobuf descriptors: {error!s:.200}") from None
    wanted = _only_message(files) if message is None else message
    try:
        return pool.FindMessageTypeByName(wanted)
    except KeyError:
        raise invalid(f"the file has no message {wanted!r:.100}; it has {_messages(files)}") from None


def _only_message(files: Any) -> str:
    """Return the name of the only message of the last file."""
    names = [
        f"{file.package}.{one.name}".lstrip(".") for file in files.file[-1:] for one in file.message_type
    ]
    if not names:
        raise invalid(f"the file has no message; say which with its full name: {_messages(files)}")
    if len(names) > 1:
        raise invalid(f"the file has {len(names)} messages; say which: {', '.join(sorted(names)):.300}")
    return names[0]


def _messages(files: Any) -> str:
    """Return the names of the messages of a set, without those that every schema may import."""
    own = (file for file in files.file if file.package != "google.protobuf")
    names = sorted(f"{file.package}.{one.name}".lstrip(".") for file in own for one in file.message_type)
    return ", ".join(names)[:300] or "none"


def add_well_known(pool: Any, but: Collection[str] = ()) -> None:
    """Give a pool the files that every Protobuf schema may import; ``but``: names of those that it gets in
    another way.
    """
    from google.protobuf import (
        any_pb2,
        descriptor_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )

    for module in (any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2):
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        if file.name not in but:
            pool.Add(file)


def _missing_package(error: ModuleNotFoundError, form: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"a schema of {form} needs a package that is not installed: {(error.name or '').partition('.')[0]}",
        kind="missing-package",
        hint="pip install 'txnlog[schemas]' for the Python that runs this",
    )
