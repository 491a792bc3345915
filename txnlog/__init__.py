"""The names that users import, and the command ``txnlog``.

``__init__.pyi`` lists the names, for type checkers and for this module, which loads each when it is first
used: most need pyarrow, and ``txnlog --help`` answers at once. Start reading in the module that the list
gives for a name. ``cli`` is the command; it does nothing that the library cannot.

May import: ``spark_datasource``, ``writers`` and ``txnformat``; ``spark_datasource`` only when one of its
names is used.
"""

import ast
from importlib import import_module
from pkgutil import get_data
from typing import Any

from txnlog.neighbours import check_neighbours

check_neighbours(__path__[0])

_MODULES = {
    alias.name: node.module
    for node in ast.parse(get_data(__name__, "__init__.pyi") or b"").body
    if isinstance(node, ast.ImportFrom) and node.module
    for alias in node.names
}
"""The module of each name."""

__all__: list[str] = sorted(_MODULES)  # noqa: PLE0605  # the stub has the names


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
