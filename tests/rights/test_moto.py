"""The policies of deploy/rights/aws: what each lets its owner do, and what it does not, with real clients
against a real server.

moto's IAM judges actions and resources of every signed request. It knows none of the keys of conditions that
the templates use, so it gets the policies without conditions, and a proxy in front of it judges each request
as it is on the wire by the whole policy (:mod:`tests.rights.judges`): one that the policy does not allow is
answered with 403, and never arrives.
"""

from __future__ import annotations

import datetime
import itertools
import json
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa
import pytest
from botocore.exceptions import ClientError
from botocore.session import Session

from deploy.rights.render import names_of, rendered, templates
from tests.rights.judges import AmazonRole, Call
from txnformat.clock import SystemIds
from txnformat.errors import StorageError, TxnLogError
from txnformat.keys import data_key, entry_key
from txnformat.store.base import CreateOutcome, keeps_versions
from txnformat.store.encrypted.documents import ring_key
from txnformat.store.open import open_store
from txnformat.store.probe import probe_store
from txnformat.store.uploads import PART_BYTES
from txnformat.verify.log import verify_log
from txnlog import Producer, TxnLog
from txnlog_testing.stores.fault_proxy import FaultProxy, ProxyFault, ProxyFaultKind, Request
from txnlog_testing.stores.s3_server import REGION, S3Server, moto_server

NUMBERS = pa.schema([("n", pa.int64())])
ROLES = [
    template.removeprefix("aws/").removesuffix(".json")
    for template in templates()
    if template.startswith("aws/") and template != "aws/bucket.json"
]
EVERYTHING = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
DENIED = ProxyFault(ProxyFaultKind.SERVER_ERROR, status=403, code="AccessDenied")
_roots = itertools.count()


class Gate:
    """A server whose requests are judged, by their signer's whole policy and by moto."""

    def __init__(self, server: S3Server, proxy: FaultProxy) -> None:
        self.server = replace(server, endpoint_url=proxy.url)
        self._behind = server
        self._roles: dict[str, AmazonRole] = {}
        proxy.plan = self._plan
        self.admin = self.user("admin", EVERYTHING)
        request = urllib.request.Request(
            f"{server.endpoint_url}/moto-api/reset-auth", b"0", {"Content-Type": "text/plain"}, method="POST"
        )
        urllib.request.urlopen(request, timeout=20).close()  # from here on every request is judged

    def user(self, name: str, *policies: Mapping[str, Any]) -> S3Server:
        """Return the server with the key of a new user."""
        owner = getattr(self, "admin", self._behind)
        iam = Session().create_client(
            "iam",
            endpoint_url=self._behind.endpoint_url,
            region_name=REGION,
            aws_access_key_id=owner.key,
            aws_secret_access_key=owner.secret,
        )
        try:
            iam.create_user(UserName=name)
            for number, policy in enumerate(map(_unconditional, policies)):
                if policy["Statement"]:
                    iam.put_user_policy(
                        UserName=name, PolicyName=f"p{number}", PolicyDocument=json.dumps(policy)
                    )
            made = iam.create_access_key(UserName=name)["AccessKey"]
        finally:
            iam.close()
        self._roles[made["AccessKeyId"]] = AmazonRole(policies)
        return replace(self.server, key=made["AccessKeyId"], secret=made["SecretAccessKey"])

    def _plan(self, request: Request, _: int) -> ProxyFault | None:
        signer = request.headers["authorization"].partition("Credential=")[2].partition("/")[0]
        role = self._roles.get(signer)
        return DENIED if role is not None and not role.permits(call_of(request)) else None


def _unconditional(policy: Mapping[str, Any]) -> dict[str, Any]:
    """Return a policy as moto can judge it: more is allowed, and what is denied under a condition is not
    denied."""
    statements = [one for one in policy["Statement"] if one["Effect"] == "Allow" or "Condition" not in one]
    return {
        **policy,
        "Statement": [{key: one[key] for key in one.keys() - {"Condition"}} for one in statements],
    }


def call_of(request: Request) -> Call:
    """Return the action, the resource and the keys of conditions that S3 makes of a request."""
    address = urlsplit(request.target)
    query = parse_qs(address.query, keep_blank_values=True)
    bucket, _, key = unquote(address.path).removeprefix("/").partition("/")
    resource = f"arn:aws:s3:::{bucket}{f'/{key}' if key else ''}"
    keys = {"s3:prefix": query["prefix"][0]} if "prefix" in query else {}
    match request.method:
        case "GET" if not key:
            special = {"uploads": "ListBucketMultipartUploads", "versioning": "GetBucketVersioning"}
            named = [action for name, action in special.items() if name in query]
            return Call(f"s3:{named[0] if named else 'ListBucket'}", resource, keys)
        case "GET" | "HEAD":
            return Call("s3:GetObject", resource)
        case "DELETE":
            return Call("s3:AbortMultipartUpload" if "uploadId" in query else "s3:DeleteObject", resource)
        case "PUT" | "POST":
            is_part = "partNumber" in query or "uploads" in query
            keys = {"s3:ObjectCreationOperation": "false" if is_part else "true"}
            if "if-none-match" in request.headers:
                keys["s3:if-none-match"] = request.headers["if-none-match"]
            return Call("s3:PutObject", resource, keys)
        case _:
            raise AssertionError(request.method)


@pytest.fixture(scope="module")
def gate() -> Iterator[Gate]:
    with moto_server() as server, FaultProxy(server.endpoint_url) as proxy:
        yield Gate(server, proxy)


class Account:
    """A log with two topics, and a user for each role."""

    def __init__(self, gate: Gate) -> None:
        self.root = f"log-{next(_roots)}"
        self._gate = gate
        self._users = {"admin": gate.admin}
        self.url = gate.server.url(self.root)
        log = TxnLog.create(self.url, storage_options=self.options("admin"), embedding=False)
        self.orders = log.create_topic("orders", NUMBERS)
        log.create_topic("secrets", NUMBERS)
        with Producer(log) as producer:
            for topic in ("orders", "secrets"):
                producer.send(topic, pa.table({"n": [1, 2, 3]}, schema=NUMBERS))
        log.close()

    def policy(self, name: str) -> dict[str, Any]:
        values = {
            "BUCKET": self._gate.server.bucket,
            "ROOT": self.root,
            "TOPIC": self.orders.directory,
        }
        template = f"aws/{name}.json"
        policy: dict[str, Any] = json.loads(
            rendered(template, {one: values[one] for one in names_of(template)})
        )
        return policy

    def user(self, name: str, *policies: Mapping[str, Any]) -> None:
        self._users[name] = self._gate.user(f"{name}-of-{self.root}", *policies)

    def options(self, name: str) -> dict[str, str]:
        if name not in self._users:
            self.user(name, self.policy(name))
        return self._users[name].storage_options

    def log(self, name: str) -> TxnLog:
        return TxnLog.open(self.url, storage_options=self.options(name))

    def unfinished_uploads(self) -> list[str]:
        client = self._gate.admin.client()
        try:
            found = client.list_multipart_uploads(Bucket=self._gate.server.bucket).get("Uploads", [])
            return [
                upload["Key"] for upload in found if upload["Key"].startswith((f"{self.root}/", "photos/"))
            ]
        finally:
            client.close()

    def store(self, name: str) -> Any:
        return open_store(self.url, storage_options=self.options(name))

    def entry(self) -> str:
        """Return the key of the newest entry."""
        return entry_key(self.log("admin").state.entry)


@pytest.fixture  # each test changes the topics of a log of its own
def account(gate: Gate) -> Account:
    return Account(gate)


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
        writer.write(bytes(PART_BYTES + 1))
        getattr(writer, ending)()
    assert account.unfinished_uploads() == []


def denied(call: Callable[[], object]) -> bool:
    with pytest.raises(TxnLogError) as caught:
        call()
    return caught.value.kind == "permission-denied"


def replaces_no_entry(account: Account, name: str) -> None:
    """A role that writes the chain can neither replace an entry nor delete one, nor send it in parts."""
    store, key = account.store(name), account.entry()
    before = store.get(key)
    assert denied(lambda: store.put(key, b"forged"))
    assert denied(lambda: store.delete(key))
    assert store.create(key, b"forged").outcome is CreateOutcome.EXISTS
    with pytest.raises(StorageError) as caught, store.open_write(key) as writer:
        writer.write(bytes(PART_BYTES + 1))
    assert caught.value.kind == "object-exists"
    assert store.get(key) == before
    assert account.unfinished_uploads() == []


def test_every_role_is_tried() -> None:
    assert set(ROLES) == {
        "reader",
        "topic-reader",
        "writer",
        "topic-writer",
        "sealer",
        "vacuum",
        "maintenance",
        "keys",
    }


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
    replaces_no_entry(account, "writer")
    files = [info.key for info in log.store.list(f"{account.orders.directory}/data/")]
    assert denied(lambda: log.store.put(files[0], b"forged"))
    log.store.put("_txnlog/latest", b"")  # a hint, which proves nothing


WITHOUT_RECORDS = ("timeouts", "seal", "expire", "subscriptions")
"""Tasks that read and write no records."""


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
    log.maintain(*WITHOUT_RECORDS)
    assert verify_log(account.store("reader")).ok


def test_a_sealer_keeps_the_log_and_writes_no_record(account: Account) -> None:
    for topic in ("orders", "secrets"):
        send(account.log("admin"), topic)
    log = account.log("sealer")
    tried_and_uploaded(account, log.store, account.orders.directory + "/segments")
    log.maintain(*WITHOUT_RECORDS)
    assert all(one.sealed_end == one.last_stable_offset for one in log.refresh().partitions.values())
    assert verify_log(log.store).ok
    assert denied(lambda: send(log, "orders"))
    replaces_no_entry(account, "sealer")


def test_the_role_of_maintenance_compacts_vacuums_and_publishes(account: Account) -> None:
    for topic in ("orders", "secrets"):
        send(account.log("admin"), topic)
    log = account.log("maintenance")
    log.maintain()
    log.compact("orders", min_lag_ms=0)
    log.publish()
    report = log.vacuum(datetime.timedelta(0), allow_short_grace=True)
    assert report.notes == ()
    log.vacuum(dry_run=True)
    assert keeps_versions(log.store) is False
    assert verify_log(log.store).ok
    assert numbers(account.log("reader"), "orders") == 4
    store, key = account.store("maintenance"), account.entry()
    assert denied(lambda: store.put(key, b"forged"))
    with pytest.raises(ClientError, match="AccessDenied"):  # of the bucket it sees the root
        account._users["maintenance"].client().list_objects_v2(Bucket=account._gate.server.bucket)


def test_only_the_role_of_keys_changes_the_key_ring(account: Account) -> None:
    keys = {"key_client": "tests.integration.encryption.key_service:Service"}
    url = f"{account.url}/encrypted"
    account.root += "/encrypted"
    TxnLog.create(url, storage_options=account.options("admin") | keys).create_topic("t", NUMBERS)
    for name in ("writer", "topic-writer", "maintenance", "sealer", "vacuum"):
        log = TxnLog.open(url, storage_options=account.options(name) | keys)
        assert denied(log.rotate_key), name
        bare = open_store(url, storage_options=account.options(name))
        assert denied(partial(bare.put, ring_key(2, 0), b"forged")), name
        assert denied(partial(bare.delete, ring_key(1, 1))), name
    log = TxnLog.open(url, storage_options=account.options("keys") | keys)
    assert log.rotate_key() == 1
    assert log.rotate_key(master=True) == 2
    assert denied(lambda: send(log, "t"))
    bare = open_store(url, storage_options=account.options("keys"))
    assert denied(lambda: bare.put(ring_key(2, 0), b"forged"))
    assert denied(lambda: bare.delete(ring_key(2, 0)))
    send(TxnLog.open(url, storage_options=account.options("writer") | keys), "t")
    assert numbers(TxnLog.open(url, storage_options=account.options("reader") | keys), "t") == 1


def test_no_account_replaces_an_entry_beside_the_policy_of_the_bucket(account: Account) -> None:
    store, key = account.store("admin"), account.entry()
    before = store.get(key)
    assert before is not None
    store.put(key, before)
    account.user("owner", EVERYTHING, account.policy("bucket"))
    owner = account.store("owner")
    assert denied(lambda: owner.put(key, b"forged"))
    assert owner.create(key, b"forged").outcome is CreateOutcome.EXISTS
    assert owner.create(entry_key(10**6), b"").outcome is CreateOutcome.CREATED
    owner.delete(entry_key(10**6))  # the policy is about replacing: who deletes is what roles are for
    owner.put("_txnlog/latest", b"")


def test_the_vacuum_deletes_and_ends_uploads_and_writes_no_records(account: Account) -> None:
    """With no grace: moto's clock is the machine's."""
    admin = account.log("admin")
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
        unfinished = account.unfinished_uploads()
        if store.head(key) is None and unfinished == [f"{account.root}/{foreign}"]:
            break
    assert store.head(key) is None
    assert unfinished == [f"{account.root}/{foreign}"]
    assert numbers(log, "orders") == 4
    with pytest.raises(TxnLogError):
        send(log, "orders")
    assert verify_log(store).ok


def test_a_vacuum_without_the_right_to_list_uploads_says_so_and_goes_on(account: Account) -> None:
    report = account.log("sealer").vacuum(dry_run=True)
    (note,) = report.notes
    assert "could not be listed" in note
