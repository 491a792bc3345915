"""Secrets in text that others write: causes of errors, and log lines of the libraries beneath the S3 adapter.

botocore logs, at level DEBUG, every header that it sends, the session token among them, and bodies of answers
that hand out credentials. :func:`guard_loggers` puts a filter on these libraries' loggers; it costs nothing
unless a line is logged.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable
from html import escape
from typing import Any
from urllib.parse import quote

from txnformat.errors import TxnLogError
from txnformat.forking import renewed

__all__ = ["guard_loggers", "hidden", "hide_in", "masked", "remember", "remember_credentials"]

MASK = "***"
GUARDED = (
    *("botocore", "aiobotocore", "boto3", "s3transfer", "s3fs", "fsspec", "aiohttp", "urllib3", "asyncio"),
    "txnlog",
)
"""The loggers whose lines are masked, each with all below it."""

REMEMBERED_MAX = 64
"""Values of options that are searched for; beyond that the oldest are forgotten. Named ones are found
without."""

CHARS_MIN = 4
"""Shorter values are not searched for: they are no secrets, and every line has them."""

ANYWHERE_CHARS_MIN = 8
"""From here on (inclusive) a value is masked wherever it stands. A shorter one may be a part of words: masked
there too it would garble the text, and show what it is. So it is masked where no letter, digit or underscore
is before or behind it."""

ESCAPES_MAX = 16
"""Backslashes that may stand for one (inclusive): a text that was escaped four times."""

_SAME = re.compile(r"[\w.~:+=%!@#$^*(){}\[\]|;,? -]*", re.ASCII)
"""Texts that every notation leaves as they are."""
_PART = re.compile(rf"{_SAME.pattern[:-1]}+|\\+|.", re.ASCII | re.DOTALL)

_NAMED = re.compile(
    r"""((?:(?:x-amz-security-token|x-amz-s3session-token|x-aws-ec2-metadata-token|secret_?access_?key|session_?token
    |access_?key_?id|web_?identity_?token|saml_?assertion|(?:access|refresh|id)_?token|client_?secret|signature|"token)
    ['"]?\s*[:=>]|authorization['"]?\s*[:=]\s*b?['"]?(?:bearer|basic)\s)
    \s*b?['"]?)([^\s'"<>&,;)}/]{4}[^\s'"<>&,;)}]*)""",
    re.IGNORECASE | re.VERBOSE,
)
_SAS = re.compile(r"([?&]sig=|\bsig=)[A-Za-z0-9%+/=]{8,}")
_CREDENTIAL = re.compile(r"(Credential=)[^/\s,]+", re.IGNORECASE)
_USER = re.compile(r"(\w://)[^\s/@'\":]*:(?!\d{1,5}/)[^\s@'\"]*@")

_lock = renewed(globals(), "_lock", threading.Lock)
_values: OrderedDict[str, None] = OrderedDict()
_credentials: weakref.WeakSet[Any] = weakref.WeakSet()


def remember(values: Iterable[str | None]) -> None:
    """Search for these values from now on."""
    with _lock:
        for value in values:
            if value:
                _values[value] = None
                _values.move_to_end(value)
        while len(_values) > REMEMBERED_MAX:
            _values.popitem(last=False)


def remember_credentials(credentials: Any) -> None:
    """Search for what a credentials object of botocore has at the time; it may renew itself."""
    if credentials is not None:
        with _lock:
            _credentials.add(credentials)


def _known() -> list[str]:
    with _lock:
        found = list(_values)
        for credentials in _credentials:
            # Renewable ones renew themselves when their public properties are read; those are without the
            # underscore.
            members = vars(credentials)
            for name in ("access_key", "secret_key", "token"):
                value = members.get(f"_{name}", members.get(name))
                if isinstance(value, str):
                    found.append(value)
    return sorted({value for value in found if len(value) >= CHARS_MIN}, key=len, reverse=True)


def hidden(text: str, value: str) -> str:
    """Return ``text`` with a mask for each place where a secret value stands, as it is or with escapes."""
    if not value:
        return text
    if len(value) >= ANYWHERE_CHARS_MIN:
        return text.replace(value, MASK) if _SAME.fullmatch(value) else re.sub(_pattern(value), MASK, text)
    # A character that is written as an escape, %2F or \\n, is a delimiter too.
    start = r"(?:(?<!\w)|(?<=%[0-9A-Fa-f]{2})|(?<=\\[a-z]))"
    return re.sub(rf"{start}{_pattern(value)}(?!\w)", MASK, text)


def _pattern(value: str) -> str:
    """Return what finds a value in text: as it is, in a repr (of text or bytes), in JSON and in XML, also in
    a repr of those.
    """
    return "".join(
        re.escape(part)
        if _SAME.fullmatch(part)
        else rf"\\{{{len(part)},{len(part) * ESCAPES_MAX}}}"
        if part.startswith("\\")
        else _forms(part)
        for part in _PART.findall(value)
    )


def _forms(char: str) -> str:
    """Return what finds a character that some notations write with an escape."""
    data = char.encode("utf-8", "surrogatepass")
    found = {char, json.dumps(char)[1:-1], repr(char)[1:-1], repr(data)[2:-1], escape(char), f"\\{char}"}
    each = (
        re.escape(one).replace(r"\\", rf"\\{{1,{ESCAPES_MAX}}}")
        for one in sorted(found, key=len, reverse=True)
    )
    return f"(?:{'|'.join(each)})"


def masked(text: str) -> str:
    """Return ``text`` without credentials: the known ones, and whatever stands behind a name of one."""
    for value in _known():
        for form in {value, quote(value, safe=""), quote(value)}:
            text = hidden(text, form)
    text = _CREDENTIAL.sub(rf"\1{MASK}", text)
    text = _SAS.sub(rf"\1{MASK}", text)
    text = _NAMED.sub(rf"\1{MASK}", text)
    return _USER.sub(rf"\1{MASK}@", text)


def hide_in(error: TxnLogError, mask: Callable[[str], str]) -> None:
    """Take credentials out of an error: out of its values, and out of the message that is made of them."""
    error.values.update({name: mask(value) for name, value in error.values.items() if isinstance(value, str)})
    error.args = (error.message(),)  # made anew: a long value was cut there, and half a secret is not found


class _Masking(logging.Filter):
    """Masks a log record before any handler has it."""

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            text = record.getMessage()
        except Exception:  # noqa: BLE001  # a line that cannot be formatted: logging says so itself, with its arguments
            record.msg, record.args = f"a line of {record.name} that cannot be formatted", None
            return True
        clean = masked(text)
        if clean != text:
            record.msg, record.args = clean, None
        if record.exc_info:
            told = logging.Formatter().formatException(record.exc_info) if record.exc_info[0] else ""
            clean = masked(told)
            if clean != told:  # handlers print the text in place of the exception
                record.exc_text, record.exc_info = clean, None
        return True


_masking = _Masking()


def guard_loggers() -> None:
    """Mask the lines of the libraries that handle credentials. Calling it again covers loggers made since."""
    for name in [*GUARDED, *logging.root.manager.loggerDict]:
        if name.partition(".")[0] in GUARDED:
            logging.getLogger(name).addFilter(_masking)  # once: logging compares
