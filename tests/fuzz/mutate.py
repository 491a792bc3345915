"""Changed inputs of three kinds: bytes, texts, and JSON documents whose members are exchanged for hostile
ones."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

__all__ = ["Mutate", "changed_bytes", "changed_json", "changed_text", "only_seed"]

Mutate = Callable[[bytes, Random], bytes]

HOSTILE: Sequence[Any] = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        2**31,
        2**53 + 1,
        2**63 - 1,
        2**63,
        -(2**63) - 1,
        2**64,
        10**40,
        0.5,
        1e308,
    ),
    *(float("nan"), float("inf"), -0.0, "", "0", "\0", "\ud800", "\u0663", "é", "../..", "a" * 300, "\u202e"),
    *([], {}, [[]], [{}], {"": None}, [None], [0] * 50, {"type": "struct"}, {"list": "int64"}),
)
PIECES = (
    *(
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        '"',
        "'",
        "`",
        "\\",
        "\0",
        "\n",
        "--",
        "/*",
        ";",
        ",",
        ".",
        ":",
        "%",
        "_",
        "\u0663",
    ),
    *(
        "9" * 30,
        "1e999999999",
        "-",
        "NaN",
        "NULL",
        " AND ",
        " OR ",
        " NOT ",
        " IN ",
        " LIKE ",
        "TIMESTAMP '",
        "\u202e",
    ),
    *(
        "2026-01-31T12:00:00Z",
        "\ud800",
        "0x",
        "(" * 40,
        "[" * 200,
        "é",
        "\x1b[2J",
        "1E-999999999",
        "00",
        "+",
        "=",
        "9" * 5000,
    ),
)


def only_seed(_data: bytes, rng: Random) -> bytes:
    """Return eight bytes from which a target makes its input itself."""
    return rng.randbytes(8)


def changed_bytes(data: bytes, rng: Random) -> bytes:
    """Return data with one to four places changed, cut, doubled or put in."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        at = rng.randrange(len(changed) + 1)
        match rng.randrange(6):
            case 0 if at < len(changed):
                changed[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(changed):
                changed[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            case 2:
                del changed[at : at + rng.choice((1, 2, 8, 64))]
            case 3:
                changed[at:at] = rng.randbytes(rng.choice((1, 4, 8)))
            case 4:
                end = at + rng.randrange(1, 32)
                changed[at:at] = changed[at:end]
            case _:
                number = rng.choice((0, 1, 2**31 - 1, 2**32 - 1, 2**63 - 1, rng.getrandbits(32)))
                changed[at : at + 8] = number.to_bytes(8, rng.choice(("little", "big")))
    return bytes(changed)


def changed_text(data: bytes, rng: Random) -> bytes:
    """Return a text with pieces put in, cut, doubled or exchanged; half of a surrogate pair may be in it."""
    try:
        text = data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return changed_bytes(data, rng)
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(text) + 1)
        end = at + rng.randrange(12)
        match rng.randrange(5):
            case 0:
                text = text[:at] + rng.choice(PIECES) + text[at:]
            case 1:
                text = text[:at] + rng.choice(PIECES) + text[end:]
            case 2:
                text = text[:at] + text[end:]
            case 3:
                text = text[:at] + text[at:end] * rng.choice((2, 3, 30)) + text[end:]
            case _:
                text = (
                    text[:at] + chr(rng.choice((rng.randrange(128), rng.randrange(0x3000)))) + text[at + 1 :]
                )
    return text[:20_000].encode("utf-8", "surrogatepass")


def changed_json(data: bytes, rng: Random) -> bytes:
    """Return a document with one to three members exchanged, left out, repeated or nested; or its text
    changed."""
    if rng.randrange(10) == 0:
        return changed_bytes(data, rng)
    try:
        document = json.loads(data)
    except ValueError:
        return changed_bytes(data, rng)
    try:
        for _ in range(rng.choice((1, 1, 2, 3))):
            document = _changed(document, rng)
        return json.dumps(document).encode()
    except RecursionError:  # nested, copied into itself, and nested again
        return changed_bytes(data, rng)


def _changed(document: Any, rng: Random) -> Any:
    places: list[tuple[Any, Any]] = []
    waiting = [document]
    while waiting and len(places) < 5_000:
        node = waiting.pop()
        if isinstance(node, dict | list):
            for key in node if isinstance(node, dict) else range(len(node)):
                places.append((node, key))
                waiting.append(node[key])
    if not places:
        return rng.choice(HOSTILE)
    node, key = rng.choice(places)
    match rng.randrange(6):
        case 0:
            del node[key]
        case 1:
            other, place = rng.choice(places)
            node[key] = copy.deepcopy(other[place]) if place in _keys(other) else None
        case 2:
            value = copy.deepcopy(node[key])
            if isinstance(node, dict):
                node[rng.choice(("x", "", str(key) * 2, "\u0663"))] = value
            else:
                node.extend([value] * rng.choice((1, 2, 50)))
        case 3 if isinstance(node[key], int) and not isinstance(node[key], bool):
            node[key] += rng.choice((-1, 1, 2**31, -(2**31), 2**62))
        case 4:
            for _ in range(rng.choice((1, 3, 70, 300))):
                node[key] = [node[key]] if rng.randrange(2) else {"a": node[key]}
        case _:
            node[key] = copy.deepcopy(rng.choice(HOSTILE))
    return document


def _keys(node: Any) -> Any:
    return node if isinstance(node, dict) else range(len(node))
