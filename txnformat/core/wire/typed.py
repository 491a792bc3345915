"""Documents decoded by their declarations (:class:`msgspec.Struct`): what a declaration does not name is
passed over, not built.

A value that is not as declared is CorruptDataError that names the document, the place, what was expected and
what was there. Only then the whole document is built, to look that up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Generic, NoReturn, TypeVar

import msgspec
from msgspec import Struct, inspect

from txnformat.errors import CorruptDataError, UnsupportedFeatureError

__all__ = ["Typed", "check_version", "fail"]

T = TypeVar("T", bound=Struct)
Hook = Callable[[type, Any], Any]

_ERROR = re.compile(r"(.*?)(?: - at `(?:key in )?\$([^`]*)`)?", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]|\[\.\.\.\]")


def fail(path: str, field: str, expected: str, got: object) -> NoReturn:
    """Raise CorruptDataError about a field of the object at ``path``, whose value is ``got``; UNSET when it
    is not there.
    """
    got = "nothing" if got is msgspec.UNSET else f"{got!r:.80}"
    raise CorruptDataError(
        "a field violates the format", object=path, field=field, expected=expected, got=got
    )


def check_version(what: str, newest: int, got: int, *, name: str) -> None:
    """Raise UnsupportedFeatureError of kind ``newer-format`` about the document ``name``, which is ``what``,
    if its format is later than ``newest``.
    """
    if got > newest:
        raise UnsupportedFeatureError(
            f"{what} has a newer format",
            kind="newer-format",
            hint="upgrade txnlog",
            object=name,
            expected=f"at most {newest}",
            got=got,
        )


class Typed(Generic[T]):
    """Decodes documents, or parts of them, that are declared as ``kind``: a Struct, or a union of them.

    ``hook`` is the ``dec_hook`` of msgspec: it makes values that are declared as a class of another kind.
    """

    def __init__(self, kind: Any, hook: Hook | None = None) -> None:
        self._kind = kind
        self._hook = hook
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind, dec_hook=hook)

    def decode(self, text: bytes, *, name: str) -> T:
        """Return the value of a whole plain document.

        Raises CorruptDataError (not JSON in UTF-8, or not as declared) and UnsupportedFeatureError (a field
        says a feature that this version lacks).
        """
        try:
            if not text.isascii():
                text.decode()  # the decoder does not look at texts that it passes over
            value = self._decoder.decode(text)
        except msgspec.ValidationError as error:
            raise _refused(error, self._kind, _built(text), name) from error
        except (ValueError, RecursionError) as error:
            # None: a stack of a thousand frames of the decoder tells nothing.
            raise CorruptDataError(
                "a metadata object is not JSON", object=name, expected="JSON", got=str(error)
            ) from None
        if not text.isascii() or b"\\u" in text:
            _check_texts(value, name)
        return value

    def convert(self, value: Any, *, path: str) -> T:
        """Return the value of a part that is parsed already; errors as those of :meth:`decode`."""
        try:
            converted: T = msgspec.convert(value, self._kind, dec_hook=self._hook)
        except msgspec.ValidationError as error:
            raise _refused(error, self._kind, value, path) from error
        _check_texts(converted, path)
        return converted


def _built(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


# --- errors -------------------------------------------------------------------------------------------------


def _refused(
    error: msgspec.ValidationError, kind: Any, value: Any, name: str
) -> CorruptDataError | UnsupportedFeatureError:
    """Return what is wrong with a document whose parsed value is ``value``."""
    match = _ERROR.fullmatch(str(error))
    what, path = (match[1], match[2] or "") if match else (str(error), "")
    steps = [key or int(index or 0) for key, index in _STEP.findall(path)]
    if missing := _MISSING.fullmatch(what):
        steps.append(missing[1])
    described, place, field, is_feature, is_there = inspect.type_info(kind), name, "", False, True
    for step in steps:
        described = _member_type(described, step, value)
        is_feature = _extra(described).get("feature", False)
        if isinstance(step, str):
            place, field = (f"{place}.{field}" if field else place), step
        else:
            field = f"{field}[{step}]"
        value, is_there = _member(value, step)
    if not steps:
        return CorruptDataError(
            "a metadata object is not a JSON object", object=name, expected="object", got=type(value).__name__
        )
    if is_feature and isinstance(value, str):
        return UnsupportedFeatureError(
            f"{field} is unknown to this version",
            hint="upgrade txnlog",
            object=place,
            **{field: f"{value:.80}"},
        )
    return CorruptDataError(
        "a field violates the format",
        object=place,
        field=field,
        expected=_words(described) or what,
        got=f"{value!r:.80}" if is_there else "nothing",
    )


def _member(value: Any, step: str | int) -> tuple[Any, bool]:
    if isinstance(value, dict) and step in value:
        return value[step], True
    if isinstance(value, list) and isinstance(step, int) and step < len(value):
        return value[step], True
    return None, False


def _bare(described: Any) -> Any:
    """Return a type without what is said about it, and without null."""
    while True:
        if isinstance(described, inspect.Metadata):
            described = described.type
            continue
        if isinstance(described, inspect.UnionType):
            rest = [one for one in described.types if not isinstance(one, inspect.NoneType)]
            if len(rest) == 1:
                described = rest[0]
                continue
        return described


def _member_type(described: Any, step: str | int, value: Any) -> Any:
    """Return the type of a member, None where none is declared."""
    bare = _bare(described)
    if isinstance(bare, inspect.UnionType):
        tagged = (one for one in bare.types if isinstance(one, inspect.StructType) and _is_tagged(one, value))
        bare = next(tagged, None)
    if isinstance(bare, inspect.StructType):
        return next((one.type for one in bare.fields if one.encode_name == step), None)
    if isinstance(bare, inspect.VarTupleType):
        return bare.item_type
    if isinstance(bare, inspect.TupleType) and isinstance(step, int) and step < len(bare.item_types):
        return bare.item_types[step]
    return None


def _is_tagged(described: inspect.StructType, value: Any) -> bool:
    return isinstance(value, dict) and value.get(described.tag_field) == described.tag


def _metadata(described: Any) -> Iterator[inspect.Metadata]:
    if isinstance(described, inspect.Metadata):
        yield described
        yield from _metadata(described.type)
    elif isinstance(described, inspect.UnionType):
        for one in described.types:
            yield from _metadata(one)


def _extra(described: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in _metadata(described):
        found = {**(one.extra or {}), **found}
    return found


def _words(described: Any) -> str | None:
    """Return what a type is, in words; None for a type that has none."""
    for one in _metadata(described):
        if description := (one.extra_json_schema or {}).get("description"):
            return str(description)
    bare = _bare(described)
    if isinstance(bare, inspect.IntType):
        return f"integer from {bare.ge} to {bare.le}"
    if isinstance(bare, inspect.StrType):
        most = _extra(described).get("bytes_max", bare.max_length)
        return (
            f"text of {bare.min_length} to {most} bytes"
            if bare.min_length
            else f"text of at most {most} bytes"
        )
    if isinstance(bare, inspect.EnumType):
        return " or ".join(str(one.value) for one in bare.cls)
    if isinstance(bare, inspect.VarTupleType | inspect.TupleType):
        return "list"
    if isinstance(bare, inspect.UnionType):
        return "object" if any(isinstance(one, inspect.StructType) for one in bare.types) else None
    return "object" if isinstance(bare, inspect.StructType) else None


# --- texts --------------------------------------------------------------------------------------------------


def _check_texts(value: Struct, path: str) -> None:
    """Raise CorruptDataError about a text of too many bytes: a declaration can only bound the characters."""
    texts, inner = _places_of_texts(type(value))
    for name, bytes_max, words in texts:
        text = getattr(value, name)
        if isinstance(text, str) and len(text) > bytes_max // 4 and len(text.encode()) > bytes_max:
            fail(path, name, words, text)
    for name in inner:
        found = getattr(value, name)
        if isinstance(found, tuple):
            for index, one in enumerate(found):
                _check_texts(one, f"{path}.{name}[{index}]")
        elif isinstance(found, Struct):
            _check_texts(found, f"{path}.{name}")


@cache
def _places_of_texts(cls: type[Struct]) -> tuple[tuple[tuple[str, int, str], ...], tuple[str, ...]]:
    """Return the fields of a Struct that are texts with a bound of bytes, and those that hold such
    Structs.
    """
    described = inspect.type_info(cls)
    assert isinstance(described, inspect.StructType)
    texts, inner = [], []
    for field in described.fields:
        if bytes_max := _extra(field.type).get("bytes_max"):
            texts.append((field.name, bytes_max, _words(field.type) or ""))
        elif any(any(_places_of_texts(one)) for one in _structs(field.type)):
            inner.append(field.name)
    return tuple(texts), tuple(inner)


def _structs(described: Any) -> Iterator[type[Struct]]:
    bare = _bare(described)
    if isinstance(bare, inspect.StructType):
        yield bare.cls
    elif isinstance(bare, inspect.UnionType):
        for one in bare.types:
            yield from _structs(one)
    elif isinstance(bare, inspect.VarTupleType):
        yield from _structs(bare.item_type)
