"""Schemas of keys and values: by the id that a record names, from a schema registry; or from a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from txnformat.errors import InvalidInputError, NotFoundError, StorageError, text_of
from txnlog.kafka.decoding import (
    Decode,
    Format,
    Undecodable,
    avro_decoder,
    decode_json,
    decode_text,
    framed,
    message_indexes,
    proto_value,
)
from txnlog.kafka.failures import missing_package
from txnlog.schemas.parsing import add_well_known, message_in, parsed_avro
from txnlog.schemas.protoc import compiled

__all__ = ["Registry", "decode_with"]

T = TypeVar("T")

NOT_FOUND = 404


class Registry:
    """Schemas by id; each is asked for once.

    Parameters
    ----------
    settings
        URL, or properties of confluent-kafka's client, such as ``url`` and ``basic.auth.user.info``.
    """

    def __init__(self, settings: str | Mapping[str, Any]) -> None:
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient
        except ModuleNotFoundError as error:
            raise missing_package(error) from None
        config = {"url": settings} if isinstance(settings, str) else dict(settings)
        try:
            self._client = SchemaRegistryClient({"timeout": 10, "max.retries": 2, **config})
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                f"the registry's settings are not valid: {text_of(error):.200}", kind="invalid-registry"
            ) from None
        self._decoders: dict[tuple[Format, int], Callable[[bytes], Any] | str] = {}

    def decoder(self, format_: Format) -> Decode:
        """Return what decodes data in the registry's wire format."""

        def decode(data: bytes) -> Any:
            parts = framed(data)
            found = self._decoders.get((format_, parts.schema_id))
            if found is None:
                try:
                    found = self._made(format_, parts.schema_id)
                except Undecodable as error:
                    found = str(error)
                self._decoders[format_, parts.schema_id] = found
            if isinstance(found, str):
                raise Undecodable(found)
            return found(parts.data)

        return decode

    def _made(self, format_: Format, schema_id: int) -> Callable[[bytes], Any]:
        if format_ is Format.AVRO:
            schema = self._get(schema_id)
            _check_kind(schema, "AVRO", schema_id)
            return avro_decoder(_parsed(schema.schema_str, self._references(schema, {})))
        schema = self._get(schema_id, "serialized")
        _check_kind(schema, "PROTOBUF", schema_id)
        files = self._proto_files(schema, {})
        return lambda data: _decode_indexed(files, data)

    def _get(self, schema_id: int, format_: str | None = None) -> Any:
        return _asked(lambda: self._client.get_schema(schema_id, fmt=format_), f"schema {schema_id}")

    def _version(self, reference: Any, format_: str | None = None) -> Any:
        what = f"version {reference.version} of the subject {reference.subject!r:.100}"
        ask = self._client.get_version
        return _asked(lambda: ask(reference.subject, reference.version, True, format_), what).schema

    def _references(self, schema: Any, named: dict[str, Any]) -> dict[str, Any]:
        """Return the named types that a schema takes from others."""
        for reference in schema.references or ():
            other = self._version(reference)
            self._references(other, named)
            _parsed(other.schema_str, named)
        return named

    def _proto_files(self, schema: Any, files: dict[str, Any], name: str = "") -> Any:
        """Return the descriptor of a file, with those that it imports in a pool."""
        from google.protobuf import descriptor_pool

        pool = descriptor_pool.DescriptorPool()
        add_well_known(pool)
        return self._add_file(pool, schema, name or "main.proto", set())

    def _add_file(self, pool: Any, schema: Any, name: str, seen: set[str]) -> Any:
        import base64

        from google.protobuf import descriptor_pb2

        file = descriptor_pb2.FileDescriptorProto()
        try:
            file.ParseFromString(base64.b64decode(schema.schema_str))
        except Exception as error:  # noqa: BLE001 - the registry may answer anything
            raise Undecodable(f"the registry's schema is not a Protobuf file: {error!s:.100}") from None
        file.name = name
        for reference in schema.references or ():
            if reference.name not in seen:
                seen.add(reference.name)
                self._add_file(pool, self._version(reference, "serialized"), reference.name, seen)
        return _add(pool, file)


def _asked(ask: Callable[[], T], what: str) -> T:
    """Return a registry's answer.

    Raises Undecodable: it has no such schema; StorageError (``registry-unavailable``).
    """
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    try:
        return ask()
    except SchemaRegistryError as error:
        if error.http_status_code == NOT_FOUND:
            raise Undecodable(f"the schema registry has no {what}") from None
        raise _unavailable(what, f"status {error.http_status_code}: {text_of(error):.200}") from None
    except Exception as error:
        raise _unavailable(what, f"{type(error).__name__}: {text_of(error):.200}") from error


def _unavailable(what: str, why: str) -> StorageError:
    return StorageError(
        f"the schema registry does not give {what}: {why}",
        kind="registry-unavailable",
        transient=True,
        hint="nothing was imported in this round; repeat the same call to continue",
    )


def _check_kind(schema: Any, kind: str, schema_id: int) -> None:
    got = schema.schema_type or "AVRO"
    if got != kind:
        raise Undecodable(f"schema {schema_id} of the registry is of the type {got}, not {kind}")


# --- from files ---------------------------------------------------------------------------------------------


def decode_with(
    format_: Format, registry: Registry | None, file: str | Path | None, message: str | None
) -> Decode | None:
    """Return what decodes a format; None for raw bytes.

    Parameters
    ----------
    registry
        For Avro and Protobuf, if there is no ``file``.
    file
        An Avro schema in JSON, or a ``.proto`` file or a set of Protobuf descriptors (``protoc
        --include_imports --descriptor_set_out``): data are then without a registry's head.
    message
        Full name of the Protobuf message in ``file``; by default the only one.

    Raises
    ------
    InvalidInputError
        Kind ``invalid-schema``.
    NotFoundError
        Kind ``no-such-file``.
    """
    if format_ is Format.RAW:
        return None
    if format_ is Format.TEXT:
        return decode_text
    if format_ is Format.JSON:
        return decode_json
    if file is None:
        if registry is None:
            raise InvalidInputError(
                f"{format_} needs a schema",
                kind="invalid-schema",
                hint="give registry=, or the schema's file",
            )
        return registry.decoder(format_)
    path = Path(file)
    try:
        if format_ is Format.AVRO:
            return avro_decoder(parsed_avro(_read(path).decode(), {}))
        data = compiled(path) if path.suffix.lower() == ".proto" and path.is_file() else _read(path)
        return _message_decoder(message_in(data, message))
    except InvalidInputError as error:
        raise InvalidInputError(error.what, kind=error.kind, hint=error.hint, file=str(file)) from None
    except UnicodeDecodeError:
        raise InvalidInputError("the schema is not UTF-8", kind="invalid-schema", file=str(file)) from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise NotFoundError(
            f"the schema's file cannot be read: {error.strerror or error}",
            kind="no-such-file",
            file=str(path),
        ) from None


def _parsed(text: str, named: dict[str, Any]) -> Any:
    """Return a registry's Avro schema as fastavro reads with it; its named types are added to ``named``."""
    try:
        return parsed_avro(text, named)
    except InvalidInputError as error:
        raise Undecodable(error.what) from None


def _add(pool: Any, file: Any) -> Any:
    try:
        pool.Add(file)
        return pool.FindFileByName(file.name)
    except Exception as error:  # noqa: BLE001 - of files that do not fit together
        raise Undecodable(f"the registry's Protobuf file cannot be used: {error!s:.200}") from None


def _decode_indexed(file: Any, data: bytes) -> Any:
    indexes, rest = message_indexes(data)
    names = [*file.message_types_by_name.values()]
    found = None
    for index in indexes:
        if not 0 <= index < len(names):
            raise Undecodable(f"the schema has no message at {indexes}")
        found = names[index]
        names = list(found.nested_types)
    return _message_decoder(found)(rest)


def _message_decoder(descriptor: Any) -> Decode:
    from google.protobuf import message_factory

    kind = message_factory.GetMessageClass(descriptor)

    def decode(data: bytes) -> Any:
        message = kind()
        try:
            message.ParseFromString(data)
        except Exception as error:  # noqa: BLE001 - the decoder's own class
            raise Undecodable(f"not a message {descriptor.full_name}: {error!s:.200}") from None
        return proto_value(message)

    return decode
