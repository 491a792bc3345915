"""The rules of plain English: which sentences of docstrings, comments and pages are refused."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator

from tests.meta.markdown import prose

__all__ = [
    "DIALECT",
    "NOBODY",
    "WORDS",
    "headless",
    "page_sentences",
    "source_texts",
    "unnamed",
    "users_strings",
]

WORDS = re.compile(r"\b(?:whoever|whomever|nobody|somebody|anybody|everybody)\b", re.IGNORECASE)
"""Subjects that could be anything."""
BEGINS = re.compile(r"(?:Who|Whom|Whose|Whoever|Whomever|What|Whatever|Nobody)\b(?!')")
"""First words of a sentence that has a clause in place of its subject."""
NOBODY = re.compile(r"(?:Who|Whom|Whose|Whoever|Whomever|Whatever|Nobody)\b(?!')")
"""The same of tests, whose claims may be noun clauses with "what"."""
HEADLESS = re.compile(r"(?:Of|By|Those|None|That(?! entry))\b")
"""First words of a fragment that does not say what a field is."""
_TURNS = (
    r"(?<!there )(?<!\bso )\b(?:is|are) no\b(?! longer\b| more than\b)",  # is not a
    r"\b(?:is|are)(?: \w+)? no more\b|\banswers no more\b",  # no longer
    r"\b(?:has|have) not the\b",  # does not have the
    r"\banew\b",  # again; rewritten
    r"\b(?:go|goes|going|went) on\b",  # continues
    r"\bgoes (?:neither )?with\b|\b(?:does|do) not go with\b",  # cannot be combined with
    r"\blets? [\w ]{1,40} go\b",  # deletes
    r"\bso long ago\b|\bfor so long\b",  # within this time
    r"\bas at first\b",  # initial, default
    r"\bunless you say\b",  # Default: …
    r"\bwhat is there\b|\bthat there (?:is|are)(?: not)?$",  # exists
    r", none of ",  # not one of
    r"\btakes (?:\w+ )?for no\b",  # does not take … for a
    r"\ballow as well that\b|\ballows? that \w",  # also allow … to
    r"\bnot concerned\b",  # not affected
    r"\bof no use\b",  # not needed
    r"\banother one than\b|\bsomething else than\b",  # not the one; other than
    r"\blooks? whether\b",  # check whether
)
DIALECT = re.compile("|".join(_TURNS), re.IGNORECASE)
"""Turns of other languages, and old English, on which readers of messages and helps stumbled. The comments
say the plain form."""
END = re.compile(r"(?<=[.!?:])[\"')*]*\s+(?=[\"'(*`]*[A-Z`])")
"""Between two sentences of a paragraph."""


def _sentences(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n|\n\s*(?=(?:[-*]|\d+\.)\s)", text):
        joined = " ".join(paragraph.split())
        joined = re.sub(r"^(?:[-*]|\d+\.)\s+", "", joined)
        yield from END.split(joined)


def unnamed(text: str, begins: re.Pattern[str] = BEGINS) -> list[str]:
    """Return the sentences of `text` that begin with Who, Whose, What and the like.

    Questions may, and the bold words with which a paragraph begins: they are its heading.
    """
    found = []
    for sentence in _sentences(text):
        plain = sentence.lstrip("\"'(*")
        is_heading = sentence.startswith("**")
        if begins.match(plain) and not is_heading and not plain.rstrip("\"')*").endswith("?"):
            found.append(sentence)
    return found


def headless(text: str) -> bool:
    """Return whether a field's docstring begins with a preposition or a pronoun in place of what the field
    is."""
    return HEADLESS.match(text.lstrip()) is not None


def source_texts(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, kind (``docstring``, ``field`` or ``comment``) and text of everything that a Python file
    says in prose."""
    tree = ast.parse(source)
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if not isinstance(node, owners):
            continue
        for index, child in enumerate(node.body):
            if (
                isinstance(child, ast.Expr)
                and isinstance(child.value, ast.Constant)
                and isinstance(child.value.value, str)
            ):
                yield child.lineno, "docstring" if index == 0 else "field", child.value.value
    block: list[str] = []
    first = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        line, column = token.start
        text = token.string.lstrip("#:").strip()
        alone = not token.line[:column].strip()
        if block and alone and line == last + 1:
            block.append(text)
        else:
            if block:
                yield first, "comment", "\n".join(block)
            block, first = [text], line
        last = line if alone else -1
    if block:
        yield first, "comment", "\n".join(block)


def users_strings(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of what users may read: string constants but docstrings, f-strings with {} for
    values, and the docstrings of commands, which are their helps."""
    tree = ast.parse(source)
    left_out: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            left_out.update(map(id, node.values))
        elif isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            left_out.update(
                id(child.value)
                for index, child in enumerate(node.body)
                if isinstance(child, ast.Expr) and not (index == 0 and _is_command(node))
            )
    for node in ast.walk(tree):
        if id(node) in left_out:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, " ".join(node.value.split())
        elif isinstance(node, ast.JoinedStr):
            parts = (str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
            yield node.lineno, " ".join("".join(parts).split())


def _is_command(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and any(
        re.search(r"\.(?:command|group)\(", ast.unparse(one)) for one in node.decorator_list
    )


def page_sentences(markdown: str) -> str:
    """Return the prose of a page without its headings and the heads of its tables; each cell is a
    paragraph.
    """
    lines = prose(markdown).splitlines()
    kept: list[str] = []
    for index, line in enumerate(lines):
        following = lines[index + 1] if index + 1 < len(lines) else ""
        if line.startswith("#") or re.match(r"\|[\s:|-]+\|?$", following):
            kept.append("")
        elif line.startswith("|"):
            kept += ["", *(cell for each in re.split(r"(?<!\\)\|", line) for cell in (each.strip(), "")), ""]
        else:
            kept.append(line)
    return "\n".join(kept)
