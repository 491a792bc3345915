"""Writes what txnlog runs with as CycloneDX 1.5 JSON: ``python scripts/sbom.py [FILE]`` (``make sbom``).

The components are txnlog's own requirements in this environment, with all that those require; versions are
what is installed, hashes those of the lock.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.requirements import EXTRAS, closure, own, requires
from txnformat.version import __version__

ROOT = Path(__file__).resolve().parents[1]


def hashes() -> dict[tuple[str, str], list[str]]:
    """Return the SHA-256 of each locked version's files, by canonical name and version."""
    found: dict[tuple[str, str], list[str]] = {}
    for block in re.split(r"\n(?=\S)", (ROOT / "requirements-dev.lock").read_text(encoding="utf-8")):
        pin = re.match(r"([\w.-]+)==(\S+)", block)
        if pin:
            found[canonicalize_name(pin[1]), pin[2]] = re.findall(r"sha256:([0-9a-f]{64})", block)
    return found


def document() -> dict[str, Any]:
    """Return the document."""
    lines = own(EXTRAS)
    found = closure(lines)
    locked = hashes()
    itself = f"pkg:pypi/txnlog@{__version__}"

    def reference(name: str) -> str:
        return f"pkg:pypi/{name}@{found[name].version}"

    def component(name: str) -> dict[str, Any]:
        each = found[name]
        made: dict[str, Any] = {
            "type": "library",
            "bom-ref": reference(name),
            "name": name,
            "version": each.version,
            "purl": reference(name),
        }
        fields = each.metadata.json
        licence = fields.get("license_expression") or fields.get("license")
        if isinstance(licence, str) and len(licence) < 100:
            made["licenses"] = [{"license": {"name": licence}}]
        files = locked.get((name, each.version), [])
        if files:
            made["properties"] = [{"name": "txnlog:file:sha256", "value": file} for file in files]
        return made

    def depends(reference_of: str, names: list[str]) -> dict[str, Any]:
        return {"ref": reference_of, "dependsOn": sorted({reference(name) for name in names})}

    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": itself,
                "name": "txnlog",
                "version": __version__,
                "purl": itself,
            }
        },
        "components": [component(name) for name in sorted(found)],
        "dependencies": [
            depends(itself, [canonicalize_name(Requirement(line).name) for line in lines]),
            *(depends(reference(name), requires(found[name])) for name in sorted(found)),
        ],
    }


def main() -> None:
    """Write the file."""
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "txnlog.cdx.json"
    made = document()
    file.write_text(json.dumps(made, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{file.name}: {len(made['components'])} components")


if __name__ == "__main__":
    main()
