"""Writes the locks from the pins: each pinned version with the SHA-256 of each of its files, for
``--require-hashes``.

``python scripts/lock.py`` (``make lock``) after a change of requirements-dev.txt. The hashes come from the
index that pip is set up with; nothing is downloaded. Uses pip's own machinery, which has no public interface
for this.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pip._internal.commands import create_command
from pip._internal.index.package_finder import LinkEvaluator, LinkType
from pip._vendor.packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]

PINS = ROOT / "requirements-dev.txt"
AUDIT_PINS = ROOT / "requirements-audit.txt"
FUZZ_PINS = ROOT / "requirements-fuzz.txt"

BUILD = ("setuptools",)
"""Packages that build those without a wheel: installed before the others, so that no build downloads its own.
"""

OLDEST = ("pyspark==4.1.4", "py4j==0.10.9.9")
"""Replacements for pyspark and py4j where the oldest supported pyspark is tested."""

_PIN = re.compile(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.!+_-]+)")
_HEAD = "# Made by `make lock`. Do not edit.\n\n"


def pins(text: str) -> list[tuple[str, str]]:
    """Return name and version of each pin, in the order of the file."""
    found = (_PIN.match(line) for line in text.splitlines())
    return [(match[1], match[2]) for match in found if match]


def render(locked: Iterable[tuple[str, str, list[str]]]) -> str:
    """Return a lock's text, sorted by name."""
    lines = [_HEAD]
    for name, version, hashes in sorted(locked, key=lambda each: each[0].lower()):
        lines.append(" \\\n".join([f"{name}=={version}", *(f"    --hash=sha256:{each}" for each in hashes)]))
        lines.append("\n")
    return "".join(lines)


class Index:
    """The index that pip is set up with: every file of a version, for every platform and Python."""

    def __init__(self, command: Any) -> None:
        options, _ = command.parse_args([])
        options.find_links = []  # files of this machine have no hash of the index
        self._finder = command._build_package_finder(options, command.get_default_session(options))
        self._finder.make_link_evaluator = self._evaluator

    def hashes_of(self, name: str, version: str) -> list[str]:
        """Return the SHA-256 of each file of a version."""
        found = {
            str(candidate.link.hash)
            for candidate in self._finder.find_all_candidates(name)
            if str(candidate.version) == version and candidate.link.hash_name == "sha256"
        }
        if not found:
            raise SystemExit(f"txnlog: the index has no file with a SHA-256 of {name} {version}")
        return sorted(found)

    def _evaluator(self, name: str) -> LinkEvaluator:
        class Every(LinkEvaluator):
            def evaluate_link(self, link: Any) -> Any:
                found = _version_of(link.filename)
                if found is None:
                    return LinkType.format_unsupported, "no package"
                return LinkType.candidate, found

        return Every(
            project_name=name,
            canonical_name=canonicalize_name(name),
            formats=frozenset({"binary", "source"}),
            target_python=self._finder.target_python,
            allow_yanked=True,
        )


def _version_of(file: str) -> str | None:
    """Return the version that the name of a wheel or a source archive tells."""
    if file.endswith(".whl"):
        return file.split("-")[1]
    stem = re.fullmatch(r"(.*)-([^-]+)\.(?:tar\.gz|zip)", file)
    return stem[2] if stem else None


def locks() -> dict[str, list[tuple[str, str]]]:
    """Return what each lock has: names and versions."""
    development = pins(PINS.read_text(encoding="utf-8"))
    return {
        "requirements-dev.lock": development,
        "requirements-build.lock": [pin for pin in development if pin[0] in BUILD],
        "requirements-oldest-pyspark.lock": pins("\n".join(OLDEST)),
        "requirements-audit.lock": pins(AUDIT_PINS.read_text(encoding="utf-8")),
        "requirements-fuzz.lock": pins(FUZZ_PINS.read_text(encoding="utf-8")),
    }


def main() -> None:
    """Write the locks."""
    command = create_command("download")
    known: dict[tuple[str, str], list[str]] = {}
    with command.main_context():
        index = Index(command)
        for file, wanted in locks().items():
            for pin in wanted:
                known[pin] = known.get(pin) or index.hashes_of(*pin)
            text = render([(*pin, known[pin]) for pin in wanted])
            (ROOT / file).write_text(text, encoding="utf-8")
    print(f"{len(known)} versions, {sum(map(len, known.values()))} files", file=sys.stderr)


if __name__ == "__main__":
    main()
