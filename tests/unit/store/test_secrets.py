"""Text of others, without credentials in it."""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import Callable
from html import escape

import pytest

from txnformat.errors import VALUE_CHARS_MAX, StorageError
from txnformat.store import secrets
from txnformat.store.s3.options import S3Options
from txnformat.store.secrets import (
    ANYWHERE_CHARS_MIN,
    CHARS_MIN,
    REMEMBERED_MAX,
    guard_loggers,
    hidden,
    hide_in,
    masked,
    remember,
)

CANARY = "CANARYx/y+z=="


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of the process gave secrets that are words, such as ``nothing``."""
    monkeypatch.setattr(secrets, "_values", OrderedDict())


@pytest.mark.parametrize(
    "text",
    [
        "headers={'X-Amz-Security-Token': b'§', 'Host': 'h'}",
        "x-amz-security-token:§\nx-amz-date:20260101",
        "<SecretAccessKey>§</SecretAccessKey>",
        'body: {"SessionToken": "§", "Expiration": 1}',
        '{"Token" : "§"}',
        "'WebIdentityToken': '§'",
        "Action=AssumeRole&WebIdentityToken=§&Version=1",
        "Authorization: Bearer §",
        "'Authorization': b'Basic §'",
        'Could not connect to the endpoint URL: "https://user:§@host/bucket"',
        "proxy http://user:§@127.0.0.1:3128 failed",
        "Signature:\n§",
        "{'clientSecret': '§'}",
    ],
)
def test_what_stands_behind_the_name_of_a_secret_is_masked(text: str) -> None:
    shown = masked(text.replace("§", CANARY))
    assert CANARY not in shown
    assert "CANARY" not in shown
    assert "***" in shown


def test_the_key_id_of_a_signature_is_masked_and_the_scope_stays() -> None:
    shown = masked(
        "Credential=AKIACANARY/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=abcdef12"
    )
    assert "AKIACANARY" not in shown
    assert "abcdef12" not in shown
    assert "/us-east-1/s3/" in shown


@pytest.mark.parametrize(
    "text",
    [
        "bucket s3://bucket/a@b/c is empty",
        "https://127.0.0.1:9000/bucket/user@example.com",
        "the token of a transaction",
        "plain words, a key, and a secret",
        "using signature version v4 with the credential provider env",
    ],
)
def test_other_text_stays(text: str) -> None:
    assert masked(text) == text


def test_known_values_are_masked_wherever_they_are_also_in_urls() -> None:
    remember([CANARY, None, "", "abc"])
    assert masked(f"a {CANARY} b CANARYx%2Fy%2Bz%3D%3D c CANARYx/y%2Bz%3D%3D abc") == "a *** b *** c *** abc"
    assert len("abc") < CHARS_MIN
    remember(f"value-{number:03}" for number in range(REMEMBERED_MAX))
    assert masked("value-000 value-063") == "*** ***"
    assert masked(CANARY) == CANARY, "forgotten: their number is bounded"


@pytest.mark.parametrize("secret", ["a\\b'c\"d/e&f", "\\" * 9, "se\\'c", "ü\n<secret>", "/+=/+=/+="])
@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize(
    "written",
    [
        repr,
        lambda text: repr(text.encode()),
        lambda text: repr(f'it\'s "{text}"'),
        json.dumps,
        lambda text: json.dumps(text).replace("/", r"\/"),
        escape,
    ],
    ids=["text", "bytes", "quotes", "JSON", "slashes", "XML"],
)
def test_a_secret_is_masked_in_the_notations_of_others(
    secret: str, times: int, written: Callable[[str], str]
) -> None:
    text = f"CANARY1{secret}CANARY2"
    for _ in range(times if written is not escape else 1):
        text = written(text)
    for shown in (
        S3Options(token=f"CANARY1{secret}CANARY2").mask(text),
        hidden(text, f"CANARY1{secret}CANARY2"),
    ):
        assert "CANARY" not in shown
        assert "***" in shown


def test_log_lines_and_their_exceptions_are_masked_before_any_handler(
    caplog: pytest.LogCaptureFixture,
) -> None:
    remember([CANARY])
    logger = logging.getLogger("botocore.some.module")
    guard_loggers()
    guard_loggers()
    assert len(logger.filters) == 1
    seen: list[logging.LogRecord] = []

    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record)
            lines.append(self.format(record))

    handler = Keep()
    logger.addHandler(handler)
    try:
        with caplog.at_level(logging.DEBUG, "botocore"):
            logger.debug("sent %r", {"Authorization": CANARY})
            logger.debug("nothing %s", 1)
            try:
                raise ValueError(f"no {CANARY}")
            except ValueError:
                logger.exception("failed")
            logger.debug("bad %d", CANARY)
    finally:
        logger.removeHandler(handler)
    text = "\n".join(lines)  # of a handler of our own: Spark sets another format for those that are there
    assert CANARY not in text + caplog.text
    assert "nothing 1" in text
    assert "ValueError: no ***" in text
    assert [record.args for record in seen][1] == (1,), "what needs no mask stays as it is"
    assert CANARY not in repr([vars(record) for record in seen])


@pytest.mark.parametrize("before", [VALUE_CHARS_MAX - 20, VALUE_CHARS_MAX - 150, 0])
def test_a_secret_that_the_message_cuts_is_masked_all_the_same(before: int) -> None:
    token = "LONGCANARY" + "z" * 400
    error = StorageError("refused", cause="." * before + token, object="s3://b/x", transient=True)
    assert "LONGCANARY" in str(error), "the message has the beginning of it"
    hide_in(error, lambda text: text.replace(token, "***"))
    assert "LONGCANARY" not in f"{error} {error.args} {error.values}"
    assert "object=`s3://b/x`" in str(error)


@pytest.mark.parametrize("secret", ["buck", "log", "region", "k", "s", "format"])
def test_a_short_secret_is_no_part_of_words_and_is_masked_by_itself(secret: str) -> None:
    text = f"the bucket s3://buckets/log_reads: formats, regional {secret}s"
    options = S3Options(key=secret, secret=secret + "x")
    assert options.mask(text) == text, "words are not garbled, which would show what is missing"
    if len(secret) >= CHARS_MIN:
        for around in ("'{}'", "={}&", " {}", "/{}/", "<K>{}</K>", "{}:{}", "%3D{}%26", r"\n{}\n", "{}"):
            assert options.mask(around.replace("{}", secret)) == around.replace("{}", "***")


@pytest.mark.parametrize("secret", ["12345678", "a" * ANYWHERE_CHARS_MIN, "se/c+ret"])
def test_a_longer_secret_is_masked_inside_of_words_too(secret: str) -> None:
    assert S3Options(key="key-id", secret=secret).mask(f"x{secret}y") == "x***y"
