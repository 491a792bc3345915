"""What is installed: its packages, what it needs, and what it says when another package is in its way."""

from __future__ import annotations

import configparser
import os
import re
import select
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from scripts.newcomer import CONTAINER, START, container, shell_blocks
from scripts.release import build, problems
from tests.meta.pages import page as page_text
from txnlog import TxnLog
from txnlog.cli.app import application
from txnlog.neighbours import NEIGHBOURS

ROOT = Path(__file__).resolve().parents[2]
S3 = ("s3fs", "botocore", "aiobotocore", "aiohttp", "fsspec")


def _run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist and the wheel."""
    return build(ROOT, tmp_path_factory.mktemp("dist"))


def test_an_sdist_has_the_sources_and_gives_a_wheel_of_nothing_but_our_packages(
    built: tuple[Path, Path],
) -> None:
    assert problems(*built) == []


def test_what_a_wheel_lacks_or_has_too_much_is_named(built: tuple[Path, Path], tmp_path: Path) -> None:
    sdist, wheel = built
    other = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(other, "w") as new:
        new.writestr("tests/__init__.py", "")
        for name in old.namelist():
            if name != "txnlog/py.typed":
                new.writestr(name, old.read(name))
    found = problems(sdist, other)
    assert [re.sub(r"\[.*", "[…]", each) for each in found] == [
        f"{wheel.name} has […]",
        f"{wheel.name} has no txnlog/py.typed",
    ]


def test_the_wheel_says_what_it_needs(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[1]) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        lines = archive.read(name).decode().splitlines()
    assert "License-Expression: Apache-2.0" in lines
    needed = {
        re.split("[>=]", line.removeprefix("Requires-Dist: "))[0]
        for line in lines
        if line.startswith("Requires-Dist: ") and "extra" not in line
    }
    assert needed == {"click", "msgspec", "numpy", "pyarrow", "rich", "sqlglot", "zlib-ng"}
    assert {"s3", "spark", "connect", "plot", "testing", "demo"} <= {
        line.removeprefix("Provides-Extra: ") for line in lines
    }


def test_a_log_on_disk_needs_nothing_of_s3_and_s3_says_what_it_needs(tmp_path: Path) -> None:
    done = _run(
        f"""
import sys
sys.modules.update(dict.fromkeys({S3!r}))  # as if they were not installed
import pyarrow as pa
from txnlog import Consumer, Producer, TxnLog
with TxnLog.create("log") as log:
    log.create_topic("t", pa.schema([("n", pa.int64())]))
    with Producer(log, "id") as producer, producer.transaction() as txn:
        txn.send("t", [{{"n": 1}}])
    assert log.read("t", columns=["n"]).read_all().to_pylist() == [{{"n": 1}}]
    log.maintain("seal")
TxnLog.open("s3://bucket/log")
""",
        tmp_path,
    )
    (message,) = (
        line for line in done.stderr.splitlines() if line.startswith("txnformat.errors.UnsupportedStoreError")
    )
    assert message.endswith(
        "s3:// needs a package that is not installed: botocore: scheme=`s3`; pip install 'txnlog[s3]' for "
        "the Python that runs this; "
        "for Spark on its executors, too"
    )


@pytest.mark.parametrize("name", NEIGHBOURS)
@pytest.mark.parametrize("file", ["{}.py", "{}/__init__.py"])
def test_a_file_of_the_user_that_hides_one_of_our_packages_is_named(
    name: str, file: str, tmp_path: Path
) -> None:
    hiding = tmp_path / file.format(name)
    hiding.parent.mkdir(exist_ok=True)
    hiding.touch()
    done = _run("import txnlog", tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: {hiding} hides txnlog's own package '{name}', because Python finds it first: "
        "rename it, or start Python where its "
        "folder is not on sys.path"
    )


def test_a_package_that_was_imported_before_is_seen_and_a_missing_one_as_well(tmp_path: Path) -> None:
    (tmp_path / "writers.py").touch()
    done = _run("import sys, writers; sys.path.remove(''); import txnlog", tmp_path)
    assert f"{tmp_path}/writers.py hides txnlog's own package 'writers'" in done.stderr
    done = _run(
        f"import sys; from zipfile import ZipFile\nfor name in ('txnlog/__init__.py', "
        f"'txnlog/neighbours.py', 'txnlog/__init__.pyi', 'txnformat/__init__.py'):\n"
        f"    ZipFile('own.zip', 'a').write({str(ROOT)!r} + '/' + name, name)\n"
        "sys.path[:] = ['own.zip', *(each for each in sys.path if each not in ('', "
        f"{str(ROOT)!r}))]\nimport txnlog",
        tmp_path,
    )
    assert (
        "txnlog's own package 'writers' is missing beside own.zip/txnlog: install txnlog again" in done.stderr
    )


def test_a_folder_of_data_by_the_same_name_and_a_link_to_the_checkout_hide_nothing(tmp_path: Path) -> None:
    (tmp_path / "writers").mkdir()
    assert _run("import txnlog; txnlog.Producer", tmp_path).returncode == 0
    (tmp_path / "link").symlink_to(ROOT)
    done = _run(
        f"import sys; sys.path.insert(0, 'link'); import writers; sys.path.insert(0, {str(ROOT)!r}); "
        "import txnlog",
        tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_container_runs_commands_that_work_and_end_when_it_is_stopped(tmp_path: Path) -> None:
    parts = container((ROOT / CONTAINER).read_text(encoding="utf-8"))
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    assert set(parts.extras.split(",")) <= config["options.extras_require"].keys()
    assert parts.entry == ["txnlog"]
    (page,) = parts.others
    assert page[0] == "ui"
    assert CliRunner().invoke(application, [*page, "--help"]).exit_code == 0
    TxnLog.create(tmp_path / "log").close()
    program = [sys.executable, "-c", "from txnlog.cli.app import main; main()"]
    with subprocess.Popen(
        [*program, *parts.command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "TXNLOG_ROOT": str(tmp_path / "log"), "PYTHONUNBUFFERED": ""},
        text=True,
    ) as service:
        assert service.stdout is not None
        shown, _, _ = select.select([service.stdout], [], [], 120)  # before the next round, a minute later
        first = service.stdout.readline() if shown else "nothing: "
        service.send_signal(signal.SIGTERM)
        rest = service.communicate()[0]
    assert service.returncode == 0, first + rest
    assert shown, first + rest


def test_a_new_user_finds_the_commands_that_are_tried_with_each_wheel() -> None:
    (install, look), serving = shell_blocks(page_text(START))
    assert "'.[spark,ui]'" in install
    assert install.splitlines()[-1].startswith("txnlog doctor")
    assert "txnlog report" in look
    assert serving == ["txnlog ui"]


def test_the_workflows_run_what_a_checkout_has() -> None:
    targets = set(
        re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    for path in sorted((ROOT / ".github" / "workflows").iterdir()):
        text = path.read_text(encoding="utf-8")
        assert set(re.findall(r"run: make (\S+)", text)) <= targets
        assert all((ROOT / name).exists() for name in re.findall(r"run: bash (\S+)", text))
