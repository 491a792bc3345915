"""What setup.cfg requires, and all that those distributions require in this environment."""

from __future__ import annotations

import configparser
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

__all__ = ["EXTRAS", "closure", "own", "requires"]

ROOT = Path(__file__).resolve().parents[1]

EXTRAS = ("s3", "azure", "gcs", "encryption", "kafka", "schemas", "delta")
"""The extras whose lowest versions `make min-deps` runs, and that the bill of materials lists."""


def own(extras: tuple[str, ...] = ()) -> list[str]:
    """Return what txnlog requires, with these of its extras, as setup.cfg writes it; each line once."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    offered = config["options.extras_require"]
    texts = [config["options"]["install_requires"], *(offered[extra] for extra in extras)]
    return list(dict.fromkeys(line for text in texts for line in text.split()))


def closure(lines: list[str]) -> dict[str, Distribution]:
    """Return the distributions that are required, those of named extras included, and all that those require
    here, by canonical name."""
    found: dict[str, Distribution] = {}
    waiting: list[str] = []
    for line in lines:
        wanted = Requirement(line)
        waiting.append(canonicalize_name(wanted.name))
        for extra in wanted.extras:
            waiting += requires(distribution(wanted.name), extra)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = distribution(name)
            waiting += requires(found[name])
    return found


def requires(package: Distribution, extra: str = "") -> list[str]:
    """Return what a distribution requires here, with one of its extras or without, by canonical name."""
    requirements = [Requirement(line) for line in package.requires or ()]
    return [
        canonicalize_name(each.name)
        for each in requirements
        if each.marker is None or each.marker.evaluate({"extra": extra})
    ]
