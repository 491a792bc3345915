"""Conditional writes to moto follow one another; what else there is does not wait for them."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

import pytest

from txnlog_testing.stores.moto_program import OneAtATime


class Inner:
    """Answers with what it was sent, and whether a conditional write would have to wait meanwhile."""

    def __init__(self) -> None:
        self.server = OneAtATime(self)

    def __call__(self, environ: dict[str, Any], _: Any) -> Iterable[bytes]:
        yield b"alone " if self.server._turn.locked() else b"beside others "
        yield environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))


def _answer(method: str, **headers: str) -> bytes:
    body = io.BytesIO(b"body, and the next request")
    return b"".join(Inner().server({"REQUEST_METHOD": method, "wsgi.input": body, **headers}, None))


@pytest.mark.parametrize("method", ["PUT", "POST"])
@pytest.mark.parametrize("condition", ["HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH"])
def test_a_conditional_write_is_alone(method: str, condition: str) -> None:
    assert _answer(method, **{condition: "*", "CONTENT_LENGTH": "4"}) == b"alone body"


def test_other_requests_do_not_wait() -> None:
    assert _answer("PUT", CONTENT_LENGTH="4") == b"beside others body"
    assert _answer("GET", HTTP_IF_NONE_MATCH='"tag"') == b"beside others "
