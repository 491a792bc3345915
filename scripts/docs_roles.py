"""A part of the API reference (scripts/docs_site.py): roles of docstrings, such as ``:meth:``, as
Markdown.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

__all__ = ["Roles"]

_ROLE = re.compile(r":(?:meth|class|func|attr|mod|exc|data):`~?([^`]+)`")


class Roles(griffe.Extension):
    """Makes names in backquotes of ``:meth:`` and the like."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Change the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = _ROLE.sub(r"`\1`", obj.docstring.value)
