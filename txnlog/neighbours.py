"""The packages beside this one: ``txnformat``, ``writers`` and ``spark_datasource`` are names that a user's
folder may have, too.
"""

import sys
from importlib.machinery import PathFinder
from os import path

__all__ = ["NEIGHBOURS", "check_neighbours"]

NEIGHBOURS = ("txnformat", "writers", "spark_datasource")
"""Top-level packages of the distribution that ``txnlog`` imports."""


def check_neighbours(own: str) -> None:
    """Raise ImportError if Python finds another package, or none, by the name of one of ours.

    Parameters
    ----------
    own : str
        The directory of this package: the others stand beside it, in a checkout, in ``site-packages`` and in
        a zip file.
    """
    for name in NEIGHBOURS:
        expected = path.join(path.dirname(own), name)  # noqa: PTH118, PTH120  # pathlib takes milliseconds of each import
        found = _origin(name)
        if found is None:
            raise ImportError(
                f"txnlog's own package {name!r} is missing beside {own}: install txnlog again, or put all "
                "of its packages into the zip file",
                name=name,
            )
        if path.realpath(path.dirname(found)) != path.realpath(expected):  # noqa: PTH120
            raise ImportError(
                f"{found} hides txnlog's own package {name!r}, because Python finds it first: rename it, "
                "or start Python where its folder is not "
                "on sys.path",
                name=name,
                path=found,
            )


def _origin(name: str) -> str | None:
    """Return the file of a top-level package, of the one that is imported already if there is one."""
    if (module := sys.modules.get(name)) is not None:
        return getattr(module, "__file__", None) or f"a module {name!r} without a file"
    spec = PathFinder.find_spec(name)
    if spec is None:
        return None
    return spec.origin or next(
        iter(spec.submodule_search_locations or ()), None
    )  # a folder without __init__.py
