"""The templates of deploy/rights: what every role's work asks is allowed, nothing more is given than it asks,
and the page says what a role can do."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from deploy.rights.render import HERE, names_of, rendered, templates
from tests.meta.markdown import ROOT, codes, section, tables
from tests.rights.asked import Asked, Need, clients_work, keys_work, maintenance_work
from tests.rights.judges import (
    ACTIONS,
    BLOBS,
    VALUES,
    AmazonRole,
    AzureRole,
    GoogleRole,
    Judge,
    files_of,
    filled,
    role,
)
from txnformat import keys
from txnformat.store.encrypted.documents import ring_key

CLOUDS = ("aws", "azure", "google")
ROLES = ("reader", "topic-reader", "writer", "topic-writer", "maintenance", "keys")
PAGE = (ROOT / "docs" / "rights.md").read_text(encoding="utf-8")
UUID = "01234567-89ab-4cde-8f01-23456789abcd"
HINTS = {
    Asked(Need.REPLACE, key)
    for key in (
        keys.delta_hint_key("t-0a1b2c3d"),
        keys.delta_hint_key("t-0a1b2c3d/data"),
        keys.iceberg_hint_key("t-0a1b2c3d"),
    )
}
"""Of tables: the work has too few versions for a checkpoint."""


def work(name: str) -> frozenset[Asked]:
    if name == "keys":
        return keys_work()
    return maintenance_work() | HINTS if name == "maintenance" else clients_work()[name]


def topic_of(asked: Asked) -> str | None:
    directory = asked.key.partition("/")[0]
    return directory if directory[-9:-8] == "-" else None


# --- The files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("template", templates())
def test_a_template_is_filled_in_and_names_actions_that_exist(template: str) -> None:
    text = filled(template, VALUES["TOPIC"])
    assert "@" not in text.replace(VALUES["MEMBER"], "").replace("@Request[", "").replace("@Resource[", "")
    cloud = template.partition("/")[0]
    if template.endswith(".condition"):
        assert text.count("(") == text.count(")")
        return
    document = json.loads(text)
    assert set(_actions(cloud, document)) <= ACTIONS[cloud]
    if cloud == "aws":
        assert document["Version"] == "2012-10-17"
        assert (
            len(text) < 6_144
        )  # characters of a managed policy; those of a user together have 2,048 as inline ones
        sids = [one["Sid"] for one in document["Statement"]]
        assert len(sids) == len(set(sids))
        assert all(sid.isalnum() for sid in sids)
    elif cloud == "azure":
        assert document.keys() == {
            *("Name", "IsCustom", "Description", "Actions", "NotActions", "DataActions", "NotDataActions"),
            "AssignableScopes",
        }
    elif template != "google/roles.json":
        assert document["version"] == 3  # conditions need it
        assert all(
            one.keys() <= {"role", "members", "condition"}
            and one.get("condition", {"title": "", "expression": ""}).keys() == {"title", "expression"}
            for one in document["bindings"]
        )


def _actions(cloud: str, document: Any) -> Iterator[str]:
    if cloud == "aws":
        for statement in document["Statement"]:
            yield from [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]
    elif cloud == "azure":
        yield from document["DataActions"]
    elif isinstance(document, list):
        for one in document:
            yield from one["includedPermissions"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ROOT", "log/*"),
        ("ROOT", "/log"),
        ("ROOT", "log/"),
        ("ROOT", "../log"),
        ("ROOT", ""),
        ("ROOT", "log'"),
        ("BUCKET", "*"),
        ("BUCKET", 'b"'),
        ("TOPIC", "orders"),
        ("TOPIC", "*-9a6f2a90"),
        ("TOPIC", "a/b-9a6f2a90"),
    ],
)
def test_a_name_that_would_widen_a_right_is_refused(name: str, value: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        rendered(
            "aws/topic-reader.json", {"BUCKET": "b-b", "ROOT": "log", "TOPIC": "o-9a6f2a90", name: value}
        )


def test_missing_and_foreign_names_are_refused() -> None:
    with pytest.raises(ValueError, match="ROOT is missing"):
        rendered("aws/reader.json", {"BUCKET": "b-b"})
    with pytest.raises(ValueError, match="has no TOPIC"):
        rendered("aws/reader.json", {"BUCKET": "b-b", "ROOT": "log", "TOPIC": "o-9a6f2a90"})


def test_the_program_prints_a_template_and_says_what_is_wrong() -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-I", str(HERE / "render.py"), *words],
            capture_output=True,
            text=True,
            check=False,
        )

    done = run("aws", "reader", "BUCKET=my-bucket", "ROOT=log")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == rendered("aws/reader.json", {"BUCKET": "my-bucket", "ROOT": "log"})
    wrong = run("aws", "reader", "BUCKET=my-bucket", "ROOT=log/*")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "'log/*' is not the path" in wrong.stderr
    assert all(" ".join(names_of(one)) in run().stderr for one in templates())


# --- What roles ask -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("name", ["reader", "writer", "maintenance", "keys"])
def test_a_role_may_do_what_its_work_asks(cloud: str, name: str) -> None:
    judge = role(cloud, name)
    assert {asked for asked in work(name) if not judge.allows(asked)} == set()


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("kind", ["reader", "writer"])
def test_a_role_of_one_topic_may_do_what_concerns_it_and_makes_no_record_of_another(
    cloud: str, kind: str
) -> None:
    asked = {one for one in work(kind) if one.key or one.need is not Need.LIST}
    for topic in {one for one in map(topic_of, asked) if one is not None}:
        judge = role(cloud, f"topic-{kind}", topic)
        refused = {one for one in asked if not judge.allows(one)}
        others = {one for one in asked if topic_of(one) not in (None, topic)}
        assert refused <= others
        assert {one for one in others if "/data/" in one.key and one.need is not Need.LIST} <= refused | {
            one for one in others if cloud != "aws" and one.need is Need.END_UPLOAD
        }


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("name", ["reader", "writer", "maintenance", "keys"])
def test_a_role_that_lacks_a_right_fails_its_work(cloud: str, name: str) -> None:
    """So a template has what its work asks, and no more."""
    given = list(_without_one(cloud, name))
    assert given
    for lacking, judge in given:
        if (name, lacking) == ("keys", "storage.multipartUploads.create"):
            continue  # it comes with the role that the others need
        assert any(not judge.allows(asked) for asked in work(name)), lacking


def _without_one(cloud: str, name: str) -> Iterator[tuple[str, Judge]]:
    main, *rest = [filled(template, VALUES["TOPIC"]) for template in files_of(cloud, name)]
    document = json.loads(main)
    if cloud == "aws":
        for number, statement in enumerate(document["Statement"]):
            if statement["Effect"] == "Deny":
                continue
            actions = [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]
            for action in actions:
                less = copy.deepcopy(document)
                less["Statement"][number]["Action"] = [one for one in actions if one != action]
                yield f"{statement['Sid']}: {action}", AmazonRole([less])
    elif cloud == "azure":
        for action in document["DataActions"]:
            # A new blob needs one of two rights, and the writer's condition gives each on other paths.
            less = document | {"DataActions": [one for one in document["DataActions"] if one != action]}
            yield action, AzureRole(less, *rest)
    else:
        policy = json.loads(*rest)
        used = {binding["role"] for binding in policy["bindings"]}
        for number, one in enumerate(document):
            for permission in one["includedPermissions"] if one["name"] in used else ():
                roles = copy.deepcopy(document)
                roles[number]["includedPermissions"].remove(permission)
                yield permission, GoogleRole(roles, policy)


# --- What a hostile holder can do ---------------------------------------------------------------------------

PLACES = {
    "entries": keys.entry_key(5),
    "other metadata": keys.snapshot_key(5, UUID),
    "`latest`": keys.LATEST_KEY,
    "its data": keys.data_key("t-0a1b2c3d", 1, UUID),
    "other data": keys.data_key("u-0a1b2c3d", 1, UUID),
    "sidecars": keys.sidecar_key("u-0a1b2c3d", 1, UUID, "index"),
    "key ring": ring_key(2, 0),
}
LETTERS = {"read": Need.GET, "create": Need.CREATE, "replace": Need.REPLACE, "delete": Need.DELETE}


def can(judge: Judge, key: str) -> str:
    return " ".join(letter for letter, need in LETTERS.items() if judge.allows(Asked(need, key))) or "—"


def test_the_page_says_what_every_role_can_do() -> None:
    """A role without a topic is asked for the files of any."""
    (table, azure, *_) = tables(section(PAGE, "## What a role can do"))
    assert table.header == ["role", *PLACES]
    listed = {codes(row[0])[0]: row[1:] for row in table.rows}
    found = {
        name: [can(role("aws", name), key) for key in PLACES.values()]
        for name in (*ROLES, "sealer", "vacuum")
    }
    assert listed == found
    assert {name: [can(role("google", name), key) for key in PLACES.values()] for name in ROLES} == {
        name: _as_google(found[name]) for name in ROLES
    }
    differs = {
        (name, place): can(role("azure", name), key)
        for name in ROLES
        for place, key in PLACES.items()
        if can(role("azure", name), key) != can(role("aws", name), key)
    }
    assert {(codes(row[0])[0], row[1]): row[2] for row in azure.rows} == differs


def _as_google(cells: list[str]) -> list[str]:
    """On Google the right to delete is the right to replace, and the other way round."""
    return [
        cell if "create" not in cell or not {"replace", "delete"} & set(cell.split()) else _both(cell)
        for cell in cells
    ]


def _both(cell: str) -> str:
    return " ".join(letter for letter in LETTERS if letter in cell.split() or letter in {"replace", "delete"})


def test_no_role_replaces_an_entry_of_the_chain_but_where_deleting_is_replacing() -> None:
    for cloud in CLOUDS:
        for name in ROLES:
            replaces = role(cloud, name).allows(Asked(Need.REPLACE, PLACES["entries"]))
            assert replaces == (cloud == "google" and name == "maintenance"), (cloud, name)


def test_a_blob_s_actions_are_those_of_the_judge() -> None:
    assert {action.removeprefix(f"{BLOBS}/") for action in ACTIONS["azure"]} == {
        "read",
        "write",
        "delete",
        "add/action",
    }
