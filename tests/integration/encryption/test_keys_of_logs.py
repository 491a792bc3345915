"""Keys of encrypted logs: key clients, rotation, and the errors of keys that are not the right ones."""

from __future__ import annotations

import base64
import json
import os
import pickle
import shutil
from pathlib import Path

import pytest

from tests.integration.encryption.key_vault import Vault
from tests.integration.encryption.rows import (
    CLEAR,
    TOPIC,
    generation,
    kind_of,
    numbers,
    send,
    stored,
)
from txnformat import keys
from txnformat.errors import InvalidInputError, StorageError
from txnformat.store.encrypted.key_client import KeyRefusedError, KeySource
from txnformat.store.encrypted.key_file import KeyFile
from txnformat.store.encrypted.store import EncryptedStore
from txnformat.store.memory import MemoryStore
from txnformat.store.object_sizes import NOT_AUTHENTIC
from txnformat.store.open import open_store
from txnlog import TxnLog
from txnlog_testing.stores.faulty import FaultyStore


def test_a_new_data_key_is_for_what_comes_and_the_old_one_stays(
    root: Path, log: TxnLog, options: dict[str, str]
) -> None:
    other = TxnLog.open(root, storage_options=options)
    send(log, 0, 100, embed_bytes=0)
    assert log.rotate_key() == 1
    before = stored(root).keys()
    send(log, 100, 100, embed_bytes=0)
    made = {key: generation(data) for key, data in stored(root).items() if key not in before}
    assert set(made.values()) == {2}
    other.refresh()  # meets an entry with the new key
    assert numbers(other) == list(range(200))
    send(other, 200)
    newest = stored(root)[keys.entry_key(other.state.entry)]
    assert generation(newest) == 2
    assert {generation(data) for key, data in stored(root).items() if not key.startswith(CLEAR)} == {1, 2}
    other.close()
    ring = sorted((root / keys.KEYS_PREFIX).iterdir())
    ring[0].rename(root / "held")
    with pytest.raises(StorageError) as caught:
        TxnLog.open(root, storage_options=options)
    assert caught.value.kind == NOT_AUTHENTIC
    assert "key ring" in str(caught.value)


def test_an_old_master_key_is_needed_no_more_after_its_data_keys_were_wrapped_again(
    root: Path, log: TxnLog, options: dict[str, str], key_file: Path
) -> None:
    send(log, 0, 10)
    log.rotate_key()
    send(log, 10, 10)
    old = json.loads(key_file.read_text(encoding="utf-8"))
    new = base64.b64encode(os.urandom(32)).decode()
    key_file.write_text(json.dumps({"current": "two", "keys": {**old["keys"], "two": new}}), encoding="utf-8")
    assert log.rotate_key(master=True) == 2
    key_file.write_text(json.dumps({"current": "two", "keys": {"two": new}}), encoding="utf-8")
    with TxnLog.open(root, storage_options=options) as again:
        assert numbers(again) == list(range(20))
        send(again, 20)
    key_file.write_text(json.dumps(old), encoding="utf-8")
    assert kind_of(lambda: TxnLog.open(root, storage_options=options)) == "key-refused"


def test_two_that_rotate_together_are_told(root: Path, log: TxnLog, options: dict[str, str]) -> None:
    shared = MemoryStore()
    source = KeySource(options["key_client"])
    first = TxnLog.create(EncryptedStore(shared, source))

    def meanwhile(key: str) -> None:
        if key.startswith(keys.KEYS_PREFIX):
            first.rotate_key()

    second = TxnLog.open(EncryptedStore(FaultyStore(shared, before_create=meanwhile), source))
    assert kind_of(second.rotate_key) == "key-ring-changed"
    first.create_topic("t", TOPIC)
    send(second, 1)
    assert numbers(first) == [1]


def test_a_log_that_was_made_anew_in_its_place_is_seen(
    root: Path, log: TxnLog, options: dict[str, str]
) -> None:
    store = log.store
    log.close()
    shutil.rmtree(root)
    with TxnLog.create(root, storage_options=options) as other:
        other.create_topic("t", TOPIC)
        send(other, 5)
    assert store.get(keys.FORMAT_KEY) is not None
    assert store.create("_txnlog/boundary/new", b"x").outcome == "created"
    assert open_store(root, storage_options=options).get("_txnlog/boundary/new") == b"x"
    store.delete("_txnlog/boundary/new")
    with TxnLog.open(store) as again:
        assert numbers(again) == [5]


def test_a_key_client_of_your_own(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {
        "key_client": "tests.integration.encryption.key_vault:Vault",
        "key_client_config": "SECRET-CONFIG",
    }
    monkeypatch.setattr(Vault, "asked", [])
    with TxnLog.create(root, storage_options=options) as log:
        log.create_topic("t", TOPIC)
        send(log, 1)
        # Once to see that what was wrapped opens, and once to use it.
        assert Vault.asked == [f"SECRET-CONFIG vault-key txnlog:{log.log_id}:1"] * 2
        assert "SECRET-CONFIG" not in repr(log.store)
        again = pickle.loads(pickle.dumps(log.store))
        assert again.get(keys.entry_key(0)) == log.store.get(keys.entry_key(0))
    for failure, kind, transient in (
        (KeyRefusedError("no right to use it"), "key-refused", False),
        (RuntimeError("SECRET-CONFIG timed out"), "key-client-failed", True),
    ):
        monkeypatch.setattr(Vault, "failure", failure)
        with pytest.raises(StorageError) as caught:
            open_store(root, storage_options=options).get(keys.entry_key(0))
        assert (caught.value.kind, caught.value.transient) == (kind, transient)
        assert "SECRET-CONFIG" not in str(caught.value)
        assert caught.value.__cause__ is None
    monkeypatch.setattr(Vault, "failure", None)
    monkeypatch.setattr(Vault, "unwrap", lambda self, master_key, wrapped, context: wrapped)
    assert kind_of(lambda: TxnLog.open(root, storage_options=options)) == "key-refused"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"key_client": "vault"}, "does not say where keys are"),
        ({"key_client": "file:"}, "does not say where keys are"),
        ({"key_client": "os:"}, "does not say where keys are"),
        ({"key_client_config": "SECRET"}, "needs key_client"),
        ({"key_client": "env:X", "key_client_config": "SECRET"}, "is for a class"),
        ({"key_client": "no_such_module:Keys"}, "cannot be imported"),
        ({"key_client": "os:no_such_class"}, "cannot be imported"),
        ({"key_client": "os:system", "key_client_config": "SECRET"}, "not a class with the methods"),
        ({"key_client": "collections:Counter"}, "not a class with the methods"),
        ({"key_client": "tests.integration.encryption.key_vault:made"}, "not a class with the methods"),
        ({"key_client": 'env:{"current": "SECRET"}'}, "other than the name of a variable"),
        ({"key_client": 'file: {"current": "SECRET"}'}, "other than the path of a file"),
        ({"key_client": "env:X", "KEY_CLIENT": "env:Y"}, "given twice"),
        ({"key_client": 3}, "are texts"),
    ],
)
def test_options_that_name_no_key_client_are_told_without_their_values(
    given: dict[str, str], said: str, root: Path
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        TxnLog.open(root, storage_options=given)
    assert caught.value.kind == "invalid-storage-option"
    assert said in str(caught.value)
    assert "SECRET" not in str(caught.value)


def test_a_module_that_fails_while_it_is_imported_is_told_without_its_text(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_keys.py").write_text("raise RuntimeError('SECRET')", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidInputError, match="cannot be imported: RuntimeError") as caught:
        TxnLog.open(root, storage_options={"key_client": "broken_keys:Keys"})
    assert "SECRET" not in str(caught.value)


def test_a_wrapped_key_opens_in_its_context_only(key_file: Path) -> None:
    client = KeyFile("file", str(key_file))
    name, wrapped = client.wrap(b"k" * 32, "one log")
    assert client.unwrap(name, wrapped, "one log") == b"k" * 32
    with pytest.raises(KeyRefusedError):
        client.unwrap(name, wrapped, "another log")
