"""A search for canaries: credentials given to the library and the command in every way, in everything that
shows.

Spark's part is in tests/spark/test_spark_secrets.py.
"""

from __future__ import annotations

import contextlib
import http.server
import io
import itertools
import json
import logging
import os
import pickle
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import escape

import pyarrow as pa
import pytest

from txnformat.store.open import open_store
from txnlog import Consumer, InvalidInputError, Producer, TxnLog
from txnlog.cli.app import run
from txnlog_testing.stores.s3_server import S3Server, moto_server

WAYS = ("options", "environment", "profile", "url", "file", "argument")
PARTS = ("key", "secret", "token")
CANARIES = {
    way: {
        part: f"Canary{way}{part}" + ("" if part == "key" else f"/x+y{'z' * 400 * (part == 'token')}==")
        for part in PARTS
    }
    for way in WAYS
}
"""Secrets have slashes; tokens are longer than what an error shows of a value."""


def canaries_in(text: str | bytes) -> list[str]:
    """Return which canaries a text has, also a beginning of one."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return sorted(
        f"{way} {part}"
        for way, parts in CANARIES.items()
        for part, value in parts.items()
        if f"Canary{way}{part}".encode() in data or quote(value, safe="").encode() in data
    )


def all_of(error: BaseException) -> str:
    """Return everything that anything could show of an error: text, repr, notes, values, causes, traceback,
    pickle."""
    parts = []
    found: list[BaseException] = [error]
    while found:
        one = found.pop()
        parts += [
            "".join(traceback.format_exception(one)),
            repr(one),
            repr(one.args),
            repr(vars(one)),
            *getattr(one, "__notes__", ()),
        ]
        with contextlib.suppress(TypeError, AttributeError):
            parts.append(pickle.dumps(one).decode("latin-1"))
        found += [each for each in (one.__cause__, one.__context__) if each is not None]
    return "\n".join(parts)


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with moto_server() as running:
        yield running


@pytest.fixture(scope="module")
def echo() -> Iterator[str]:
    """A hostile store: it answers with all headers that it got, as the code and the text of an error."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def _answer(self) -> None:
            told = escape(" ".join(f"{name} is {value}" for name, value in self.headers.items()))
            body = f"<Error><Code>{told}</Code><Message>{told}</Message></Error>".encode()
            self.send_response(403)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_DELETE = _answer

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """Every line that any library logs, at every level, with its exception."""
    target = io.StringIO()
    handler = logging.StreamHandler(target)
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(1)
    yield target
    root.setLevel(before)
    root.removeHandler(handler)


def _base(endpoint: str) -> dict[str, str]:
    return {"endpoint_url": endpoint, "region": "us-east-1", "addressing_style": "path"}


@pytest.fixture(params=["options", "environment", "profile"])
def options(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """Storage options of one way; the credentials are in them, or where boto looks."""
    way = CANARIES[request.param]
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    if request.param == "options":
        return dict(way)
    names = {"key": "aws_access_key_id", "secret": "aws_secret_access_key", "token": "aws_session_token"}
    if request.param == "environment":
        for part, name in names.items():
            monkeypatch.setenv(name.upper(), way[part])
        return {}
    path = tmp_path / "credentials"
    path.write_text("[canary]\n" + "".join(f"{name} = {way[part]}\n" for part, name in names.items()))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(path))
    return {"profile": "canary"}


def _failures(server: S3Server, echo: str, options: dict[str, str]) -> Iterator[BaseException]:
    there, dead = _base(server.endpoint_url), {**_base("http://127.0.0.1:1"), "connect_timeout_s": "1"}
    calls: list[Callable[[], object]] = [
        lambda: TxnLog.open(server.url("missing"), storage_options={**options, **there}),
        lambda: TxnLog.open("s3://no-such-bucket/log", storage_options={**options, **there}),
        lambda: open_store("s3://b/x", storage_options={**options, **dead}).get("a"),
        lambda: open_store("s3://b/x", storage_options={**options, **_base(echo)}).get("a"),
        lambda: open_store("s3://b/x", storage_options={**options, **_base(echo)}).list("a"),
        lambda: open_store("s3://b/x", storage_options={**options, **_base(echo)}).put("a", b"x"),
        lambda: open_store("s3://b/x", storage_options={**options, **_base(echo)}).open_write("a").close(),
        lambda: open_store("s3://b/x", storage_options={**options, "secert": CANARIES["options"]["secret"]}),
        lambda: open_store("s3://b/x", storage_options={**options, CANARIES["options"]["secret"]: "x"}),
        lambda: open_store("/tmp/x", storage_options={CANARIES["options"]["secret"]: "x"}),
        lambda: open_store("s3://b/x", storage_options={"secret": CANARIES["options"]["secret"]}),
        lambda: open_store(
            "s3://b/x",
            storage_options={
                **CANARIES["options"],
                "secret": "x",
                "aws_secret_access_key": CANARIES["options"]["secret"],
            },
        ),
        lambda: open_store(
            "s3://b/x", storage_options={"endpoint_url": f"http://u:{CANARIES['url']['secret']}@h"}
        ),
        lambda: open_store("s3://b/x", storage_options={"read_timeout_s": CANARIES["options"]["secret"]}),
    ]
    for call in calls:
        try:
            call()
        except Exception as error:  # noqa: BLE001  # whatever comes is looked at
            yield error
    for result in (open_store("s3://b/x", storage_options={**options, **_base(echo)}).create("a", b"x"),):
        assert result.error is not None
        yield result.error


def test_nothing_that_the_library_shows_has_a_canary(
    server: S3Server, echo: str, options: dict[str, str], lines: io.StringIO, recwarn: pytest.WarningsRecorder
) -> None:
    given = {**options, **_base(server.endpoint_url)}
    shown = []
    with TxnLog.open_or_create(
        server.url(f"log-{len(options)}-{'profile' in options}"), storage_options=given
    ) as log:
        log.create_topic("t", pa.schema([("n", pa.int64())]))
        with Producer(log, "p") as producer, producer.transaction() as txn:
            txn.send("t", [{"n": 1}])
            shown.append(repr(producer))
        with Consumer(log, "g") as consumer:
            shown.append(repr(consumer))
        reader = log.read("t")
        assert reader.read_all().num_rows == 1
        shown += [
            repr(log),
            repr(log.store),
            repr(reader),
            repr(log.state),
            repr(log.describe()),
            repr(vars(log.store)),
        ]
        shown += [
            pickle.dumps(log.state).decode("latin-1"),
            json.dumps(log.metrics().to_dict()),
            str(log.verify(deep=True)),
        ]
    failures = list(_failures(server, echo, options))
    assert len(failures) == 15
    shown += map(all_of, failures)
    shown += [str(warning.message) for warning in recwarn]
    assert [each for each in (canaries_in(text) for text in shown) if each] == []
    logged = lines.getvalue()
    assert "botocore" in logged or "Sending http request" in logged, "the level is right"
    assert "***" in logged
    assert canaries_in(logged) == []
    client = server.client()
    for item in client.list_objects_v2(Bucket=server.bucket)["Contents"]:
        assert (
            canaries_in(
                item["Key"]
                + client.get_object(Bucket=server.bucket, Key=item["Key"])["Body"].read().decode("latin-1")
            )
            == []
        )


_KEY, _SECRET = CANARIES["url"]["key"], CANARIES["url"]["secret"]


@pytest.mark.parametrize("scheme", ["s3", "s3a", "S3N"])
@pytest.mark.parametrize(
    "rest",
    [
        f"//{_KEY}:{_SECRET}@bucket/path",
        f"//{_KEY}:{_SECRET}@bucket",
        f"//{_KEY}:{_SECRET}",
        f"//{_KEY}@bucket/path",
        f"//:{_SECRET}@bucket/path",
        f"/{_KEY}:{_SECRET}@bucket/path",
        f"///{_KEY}:{_SECRET}@bucket/path",
        f"//{quote(_KEY)}:{quote(_SECRET, safe='')}@bucket/path",
        f"//bucket/path?secret={_SECRET}",
        f"//bucket/path?x=1&aws_secret_access_key={_SECRET}",
        f"//bucket/path?AccessKeyId={_KEY}&session_token={_SECRET}",
    ],
)
def test_a_url_with_credentials_is_refused_and_not_repeated(scheme: str, rest: str) -> None:
    with pytest.raises(InvalidInputError, match=r"credentials|location") as refused:
        open_store(f"{scheme}:{rest}")
    assert canaries_in(all_of(refused.value)) == []
    assert refused.value.kind == "invalid-location"


@pytest.mark.parametrize(
    "url", ["s3://bucket/user@host/a:b", "s3://bucket/a?b=c", "s3://my-bucket.x_y/key=1/secret"]
)
def test_a_url_without_credentials_is_taken(url: str) -> None:
    assert open_store(url).url == url


def test_nothing_that_the_command_shows_has_a_canary(
    server: S3Server,
    echo: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    lines: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    path = tmp_path / "storage"
    path.write_text("".join(f"{name}={value}\n" for name, value in CANARIES["file"].items()))
    path.chmod(0o600)
    argument = [f"--storage={name}={value}" for name, value in CANARIES["argument"].items()]
    there, hostile = (
        [f"--storage={name}={value}" for name, value in _base(url).items()]
        for url in (server.endpoint_url, echo)
    )
    root, none = ["--root", server.url("cli")], ["--root", server.url("none")]
    records = tmp_path / "records.json"
    records.write_text('{"n": 1}\n')
    assert run(["create", *root, *argument, *there]) == 0
    codes = []
    for given in (argument, ["--storage", f"@{path}"]):
        for line, json_ in itertools.product(
            (
                ["create-topic", "t", "-c", "n:int64", "--exist-ok", *root, *there],
                ["produce", "t", str(records), *root, *there],
                ["consume", "t", *root, *there],
                ["describe", *root, *there],
                ["verify", "--deep", *root, *there],
                ["doctor", *root, *there],
                ["dump", "entries", *root, *there],
                ["topics", *none, *there],
                ["topics", *root, *hostile],
                ["doctor", *root, *hostile],
                ["topics", "--root", f"s3://{_KEY}:{_SECRET}@b/x", *there],
                ["topics", *root, *there, "--storage", CANARIES["argument"]["secret"]],
                ["topics", *root, *there, "--storage", f"{CANARIES['argument']['secret']}=x"],
                ["topics", *root, *there, "--storage", f"secret={CANARIES['argument']['secret']}"],
            ),
            ([], ["--json"]),
        ):
            codes.append(run([*line, *given, *json_]))
    out, err = capsys.readouterr()
    assert codes.count(0) >= 24
    assert len(codes) - codes.count(0) >= 24
    assert "Traceback" not in err
    assert canaries_in(out) == []
    assert canaries_in(err) == []
    assert canaries_in(lines.getvalue()) == []


def test_options_from_a_file_are_in_no_command_line(server: S3Server, tmp_path: Path) -> None:
    path = tmp_path / "storage"
    given = {**CANARIES["file"], **_base(server.endpoint_url)}
    path.write_text(json.dumps(given))
    path.chmod(0o600)
    TxnLog.create(server.url("ps"), storage_options=given).create_topic("t", pa.schema([("n", pa.int64())]))
    command = [
        sys.executable,
        "-m",
        "txnlog",
        "produce",
        "t",
        "-",
        "--root",
        server.url("ps"),
        "--storage",
        f"@{path}",
    ]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    ) as child:
        shown = subprocess.run(
            ["ps", "-ww", "-p", str(child.pid), "-o", "args="], capture_output=True, check=True
        ).stdout
        assert child.stdin is not None
        out = child.communicate(b'{"n": 1}\n', timeout=300)[0]
    assert b"produce" in shown
    assert canaries_in(shown) == []
    assert child.returncode == 0, out
    assert canaries_in(out) == []
