"""The policies of docs/storage.md, run against moto's IAM: what each lets its owner do, and what it does not."""

from __future__ import annotations

import datetime
import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from botocore.session import Session

from tests.meta.markdown import ROOT, blocks
from txnformat.clock import SystemIds
from txnformat.errors import StorageError, TxnLogError
from txnformat.keys import data_key
from txnformat.store.open import open_store
from txnformat.store.probe import probe_store
from txnformat.store.uploads import PART_BYTES
from txnformat.verify.log import verify_log
from txnlog import Producer, TxnLog
from txnlog_testing.stores.s3_server import REGION, S3Server, moto_server

NUMBERS = pa.schema([("n", pa.int64())])
PAGE = (ROOT / "docs" / "storage.md").read_text(encoding="utf-8")
POLICIES = {
    block.info.removeprefix("json policy "): block.text
    for block in blocks(PAGE)
    if block.info.startswith("json policy ")
}
EVERYTHING = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}'
LOG = "log"


class Account:
    """A log with two topics on a server that judges every request, and a user for each policy."""

    def __init__(self, server: S3Server) -> None:
        log = TxnLog.create(server.url(LOG), storage_options=server.storage_options, embedding=False)
        self.orders = log.create_topic("orders", NUMBERS)
        log.create_topic("secrets", NUMBERS)
        with Producer(log) as producer:
            for topic in ("orders", "secrets"):
                producer.send(topic, pa.table({"n": [1, 2, 3]}, schema=NUMBERS))
        self.url = log.url
        self._users: dict[str, S3Server] = {}
        iam = Session().create_client(
            "iam",
            endpoint_url=server.endpoint_url,
            region_name=REGION,
            aws_access_key_id=server.key,
            aws_secret_access_key=server.secret,
        )
        try:
            for name, policy in {"admin": EVERYTHING, **POLICIES}.items():
                text = policy.replace("my-bucket", server.bucket).replace(
                    "orders-9a6f2a90", self.orders.directory
                )
                iam.create_user(UserName=name)
                iam.put_user_policy(
                    UserName=name, PolicyName=name, PolicyDocument=json.dumps(json.loads(text))
                )
                made = iam.create_access_key(UserName=name)["AccessKey"]
                self._users[name] = replace(server, key=made["AccessKeyId"], secret=made["SecretAccessKey"])
        finally:
            iam.close()
        request = urllib.request.Request(
            f"{server.endpoint_url}/moto-api/reset-auth", b"0", {"Content-Type": "text/plain"}, method="POST"
        )
        urllib.request.urlopen(request, timeout=20).close()  # from here on every request is judged

    def options(self, name: str) -> dict[str, str]:
        return self._users[name].storage_options

    def log(self, name: str) -> TxnLog:
        return TxnLog.open(self.url, storage_options=self.options(name))

    def unfinished_uploads(self) -> list[Any]:
        admin = self._users["admin"]
        client = admin.client()
        try:
            return list(client.list_multipart_uploads(Bucket=admin.bucket).get("Uploads", []))
        finally:
            client.close()

    def store(self, name: str) -> Any:
        return open_store(self.url, storage_options=self.options(name))


@pytest.fixture  # each test changes the topics of a log of its own
def account() -> Iterator[Account]:
    with moto_server() as server:
        yield Account(server)


def numbers(log: TxnLog, topic: str) -> int:
    return int(log.read(topic).read_all().num_rows)


def send(log: TxnLog, topic: str) -> None:
    with Producer(log) as producer:
        producer.send(topic, pa.table({"n": [4]}, schema=NUMBERS))


def tried_and_uploaded(account: Account, store: Any, directory: str) -> None:
    """Do what a new process and a large file do: try the store, upload in parts, give an upload up."""
    assert [check.problem for check in probe_store(store, SystemIds())] == [None] * 5
    assert store.list("_txnlog/probe/") == []
    for ending in ("close", "abort"):
        writer = store.open_write(f"{directory}/{SystemIds().new()}")
        for _ in range(3):
            writer.write(bytes(8 * 2**20))
        getattr(writer, ending)()
    assert account.unfinished_uploads() == []


def denied(call: Callable[[], object]) -> bool:
    with pytest.raises(TxnLogError) as caught:
        call()
    return caught.value.kind == "permission-denied"


def test_the_page_has_the_policies() -> None:
    assert set(POLICIES) == {"reader", "topic-reader", "writer", "topic-writer", "maintainer", "vacuum"}


def test_requests_are_judged(account: Account) -> None:
    with pytest.raises(StorageError) as caught:
        TxnLog.open(
            account.url, storage_options=account.options("admin") | {"key": "AKIAOTHER", "secret": "x"}
        )
    assert caught.value.kind == "credentials-invalid"


def test_a_reader_reads_all_topics_and_writes_nothing(account: Account) -> None:
    log = account.log("reader")
    before = {topic: numbers(log, topic) for topic in log.topics()}
    assert before.keys() == {"orders", "secrets"}
    assert min(before.values()) >= 3
    assert verify_log(log.store, deep=True).ok
    assert denied(lambda: send(log, "orders"))
    assert denied(lambda: log.create_topic("new", NUMBERS))
    assert denied(lambda: log.store.put("_txnlog/latest", b""))
    assert {topic: numbers(account.log("admin"), topic) for topic in before} == before


def test_a_reader_of_one_topic_reads_no_other(account: Account) -> None:
    log = account.log("topic-reader")
    assert log.topics() == ["orders", "secrets"]
    assert numbers(log, "orders") >= 3
    assert denied(lambda: numbers(log, "secrets"))
    assert denied(lambda: send(log, "orders"))


def test_a_reader_of_one_topic_reads_what_others_have_in_entries_unless_their_topic_forbids_it(
    account: Account,
) -> None:
    """As the page says: an account that reads the chain has the rows that travel in it."""
    log = account.log("admin")
    log.upgrade(embedding=True)
    log.create_topic("told", NUMBERS)
    log.create_topic("kept", NUMBERS, settings={"embed": "false"})
    for topic in ("told", "kept"):
        send(log, topic)
    reader = account.log("topic-reader")
    assert numbers(reader, "told") == 1
    assert denied(lambda: numbers(reader, "kept"))


def test_a_writer_writes_all_topics(account: Account) -> None:
    log = account.log("writer")
    for topic in ("orders", "secrets"):
        before = numbers(log, topic)
        send(log, topic)
        assert numbers(log, topic) == before + 1
    log.create_topic("made", NUMBERS)
    tried_and_uploaded(account, log.store, account.orders.directory + "/data")
    log.maintain()
    (entry, *_) = [info.key for info in log.store.list("_txnlog/log/")]
    assert denied(lambda: log.store.delete(entry))


def test_a_writer_of_one_topic_brings_nothing_into_another(account: Account) -> None:
    log = account.log("topic-writer")
    before, secrets = numbers(log, "orders"), numbers(account.log("admin"), "secrets")
    with Producer(log, "orders-only") as producer, producer.transaction() as transaction:
        transaction.send("orders", pa.table({"n": [5]}, schema=NUMBERS))
    assert numbers(log, "orders") == before + 1
    assert denied(lambda: numbers(log, "secrets"))
    assert denied(lambda: send(log, "secrets"))
    assert numbers(account.log("admin"), "secrets") == secrets
    tried_and_uploaded(account, log.store, account.orders.directory + "/data")
    log.maintain()
    assert verify_log(account.store("reader")).ok


def test_a_maintainer_keeps_the_log_and_writes_no_record(account: Account) -> None:
    for topic in ("orders", "secrets"):
        send(account.log("admin"), topic)
    log = account.log("maintainer")
    tried_and_uploaded(account, log.store, account.orders.directory + "/segments")
    report = log.maintain()
    assert report is not None
    assert all(one.sealed_end == one.last_stable_offset for one in log.refresh().partitions.values())
    assert verify_log(log.store, deep=True).ok
    assert denied(lambda: send(log, "orders"))
    (entry, *_) = [info.key for info in log.store.list("_txnlog/log/")]
    assert denied(lambda: log.store.delete(entry))


def test_the_vacuum_deletes_and_ends_uploads_and_writes_no_records(account: Account) -> None:
    """With no grace: moto's clock is the machine's."""
    admin = account.log("admin")
    admin.upgrade()
    store = account.store("admin")
    store.create(key := data_key(account.orders.directory, 0, SystemIds().new()), b"given up")
    foreign = "photos/holiday.jpg"
    for left in (data_key(account.orders.directory, 0, SystemIds().new()), foreign):
        writer = store.open_write(left)
        writer.write(bytes(PART_BYTES + 1))
    send(admin, "orders")
    assert len(account.unfinished_uploads()) == 2
    log = account.log("vacuum")
    unfinished: list[str] = []
    for _ in range(100):  # Date headers count seconds: how many it takes hangs on the machine
        time.sleep(1.1)
        report = log.vacuum(datetime.timedelta(0), allow_short_grace=True)
        assert report.notes == ()
        unfinished = [upload["Key"] for upload in account.unfinished_uploads()]
        if store.head(key) is None and unfinished == [f"{LOG}/{foreign}"]:
            break
    assert store.head(key) is None
    assert unfinished == [f"{LOG}/{foreign}"]
    assert numbers(log, "orders") == 4
    with pytest.raises(TxnLogError):
        send(log, "orders")
    assert verify_log(store).ok


def test_a_vacuum_without_the_right_to_list_uploads_says_so_and_goes_on(account: Account) -> None:
    account.log("admin").upgrade()
    report = account.log("maintainer").vacuum(dry_run=True)
    (note,) = report.notes
    assert "could not be listed" in note
