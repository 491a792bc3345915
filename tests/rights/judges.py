"""Judges of rights: whether a role of deploy/rights allows a request, by the rules that each cloud documents.

Each judge knows the part of its cloud's language that the templates use, and refuses all else. The documents:

* Amazon S3: "Actions, resources, and condition keys" and "Enforce conditional writes on Amazon S3 buckets". A
  PutObject has the key ``s3:if-none-match`` if it has the header, and ``s3:ObjectCreationOperation``, which
  is false for the parts of an upload. A key that is missing answers 404 to those that may list its name, else
  403.
* Azure: "Permissions for calling data operations" (Put Blob: ``blobs/write``, or ``blobs/add/action`` for a
  new blob; Put Block and Put Block List: ``blobs/write``), "Actions and attributes for Azure role assignment
  conditions for Azure Blob Storage".
* Google: "IAM permissions for XML methods" (an upload that replaces an object needs
  ``storage.objects.delete`` as well), "IAM Conditions".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from deploy.rights.render import names_of, rendered
from tests.rights.asked import Asked, Need

__all__ = [
    "ACTIONS",
    "BLOBS",
    "VALUES",
    "AmazonRole",
    "AzureRole",
    "Call",
    "GoogleRole",
    "Judge",
    "files_of",
    "filled",
    "role",
]

ROOT = "logs/log"
VALUES = {
    "BUCKET": "my-bucket",
    "ROOT": ROOT,
    "TOPIC": "t-0a1b2c3d",
    "SUBSCRIPTION": "0a1b2c3d-0000-4000-8000-000000000000",
    "GROUP": "my-group",
    "PROJECT": "my-project",
    "MEMBER": "serviceAccount:writer@my-project.iam.gserviceaccount.com",
}
BLOBS = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs"

ACTIONS: Mapping[str, set[str]] = {
    "aws": {
        "s3:AbortMultipartUpload",
        "s3:DeleteObject",
        "s3:GetBucketVersioning",
        "s3:GetObject",
        "s3:ListBucket",
        "s3:ListBucketMultipartUploads",
        "s3:PutObject",
    },
    "azure": {f"{BLOBS}/{action}" for action in ("read", "write", "delete", "add/action")},
    "google": {
        "storage.multipartUploads.create",
        "storage.objects.create",
        "storage.objects.delete",
        "storage.objects.get",
        "storage.objects.list",
    },
}
"""Actions that the templates may name: each stands in its cloud's reference."""


def filled(template: str, topic: str) -> str:
    """Return a template with the names of the tests."""
    values = VALUES | {"TOPIC": topic}
    return rendered(template, {name: values[name] for name in names_of(template)})


class Judge(Protocol):
    """A role of one cloud."""

    def allows(self, asked: Asked) -> bool:
        """Return whether the role may make a request."""
        ...


def role(cloud: str, name: str, topic: str = VALUES["TOPIC"]) -> Judge:
    """Return a role with the names of the tests."""
    main, *rest = [filled(template, topic) for template in files_of(cloud, name)]
    if cloud == "aws":
        return AmazonRole([json.loads(main)])
    if cloud == "azure":
        return AzureRole(json.loads(main), *rest)
    return GoogleRole(json.loads(main), *map(json.loads, rest))


def files_of(cloud: str, name: str) -> list[str]:
    """Return the templates of a role, the one with its actions first."""
    if cloud == "aws":
        return [f"aws/{name}.json"]
    if cloud == "azure":
        return [f"azure/{name.removeprefix('topic-')}.json", f"azure/{name}.condition"]
    return ["google/roles.json", f"google/{name}.json"]


# --- Amazon -------------------------------------------------------------------------------------------------


class Call(NamedTuple):
    """One action on one resource, with the keys of its request."""

    action: str
    resource: str
    keys: Mapping[str, str] = {}


@dataclass(frozen=True)
class AmazonRole:
    """Policies that count together: what one denies is denied, what none allows is denied."""

    policies: Sequence[Mapping[str, Any]]
    bucket: str = VALUES["BUCKET"]
    root: str = ROOT

    def allows(self, asked: Asked) -> bool:
        return all(self.permits(call) for call in self.calls(asked))

    def calls(self, asked: Asked) -> list[Call]:
        bucket = f"arn:aws:s3:::{self.bucket}"
        full = f"{self.root}/{asked.key}"
        key = f"{bucket}/{full}"
        created = {"s3:ObjectCreationOperation": "true", "s3:if-none-match": "*"}
        listed = Call("s3:ListBucket", bucket, {"s3:prefix": full})
        match asked.need:
            case Need.GET:
                return [Call("s3:GetObject", key), listed]
            case Need.LIST:
                return [listed]
            case Need.CREATE:
                return [Call("s3:PutObject", key, created)]
            case Need.REPLACE:
                return [Call("s3:PutObject", key, {"s3:ObjectCreationOperation": "true"})]
            case Need.PARTS:
                part = {"s3:ObjectCreationOperation": "false"}
                return [Call("s3:PutObject", key, part), Call("s3:PutObject", key, created)]
            case Need.DELETE:
                return [Call("s3:DeleteObject", key)]
            case Need.LIST_UPLOADS:
                return [Call("s3:ListBucketMultipartUploads", bucket, {"s3:prefix": full})]
            case Need.END_UPLOAD:
                return [Call("s3:AbortMultipartUpload", key)]
            case Need.VERSIONS:
                return [Call("s3:GetBucketVersioning", bucket)]

    def permits(self, call: Call) -> bool:
        """Return whether the policies let one call through."""
        effects = {
            statement["Effect"]
            for policy in self.policies
            for statement in policy["Statement"]
            if self._concerns(statement, call)
        }
        return effects == {"Allow"}

    def _concerns(self, statement: Mapping[str, Any], call: Call) -> bool:
        assert statement.keys() <= {"Sid", "Effect", "Principal", "Action", "Resource", "Condition"}
        return (
            any(_like(pattern, call.action) for pattern in _several(statement["Action"]))
            and any(_like(pattern, call.resource) for pattern in _several(statement["Resource"]))
            and all(
                _holds(operator, key, value, call.keys)
                for operator, pairs in statement.get("Condition", {}).items()
                for key, value in pairs.items()
            )
        )


def _several(value: str | Sequence[str]) -> Sequence[str]:
    return [value] if isinstance(value, str) else value


def _like(pattern: str, text: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), text) is not None


def _holds(operator: str, key: str, value: str, keys: Mapping[str, str]) -> bool:
    match operator:
        case "Null":
            return (key not in keys) == (value == "true")
        case "Bool":
            return keys.get(key) == value
        case "StringLike":
            return key in keys and _like(value, keys[key])
        case _:
            raise AssertionError(f"the judge does not know {operator}")


# --- Azure --------------------------------------------------------------------------------------------------


class BlobCall(NamedTuple):
    """One operation on a blob or a container."""

    action: str
    path: str
    is_listing: bool = False


class AzureRole:
    """A role definition, given with a condition."""

    def __init__(self, definition: Mapping[str, Any], condition: str) -> None:
        self.actions = set(definition["DataActions"]) - set(definition["NotDataActions"])
        self.condition = Condition(condition)

    def allows(self, asked: Asked) -> bool:
        path = f"{ROOT}/{asked.key}"
        match asked.need:
            case Need.GET:
                return self._permits(BlobCall("read", path))
            case Need.LIST:
                return self._permits(BlobCall("read", path, is_listing=True))
            case Need.CREATE:
                return self._permits(BlobCall("add/action", path)) or self._permits(BlobCall("write", path))
            case Need.REPLACE | Need.PARTS:
                return self._permits(BlobCall("write", path))
            case Need.DELETE:
                return self._permits(BlobCall("delete", path))
            case Need.LIST_UPLOADS | Need.END_UPLOAD | Need.VERSIONS:
                return True  # the adapter makes no such request

    def _permits(self, call: BlobCall) -> bool:
        return f"{BLOBS}/{call.action}" in self.actions and self.condition.holds(call)


_TOKEN = re.compile(
    r"\s*(?:(?P<word>AND|OR|NOT|!|\(|\))"
    r"|(?P<matches>ActionMatches|SubOperationMatches)\{'(?P<action>[^']*)'\}"
    r"|@(?P<source>Request|Resource)\[(?P<attribute>[^\]]*)\] "
    r"(?P<operator>StringLike|StringNotLike|StringStartsWith) '(?P<value>[^']*)')"
)


class Condition:
    """A condition of a role assignment: ``AND`` binds closer than ``OR``."""

    def __init__(self, text: str) -> None:
        self._tokens: list[re.Match[str]] = []
        at = 0
        text = text.rstrip()
        while at < len(text):
            found = _TOKEN.match(text, at)
            assert found is not None, text[at : at + 60]
            self._tokens.append(found)
            at = found.end()

    def holds(self, call: BlobCall) -> bool:
        """Return whether it lets an operation through."""
        value, rest = self._either(0, call)
        assert rest == len(self._tokens)
        return value

    def _word(self, at: int) -> str | None:
        return self._tokens[at]["word"] if at < len(self._tokens) else None

    def _either(self, at: int, call: BlobCall) -> tuple[bool, int]:
        value, at = self._both(at, call)
        while self._word(at) == "OR":
            other, at = self._both(at + 1, call)
            value = value or other
        return value, at

    def _both(self, at: int, call: BlobCall) -> tuple[bool, int]:
        value, at = self._one(at, call)
        while self._word(at) == "AND":
            other, at = self._one(at + 1, call)
            value = value and other
        return value, at

    def _one(self, at: int, call: BlobCall) -> tuple[bool, int]:
        word, token = self._word(at), self._tokens[at]
        if word in {"!", "NOT"}:
            value, at = self._one(at + 1, call)
            return not value, at
        if word == "(":
            value, at = self._either(at + 1, call)
            assert self._word(at) == ")"
            return value, at + 1
        if token["matches"] == "ActionMatches":
            return token["action"] == f"{BLOBS}/{call.action}", at + 1
        if token["matches"] == "SubOperationMatches":
            assert token["action"] == "Blob.List"
            return call.is_listing, at + 1
        return self._compared(token, call), at + 1

    def _compared(self, token: re.Match[str], call: BlobCall) -> bool:
        # A listing has a prefix and no path; every other operation has a path.
        wanted = ("Request", f"{BLOBS}:prefix") if call.is_listing else ("Resource", f"{BLOBS}:path")
        if (token["source"], token["attribute"]) != wanted:
            return False
        if token["operator"] in {"StringLike", "StringNotLike"}:
            return _like(token["value"], call.path) == (token["operator"] == "StringLike")
        return call.path.startswith(token["value"])


# --- Google -------------------------------------------------------------------------------------------------

_TERM = re.compile(
    r'resource\.name(?:\.startsWith\("(?P<start>[^"]+)"\)| == '
    r'"(?P<same>[^"]+)"|\.extract\("(?P<before>[^"{]+)\{[a-z]+\}(?P<after>[^"{]+)"\) != "")'
)


class GoogleRole:
    """Bindings of custom roles to one account."""

    def __init__(self, roles: Sequence[Mapping[str, Any]], policy: Mapping[str, Any]) -> None:
        permissions = {role["name"]: set(role["includedPermissions"]) for role in roles}
        self._bindings = [
            (permissions[binding["role"]], binding.get("condition", {}).get("expression"))
            for binding in policy["bindings"]
        ]

    def allows(self, asked: Asked) -> bool:
        name = f"projects/_/buckets/{VALUES['BUCKET']}/objects/{ROOT}/{asked.key}"
        create = ["storage.objects.create"]
        parts = [*create, "storage.multipartUploads.create"]
        match asked.need:
            case Need.GET:
                return self._permits(name, "storage.objects.get")
            case Need.LIST:
                return self._permits(name.partition("/objects/")[0], "storage.objects.list")
            case Need.CREATE:
                return self._permits(name, *create)
            case Need.REPLACE:
                return self._permits(name, *create, "storage.objects.delete")
            case Need.PARTS:
                return self._permits(name, *parts)
            case Need.DELETE:
                return self._permits(name, "storage.objects.delete")
            case Need.LIST_UPLOADS | Need.END_UPLOAD | Need.VERSIONS:
                return True  # the adapter makes no such request

    def _permits(self, name: str, *permissions: str) -> bool:
        return all(
            any(
                permission in permitted and (expression is None or self._holds(expression, name))
                for permitted, expression in self._bindings
            )
            for permission in permissions
        )

    def _holds(self, expression: str, name: str) -> bool:
        allowed, _, but = expression.partition(" && !")
        some = allowed.removeprefix("(").removesuffix(")") if " || " in allowed and but else allowed
        return any(self._term(term, name) for term in some.split(" || ")) and not (
            but and self._term(but, name)
        )

    def _term(self, term: str, name: str) -> bool:
        found = _TERM.fullmatch(term)
        assert found is not None, term
        if found["start"]:
            return name.startswith(found["start"])
        if found["same"]:
            return name == found["same"]
        _, before, rest = name.partition(found["before"])
        between, after, _ = rest.partition(found["after"])
        return bool(before and after and between)
