"""Protobuf's compiler, run for a ``.proto`` file."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from txnformat.errors import UnsupportedFeatureError
from txnlog.schemas.walk import invalid

__all__ = ["compiled"]

TIMEOUT_S = 60


def compiled(path: Path) -> bytes:
    """Return the set of descriptors of a ``.proto`` file, with those that it imports from its directory.

    Raises InvalidInputError (``invalid-schema``): what the compiler says; UnsupportedFeatureError
    (``missing-package``): there is no compiler.
    """
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "set")
        command = [
            *_compiler(),
            "--proto_path=.",
            "--include_imports",
            f"--descriptor_set_out={target}",
            f"./{path.name}",
        ]
        known = os.pathsep.join(str(Path(part).absolute()) for part in sys.path if part)
        try:
            done = subprocess.run(
                command,
                cwd=path.absolute().parent,
                env={**os.environ, "PYTHONPATH": known},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise invalid(f"Protobuf's compiler did not end within {TIMEOUT_S} s") from None
        if done.returncode == 0 and target.exists():
            return target.read_bytes()
        told = done.stderr.decode("utf-8", "replace").strip() or f"it ended with status {done.returncode}"
    raise invalid(
        f"Protobuf's compiler refuses the file: {told.replace(chr(10), '; '):.500}",
        "files that it imports are looked for in its directory; else give a set of descriptors "
        "(protoc --include_imports --descriptor_set_out=FILE.desc)",
    )


def _compiler() -> list[str]:
    if importlib.util.find_spec("grpc_tools") is not None:
        return [
            sys.executable,
            "-P",
            "-m",
            "grpc_tools.protoc",
        ]  # -P: no module comes from the file's directory
    found = shutil.which("protoc")
    if found is None:
        raise UnsupportedFeatureError(
            "a .proto file needs Protobuf's compiler, which is not installed",
            kind="missing-package",
            hint="pip install 'txnlog[schemas]', or put protoc on the PATH; or give a set of descriptors "
            "(protoc --include_imports --descriptor_set_out=FILE.desc)",
        )
    return [found]
