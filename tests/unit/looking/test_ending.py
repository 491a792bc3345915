"""The command that ends a transaction is one that can be pasted."""

from __future__ import annotations

import shlex
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txnformat.looking.ending import ending_command, quoted

NAMES = [
    "plain",
    "with space",
    "it's",
    "$(rm -rf ~)",
    "`id`",
    "a;b",
    "-x",
    "",
    "ü",
    "\x1b[31m",
    "two\nlines",
    "\u202etxt",
    "\\",
    "a'\x07b\\",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_one_word_to_a_shell(name: str) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not here")
    environment = {"LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        [bash, "--norc", "-c", f"printf %s {quoted(name)}"], capture_output=True, check=True, env=environment
    )
    assert done.stdout.decode() == name


@given(st.text(st.characters(exclude_categories=["Cs"]).filter(lambda one: one != "\0")))
def test_a_command_has_no_character_that_a_terminal_acts_on(name: str) -> None:
    command = ending_command("open", name, "s3://bucket/log")
    assert command.isprintable()
    if name.isprintable():
        words = shlex.split(command)
        assert words[-1] == name
        assert words[:5] == ["txnlog", "transactions", "abort", "--root", "s3://bucket/log"]


@pytest.mark.parametrize(("status", "call"), [("open", "abort"), ("prepared", "force_terminate")])
def test_an_id_with_a_nul_has_a_command_that_ends_no_other_id(status: str, call: str) -> None:
    """A shell cuts a word at NUL, and what stands before it may be another id."""
    program, option, code = shlex.split(ending_command(status, "payroll\0x", "/log"))
    assert (program, option) == ("python", "-c")
    assert code == f"import txnlog; txnlog.TxnLog.open('/log').transactions.{call}('payroll\\x00x')"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("open", "txnlog transactions abort --root /log -- -x"),
        ("prepared", "txnlog transactions force-terminate --root /log -- -x"),
        ("late", "txnlog transactions end-expired --root /log"),
        ("hanging", "txnlog verify --root /log"),
    ],
)
def test_each_status_has_its_command(status: str, expected: str) -> None:
    assert ending_command(status, "-x", "/log") == expected
