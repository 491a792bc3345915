"""Rules that every source file keeps."""

from __future__ import annotations

import ast
import importlib
import io
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("pyspark_txnlog", "spark_datasource", "txnformat", "txnlog", "writers")
PACKAGES = tuple(sorted((*PRODUCT, "txnlog_testing")))
CODE_LINES_MAX = 400
"""Of a module of the product: comments, docstrings and blank lines are not counted."""

LINES_MAX = 500
"""Of every file, the test kit and tests too: docstrings are not counted."""

MODULES_MAX = 20

FILES = sorted(
    path.relative_to(ROOT)
    for folder in (*PACKAGES, "bench", "demo", "tests")
    for path in (ROOT / folder).rglob("*.py")
)


FOLDERS = sorted({path.parent for path in FILES if path.parts[0] in {*PACKAGES, "bench"}})


@pytest.mark.parametrize("folder", FOLDERS, ids=str)
def test_no_package_has_more_than_20_modules(folder: Path) -> None:
    count = len([path for path in FILES if path.parent == folder])
    assert count <= MODULES_MAX, f"{folder} has {count} modules: make rooms by concern"


def _module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _exported(path: Path) -> list[str] | None:
    """Return the literal ``__all__`` of a file, or None when it has none."""
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            return [str(name) for name in ast.literal_eval(node.value)]  # type: ignore[attr-defined]  # an Assign
    return None


def _constants_then_classes_then_the_rest(name: str) -> tuple[int, str]:
    """Ruff's order (RUF022)."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


PUBLIC = [
    path
    for path in FILES
    if path.parts[0] in PACKAGES and (path.name == "__init__.py" or not path.name.startswith("_"))
]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_is_there_and_typed(package: str) -> None:
    assert (ROOT / package / "__init__.py").is_file()
    assert (ROOT / package / "py.typed").is_file()


def _docstring_lines(source: str) -> set[int]:
    """Return the lines of a file that are strings that stand alone: docstrings of modules, functions and
    fields."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def _code_lines(source: str) -> set[int]:
    """Return the lines of a file that hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return lines - _docstring_lines(source)


@pytest.mark.parametrize("path", FILES, ids=str)
def test_no_file_is_longer_than_500_lines_without_its_docstrings(path: Path) -> None:
    source = (ROOT / path).read_text(encoding="utf-8")
    count = len(source.splitlines()) - len(_docstring_lines(source))
    assert count <= LINES_MAX, f"{path} has {count} lines: split it by concept"


def test_comments_docstrings_and_blank_lines_are_no_code() -> None:
    source = (
        '"""Text\nof two lines."""\n\n# why\nx = """a\nb"""  # what\n\ndef f():\n    """Text."""\n   '
        " return x\n"
    )
    assert _code_lines(source) == {5, 6, 8, 10}


@pytest.mark.parametrize("path", [path for path in FILES if path.parts[0] in PRODUCT], ids=str)
def test_no_module_of_the_product_has_more_than_400_lines_of_code(path: Path) -> None:
    count = len(_code_lines((ROOT / path).read_text(encoding="utf-8")))
    assert count <= CODE_LINES_MAX, f"{path} has {count} lines of code: split it by concept"


@pytest.mark.parametrize("path", PUBLIC, ids=str)
def test_exported_names_are_declared_sorted_and_there(path: Path) -> None:
    exported = _exported(path)
    if path.name in {"__init__.py", "__main__.py"} and exported is None:
        return  # a package that only groups its modules, or a command
    assert exported is not None, f"{path} declares no __all__"
    assert exported == sorted(set(exported), key=_constants_then_classes_then_the_rest)
    module = importlib.import_module(_module_name(path))
    missing = [name for name in exported if not hasattr(module, name)]
    assert not missing


def _imported(path: Path) -> set[str]:
    """Return every module that a file imports, anywhere in it, and every name that it takes from one."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def test_nothing_is_imported_from_a_test_file() -> None:
    """What tests share is in a module of its own: an import of a test file would run its module twice, and
    tie two tests."""
    tests = {_module_name(path) for path in FILES if path.name.startswith("test_")}
    assert tests
    imports = {str(path): _imported(path) for path in FILES}
    found = {
        (path, name)
        for path, names in imports.items()
        for name in names
        if name in tests or name.rpartition(".")[0] in tests
    }
    assert not found
