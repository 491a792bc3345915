"""Quotes of CSV, which pyarrow does not check: of ``"a"b`` it makes ``ab``."""

from __future__ import annotations

import re

__all__ = ["Quotes"]

KEPT_MAX = 2**25
"""Characters of one value that are kept to find its end; pyarrow reads no row of this size."""
PROBLEMS_MAX = 20


class Quotes:
    """Looks through a text, piece by piece, for what stands behind the closing quote of a value."""

    def __init__(self, delimiter: str) -> None:
        ends = re.escape(delimiter) + r"\r\n"
        # A quote elsewhere in a value is a character as any other. Behind the last quote of the text another
        # may come.
        self._quoted = re.compile(
            rf'(?<=[{ends}])"[^"]*+(?:""[^"]*+)*+(?:"(?P<more>[^{ends}"][^{ends}]{{0,40}})|"(?=[{ends}])|(?P<open>"?\Z))'
        )
        self._rest = "\n"  # what was not looked through yet, and the character before it
        self._line = 0
        self._is_first = True
        self.is_open = False
        """Whether the text ends inside a value."""
        self.problems: list[str] = []
        """In the order of the text, each with its line."""

    def feed(self, piece: str) -> None:
        """Take the next piece of the text."""
        if self._is_first and piece:
            piece, self._is_first = piece.removeprefix("\ufeff"), False
        text = self._rest + piece
        if len(self._rest) > KEPT_MAX or len(self.problems) >= PROBLEMS_MAX:
            return  # there is enough to say, or pyarrow says it
        self.is_open = False
        done, line = 0, self._line
        for found in self._quoted.finditer(text) if '"' in text else ():
            start = found.start()
            line += text.count("\n", done, start)
            done = start
            if found["open"] is not None:
                self.is_open = not found["open"]
                self._rest, self._line = text[start - 1 :], line - (text[start - 1] == "\n")
                return
            if found["more"]:
                shown = f"{found[0][:40]}{'…' if len(found[0]) > 40 else ''}"
                self.problems.append(
                    f"line {line}: text stands behind a closing quote: {shown!r}; write a quote inside a "
                    "value twice"
                )
        self._rest = text[-1:]
        self._line = line + text.count("\n", done, len(text) - 1)
