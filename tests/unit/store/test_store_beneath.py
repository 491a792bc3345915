"""Local roots in which something else than txnlog's files lies: pipes, sockets, devices, links to
anywhere.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from tests.unit.store.descriptors import descriptors_below
from txnformat.errors import InvalidInputError, NotFoundError, StorageError, TxnLogError
from txnformat.store.base import CreateOutcome
from txnformat.store.local import LocalStore
from txnformat.store.open import open_store
from txnlog import Producer, TxnLog
from txnlog_testing.interrupts import interrupt, record

KEY = "a/b/object"
SECRET = b"the secret of a file that is not of this log, and which nobody may see in any message"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory next to the root, with a file that is nobody's business."""
    outside = tmp_path / "outside"
    (outside / "b").mkdir(parents=True)
    (outside / "object").write_bytes(SECRET)
    (outside / "b" / "object").write_bytes(SECRET)
    return outside


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    assert LocalStore(root).create("a/b/other", b"x").outcome is CreateOutcome.CREATED
    return root


@pytest.fixture
def store(root: Path) -> LocalStore:
    """A store that knows its directories already."""
    store = LocalStore(root)
    assert store.create("a/b/known", b"x").outcome is CreateOutcome.CREATED
    return store


def everything(path: Path) -> dict[str, bytes | None]:
    return {
        str(one.relative_to(path)): one.read_bytes() if one.is_file() else None for one in path.rglob("*")
    }


def reads(store: LocalStore, key: str) -> list[Callable[[], object]]:
    return [lambda: store.get(key), lambda: store.get_range(key, 0, 1), lambda: store.head(key)]


def kind_of(call: Callable[[], object]) -> str:
    with pytest.raises(StorageError) as caught:
        call()
    assert "secret" not in str(caught.value)
    return caught.value.kind


# --- what is no regular file --------------------------------------------------------------------------------


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the path of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(here)


@pytest.mark.parametrize("make", [make_pipe, make_socket, Path.mkdir], ids=["pipe", "socket", "directory"])
@pytest.mark.parametrize("follow", [False, True])
def test_what_is_no_regular_file_is_refused_at_once(
    root: Path, make: Callable[[Path], None], follow: bool
) -> None:
    """To open a pipe waits for its writer, for ever."""
    make(root / KEY)
    store = LocalStore(root, follow_symlinks=follow)
    before = descriptors_below(root.parent)
    assert {kind_of(call) for call in reads(store, KEY)} == {"not-a-file"}
    assert [info.key for info in store.list("")] == ["a/b/other"]
    assert store.create(KEY, b"x").outcome is CreateOutcome.EXISTS
    assert descriptors_below(root.parent) == before


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
def test_a_device_that_somebody_links_to_is_refused_even_where_links_are_followed(
    root: Path, device: str
) -> None:
    (root / KEY).symlink_to(device)
    store = LocalStore(root, follow_symlinks=True)
    assert {kind_of(call) for call in reads(store, KEY)} == {"not-a-file"}


# --- links --------------------------------------------------------------------------------------------------


def link_object(root: Path, outside: Path) -> None:
    (root / KEY).symlink_to(outside / "object")


def link_directory(root: Path, outside: Path) -> None:
    (root / "a" / "b").rename(root / "a" / "moved")
    (root / "a" / "b").symlink_to(outside)


def link_first_directory(root: Path, outside: Path) -> None:
    (root / "a").rename(root / "moved")
    (root / "a").symlink_to(outside)


LINKS = [link_object, link_directory, link_first_directory]


@pytest.mark.parametrize("link", LINKS)
def test_what_a_link_leads_to_is_not_read(
    root: Path, outside: Path, link: Callable[[Path, Path], None]
) -> None:
    link(root, outside)
    before = descriptors_below(root.parent)
    assert {kind_of(call) for call in reads(LocalStore(root), KEY)} == {"symbolic-link"}
    assert "object" not in {info.key.rpartition("/")[2] for info in LocalStore(root).list("")}
    assert descriptors_below(root.parent) == before


@pytest.mark.parametrize("link", LINKS[1:])
@pytest.mark.parametrize("knows", [False, True], ids=["at first", "of a directory that it knows"])
def test_nothing_is_written_or_listed_or_deleted_behind_a_link(
    root: Path, store: LocalStore, outside: Path, link: Callable[[Path, Path], None], knows: bool
) -> None:
    if not knows:
        store = LocalStore(root)
    link(root, outside)
    before, count = everything(outside), descriptors_below(root.parent)
    result = store.create("a/b/new", b"x")
    assert result.outcome is CreateOutcome.REFUSED
    assert result.error is not None
    assert result.error.kind == "symbolic-link"
    calls: list[Callable[[], object]] = [
        lambda: store.put("a/b/new", b"x"),
        lambda: store.put(KEY, b"x"),
        lambda: store.put("a/b/c/new", b"x"),
        lambda: store.open_write("a/b/new"),
        lambda: store.delete(KEY),
        lambda: store.list("a/b/"),
        lambda: LocalStore(root).make_durable([KEY]),
    ]
    assert {kind_of(call) for call in calls} == {"symbolic-link"}
    assert everything(outside) == before
    assert descriptors_below(root.parent) == count


def test_a_link_at_an_objects_place_is_replaced_or_deleted_itself(root: Path, outside: Path) -> None:
    before = everything(outside)
    store = LocalStore(root)
    link_object(root, outside)
    assert store.create(KEY, b"x").outcome is CreateOutcome.EXISTS
    store.put(KEY, b"mine")
    assert store.get(KEY) == b"mine"
    (root / KEY).unlink()
    link_object(root, outside)
    store.delete(KEY)
    assert not (root / KEY).is_symlink()
    assert everything(outside) == before


def test_a_link_that_leads_nowhere_is_told_as_well(root: Path) -> None:
    (root / "c").symlink_to(root / "nowhere")
    (root / KEY).symlink_to(root / "nowhere")
    for key in ("c/object", KEY):
        assert {kind_of(call) for call in reads(LocalStore(root), key)} == {"symbolic-link"}


def test_a_log_whose_files_are_links_tells_nothing_of_what_they_lead_to(
    tmp_path: Path, outside: Path
) -> None:
    (tmp_path / "log" / "_txnlog").mkdir(parents=True)
    (tmp_path / "log" / "_txnlog" / "format.json").symlink_to(outside / "object")
    with pytest.raises(TxnLogError) as caught:
        TxnLog.open(tmp_path / "log")
    assert caught.value.kind == "symbolic-link"
    assert "secret" not in f"{caught.value} {caught.value.values}"
    assert "follow_symlinks" in str(caught.value)


def test_a_dataset_is_not_made_of_links(tmp_path: Path) -> None:
    """pyarrow would open what they lead to by itself."""
    log = TxnLog.create(tmp_path / "log")
    log.create_topic("t", pa.schema([("n", pa.int64())]))
    with Producer(log, embed_bytes=0) as producer:
        producer.send("t", pa.table({"n": [1, 2]}))
        producer.flush()
    assert log.dataset("t").to_table().num_rows == 2
    (file,) = (tmp_path / "log").glob("t-*/data/*")
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert kind_of(lambda: log.dataset("t")) == "symbolic-link"
    linked = TxnLog.open(tmp_path / "log", storage_options={"follow_symlinks": "true"})
    assert linked.dataset("t").to_table().num_rows == 2


def test_the_root_and_what_is_above_it_may_be_links(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "above").symlink_to(tmp_path / "real")
    (tmp_path / "root").symlink_to(tmp_path / "above" / "log")
    LocalStore(tmp_path / "above" / "log").put(KEY, b"x")
    for root in (tmp_path / "root", tmp_path / "above" / "log"):
        store = LocalStore(root)
        assert store.create(f"a/b/{root.name}", b"y").outcome is CreateOutcome.CREATED
        assert store.get(KEY) == b"x"
        store.make_durable([KEY])
        assert KEY in {info.key for info in store.list("")}


ROOTS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "a file": (
        lambda path: path.write_bytes(b""),
        "not-a-directory",
        "a file is where a directory belongs",
    ),
    "a pipe": (lambda path: os.mkfifo(path), "not-a-directory", "a file is where a directory belongs"),
    "a link to nowhere": (
        lambda path: path.symlink_to("nowhere"),
        "symbolic-link",
        "the root is a symbolic link that leads nowhere",
    ),
}


@pytest.mark.parametrize("follow", ["false", "true"])
@pytest.mark.parametrize("call", [TxnLog.open, TxnLog.create])
@pytest.mark.parametrize("name", ROOTS)
def test_a_root_that_is_no_directory_is_told_by_its_path(
    tmp_path: Path, name: str, call: Callable[..., object], follow: str
) -> None:
    make, kind, what = ROOTS[name]
    root = tmp_path / "root"
    make(root)
    with pytest.raises(StorageError, match=what) as caught:
        call(str(root), storage_options={"follow_symlinks": follow})
    assert (caught.value.kind, caught.value.values["path"]) == (kind, str(root))
    assert [one.name for one in tmp_path.iterdir()] == ["root"]


def test_a_root_that_is_missing_is_made_and_a_link_to_a_directory_serves(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        TxnLog.open(tmp_path / "root")
    TxnLog.create(tmp_path / "root").close()
    (tmp_path / "link").symlink_to("root")
    TxnLog.open(tmp_path / "link").close()


def test_a_file_is_where_a_directory_belongs(root: Path) -> None:
    """Not a link: then there is no such object, as before."""
    (root / "a" / "file").write_bytes(b"")
    store = LocalStore(root)
    assert store.get("a/file/object") is None
    assert store.head("a/file/object") is None
    with pytest.raises(NotFoundError):
        store.get_range("a/file/object", 0, 1)
    assert store.list("a/file/") == []
    store.delete("a/file/object")


# --- whoever links on purpose -------------------------------------------------------------------------------


@pytest.mark.parametrize("link", LINKS)
def test_links_are_followed_where_an_option_says_so(
    root: Path, outside: Path, link: Callable[[Path, Path], None]
) -> None:
    link(root, outside)
    store = open_store(root, storage_options={"follow_symlinks": "true"})
    assert store.get(KEY) == SECRET
    assert store.get_range(KEY, 4, 6) == b"secret"
    info = store.head(KEY)
    assert info is not None
    assert info.size == len(SECRET)
    assert store.create("a/b/new", b"x").outcome is CreateOutcome.CREATED
    assert store.get("a/b/new") == b"x"
    assert {"a/b/new", KEY} <= {info.key for info in store.list("a/b/")}
    store.delete("a/b/new")
    assert store.get("a/b/new") is None


def test_the_option_of_local_disks_is_true_or_false(tmp_path: Path) -> None:
    log = TxnLog.create(f"file://{tmp_path}/log", storage_options={"FOLLOW_SYMLINKS": "False"})
    assert log.topics() == []
    for options in ({"follow_symlinks": "yes"}, {"follow_symlinks": ""}, {"endpoint_url": "http://x"}):
        with pytest.raises(InvalidInputError) as caught:
            open_store(tmp_path, storage_options=options)
        assert caught.value.kind == "invalid-storage-option"
    with pytest.raises(InvalidInputError):
        open_store("memory://x", storage_options={"follow_symlinks": "true"})


# --- interrupts ---------------------------------------------------------------------------------------------


class Interruption(BaseException):
    """What a signal handler raises."""


@pytest.mark.parametrize("name", ["get", "get_range", "head", "list", "delete", "refused"])
def test_a_read_that_is_interrupted_at_any_point_leaves_no_descriptor(
    root: Path, outside: Path, name: str
) -> None:
    store = LocalStore(root)
    (root / "c").symlink_to(outside)

    def refused() -> None:
        with contextlib.suppress(StorageError):
            store.get("c/b/object")

    calls: dict[str, Callable[[], object]] = {
        "get": lambda: store.get("a/b/other"),
        "get_range": lambda: store.get_range("a/b/other", 0, 1),
        "head": lambda: store.head("a/b/other"),
        "list": lambda: store.list(""),
        "delete": lambda: store.delete("a/b/none"),
        "refused": refused,
    }
    call = calls[name]
    with record() as points:
        call()
    assert len(points) > 10
    before = descriptors_below(root.parent)
    for point in points:
        with contextlib.suppress(Interruption), interrupt(point, Interruption):
            call()
        assert descriptors_below(root.parent) == before, point


@pytest.mark.parametrize("prefix", ["", "a/", "a/b/", "a/b/o"])
def test_a_listing_goes_through_linked_directories_as_reads_do(
    root: Path, outside: Path, prefix: str
) -> None:
    moved = (root / "a" / "b").rename(root.parent / "moved")
    (root / "a" / "b").symlink_to(moved)
    (root / "a" / "c").symlink_to(outside)
    followed = LocalStore(root, follow_symlinks=True)
    expected = ["a/b/other", "a/c/b/object", "a/c/object"]
    assert [info.key for info in followed.list(prefix)] == [key for key in expected if key.startswith(prefix)]
    for info in followed.list(prefix):
        assert followed.head(info.key) == info
    after = [info.key for info in followed.list(prefix, start_after="a/b/other")]
    assert after == [key for key in expected[1:] if key.startswith(prefix)]
    assert LocalStore(root).list("a/c") == LocalStore(root).list("") == []


def test_links_around_a_circle_and_to_nowhere_are_passed_over(root: Path) -> None:
    (root / "a" / "b" / "up").symlink_to("..")
    (root / "a" / "b" / "root").symlink_to(root)
    (root / "a" / "b" / "self").symlink_to("self")
    (root / "a" / "nowhere").symlink_to("nobody")
    store = LocalStore(root, follow_symlinks=True)
    for prefix in ("", "a/", "a/b/", "a/b/o"):
        assert [info.key for info in store.list(prefix)] == ["a/b/other"]


@pytest.mark.parametrize("follow", [False, True])
def test_a_circle_of_links_is_told_as_one(root: Path, tmp_path: Path, follow: bool) -> None:
    """The option to follow links does not help there, and is not named."""
    (root / "a" / "b" / "object").symlink_to("object")
    (tmp_path / "loop").symlink_to("loop")
    for store in (
        LocalStore(root, follow_symlinks=follow),
        LocalStore(tmp_path / "loop", follow_symlinks=follow),
    ):
        with pytest.raises(StorageError, match="form a loop") as caught:
            store.get(KEY)
        assert caught.value.kind == "symbolic-link"
        assert "follow_symlinks" not in str(caught.value)
