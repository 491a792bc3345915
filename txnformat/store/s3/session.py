"""HTTP sessions of the S3 client: one request, one host, and no answer without a bound.

A redirect is never followed, for it may name any server: the request carries the object, the condition and
the session token. Its answer becomes :class:`RedirectedError`, which says where it pointed.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from aiobotocore.httpsession import AIOHTTPSession
from botocore.exceptions import HTTPClientError

from txnformat.store.remote.answers import AnswerTooLargeError

__all__ = [
    "BadAnswerError",
    "OnceSession",
    "RedirectedError",
    "WebPageError",
    "regional_endpoint",
]

ANSWER_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of an answer that is no object (inclusive): a listing of 1,000 keys, each as long as keys can be, has
less."""

_TAGS_MAX = 100_000
"""Most tags of an answer (inclusive), which bounds elements and depth; a listing of 1,000 keys has about
30,000."""

_TEXT = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml([^>]*)\?>\s*)?(?:<(?:[A-Za-z0-9_-]+:)?([A-Za-z0-9_]+)[\s/>])?"
)
_ENCODING = re.compile(rb"encoding\s*=\s*[\"']([^\"']*)")
_DOCTYPE = re.compile(rb"<!DOCTYPE", re.IGNORECASE)

_REDIRECT_BYTES_MAX = 64 * 1024
"""Bytes of a redirect's body that are read, for the region and the endpoint that it names."""

_READ_BYTES = 256 * 1024

_HOST = re.compile(r"[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?")
_REGION = re.compile(r"[a-z0-9-]{1,32}")
_NAMED_REGION = re.compile(rb"<Region>([a-z0-9-]{1,32})</Region>")
_NAMED_ENDPOINT = re.compile(rb"<Endpoint>([A-Za-z0-9.:-]{1,253})</Endpoint>")
_AWS = re.compile(r"(?:.*\.)?(amazonaws\.com(?:\.cn)?)")
_AWS_REGIONAL = re.compile(
    r"(?:[a-z0-9.-]{3,63}\.)?s3[.-]([a-z]{2}(?:-[a-z]+){1,3}-[0-9]{1,2})\.(amazonaws\.com(?:\.cn)?)"
)


class RedirectedError(Exception):
    """The store answered a request to ``asked`` with a redirect, 300 to 399: the request went no further.

    ``location`` is what the answer named, text of any origin: only ``host`` may be shown. ``region`` is the
    one that it named. Empty without them.
    """

    def __init__(self, status: int, asked: str, location: str, region: str) -> None:
        self.status = status
        self.asked = asked
        self.location = location
        self.region = region if _REGION.fullmatch(region) else ""
        super().__init__(f"HTTP {status}")

    @property
    def host(self) -> str:
        """``host[:port]`` of the location; empty if it names none, or none that can be shown."""
        host = _netloc(self.location)
        return host if _HOST.fullmatch(host) else ""


class BadAnswerError(Exception):
    """The answer has a field that makes no sense."""


class WebPageError(Exception):
    """The answer is a page for people, which no S3 sends: another server, a portal or a proxy.

    ``status`` is its HTTP status.
    """

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(f"HTTP {status} with a web page (text/html)")


class _Answer:
    """An aiohttp answer of which no more is read at once than it may have."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._answer, name)

    async def read(self) -> bytes:
        """Return the body of what is no object, if a parser may get it."""
        body = await _read(self._answer, ANSWER_BYTES_MAX)
        status = self._answer.status
        problem = xml_problem(body, _root(self._answer) if status == 200 else None)
        if problem is None:
            return body
        if status >= 300:
            return b""  # what an error means is in its status
        raise BadAnswerError(problem)


class _OneHost:
    """The interface of an aiohttp session that aiobotocore needs, without redirects."""

    def __init__(self, session: Any) -> None:
        self._session = session

    async def request(self, method: str, **arguments: Any) -> _Answer:
        answer = await self._session.request(method, allow_redirects=False, **arguments)
        if 300 <= answer.status < 400:
            body = b""
            try:
                body = await _read(answer, _REDIRECT_BYTES_MAX)
            except AnswerTooLargeError:
                pass  # what it names shows in its headers, if anywhere
            finally:
                answer.close()
            raise _redirected(answer, str(arguments.get("url", "")), body)
        if _is_web_page(answer):
            answer.close()
            raise WebPageError(answer.status)
        return _Answer(answer)


class OnceSession(AIOHTTPSession):  # type: ignore[misc]  # untyped
    """HTTP sessions that never send a request twice, or to another host than the one that was asked."""

    async def _get_session(self, proxy_url: str | None) -> Any:
        session = await super()._get_session(proxy_url)
        # aiohttp's only switch for it; tests/integration/store/test_s3_requests.py fails without.
        session._retry_connection = False
        return _OneHost(session)

    async def send(self, request: Any) -> Any:
        """Send one request."""
        try:
            return await super().send(request)
        except HTTPClientError as error:
            inner = error.kwargs.get("error")
            if isinstance(inner, RedirectedError | AnswerTooLargeError | BadAnswerError | WebPageError):
                raise inner from None
            raise


def _is_web_page(answer: Any) -> bool:
    """Return whether an answer is another server's.

    Statuses that gateways in front of S3 give mean what they say.
    """
    return (
        answer.status < 500
        and answer.status not in (401, 403, 408, 409, 412, 429)
        and str(answer.headers.get("Content-Type", "")).lower().startswith("text/html")
        and not any(name.lower().startswith("x-amz") for name in answer.headers)
    )


def xml_problem(body: bytes, root: str | None = None) -> str | None:
    """Return why a parser must not get ``body``; None if it may.

    Entities grow, and every element takes memory: a parser makes much more of a body than its bytes. ``root``
    is the name that the root element must have; an ``Error`` may always come in its place.
    """
    head = _TEXT.match(body)
    encoding = _ENCODING.search(head[1]) if head and head[1] else None
    if b"\0" in body or (encoding and encoding[1].lower() not in (b"utf-8", b"us-ascii", b"ascii")):
        return "XML that is not UTF-8"
    if b"<!" in body and _DOCTYPE.search(body):
        return "XML with a document type"
    if body.count(b"<") > _TAGS_MAX:
        return f"XML of more than {_TAGS_MAX:,} tags"
    found = head[2] if head else None
    if root is not None and found not in (root.encode(), b"Error"):
        return f"no {root}"
    return None


def _root(answer: Any) -> str | None:
    """Return the root element of a success, as the request's URL has it; None where any will do."""
    query = answer.url.query
    if answer.method == "GET" and "list-type" in query:
        return "ListBucketResult"
    if answer.method == "POST" and "uploads" in query:
        return "InitiateMultipartUploadResult"
    if answer.method == "POST" and "uploadId" in query:
        return "CompleteMultipartUploadResult"
    return None


async def _read(answer: Any, most: int) -> bytes:
    """Return the body; at most ``most`` bytes (and one read more) are ever in memory."""
    # An answer to HEAD has no body; its length is that of the object.
    declared = None if answer.method == "HEAD" else answer.content_length
    try:
        if declared is not None and declared > most:
            raise AnswerTooLargeError(most, declared)
        parts: list[bytes] = []
        count = 0
        while part := await answer.content.read(_READ_BYTES):
            count += len(part)
            if count > most:
                raise AnswerTooLargeError(most, None)
            parts.append(part)
    except BaseException:
        answer.close()  # what is left of it would be taken for the next answer's
        raise
    return b"".join(parts)


def _redirected(answer: Any, asked: str, body: bytes) -> RedirectedError:
    region = answer.headers.get("x-amz-bucket-region", "")
    named = _NAMED_REGION.search(body)
    location = answer.headers.get("Location", "")
    endpoint = _NAMED_ENDPOINT.search(body)
    if not location and endpoint:
        location = f"//{endpoint[1].decode()}/"
    return RedirectedError(answer.status, asked, location, region or (named[1].decode() if named else ""))


def _netloc(url: str) -> str:
    try:
        return urlsplit(url).netloc
    except ValueError:
        return ""


def regional_endpoint(redirected: RedirectedError) -> tuple[str, str] | None:
    """Return the endpoint of AWS and the region that an AWS 307 names; None for everything else.

    Both hosts must be of AWS, and of the same partition; the endpoint keeps the scheme of the request and has
    no more of the location than the region's name.
    """
    asked = urlsplit(redirected.asked)
    own = _AWS.fullmatch(asked.hostname or "")
    other = _AWS_REGIONAL.fullmatch(redirected.host.lower())
    if redirected.status != 307 or own is None or other is None or own[1] != other[2]:
        return None
    if urlsplit(redirected.location).scheme not in ("", asked.scheme):
        return None
    return f"{asked.scheme}://s3.{other[1]}.{other[2]}", other[1]
