"""Pictures of docs/img: SVG that stands alone, is readable in light and in dark, and is drawn from a few
shapes.

A picture carries its colours for both schemes and its own background, so that it can be read wherever it is
shown.
"""

from __future__ import annotations

from html import escape

__all__ = ["SCHEMES", "Canvas", "contrast"]

SCHEMES: dict[str, dict[str, str]] = {
    "light": {
        "ground": "#ffffff", "frame": "#d0d7de", "ink": "#1f2328", "pale": "#59636e", "plain": "#f3f5f7",
        "a": "#cfe5ff", "b": "#fff1b8", "c": "#ffd9d4", "d": "#cdf0d5", "good": "#116329", "bad": "#a40e26",
    },
    "dark": {
        "ground": "#0d1117", "frame": "#3d444d", "ink": "#f0f6fc", "pale": "#a5b0bc", "plain": "#212830",
        "a": "#0b3a6b", "b": "#574200", "c": "#6b1620", "d": "#0f4a23", "good": "#56d364", "bad": "#ff8b83",
    },
}  # fmt: skip
"""Colours by scheme and role: grounds (``ground``, ``plain``, ``a`` to ``d``), lines (``frame``, ``pale``),
texts."""

GROUNDS = ("plain", "a", "b", "c", "d")


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours as WCAG 2 defines it, from 1 to 21."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def _style(colours: dict[str, str]) -> str:
    rules = [
        f".ground{{fill:{colours['ground']};stroke:{colours['frame']}}}",
        *(f".{name}{{fill:{colours[name]};stroke:{colours['pale']}}}" for name in GROUNDS),
        f".open{{fill:none;stroke:{colours['pale']};stroke-dasharray:4 3}}",
        f".line{{fill:none;stroke:{colours['pale']};stroke-width:1.5}}",
        f".tip{{fill:{colours['pale']}}}",
        f".ink{{fill:{colours['ink']}}}.pale{{fill:{colours['pale']}}}",
        f".good{{fill:{colours['good']}}}.bad{{fill:{colours['bad']}}}",
    ]
    return "".join(rules)


class Canvas:
    """A picture that is being drawn; lengths are pixels, the origin is the upper left corner.

    Parameters
    ----------
    title : str
        What it shows, for those who cannot see it.
    """

    def __init__(self, title: str, width: int, height: int) -> None:
        self.title, self.width, self.height = title, width, height
        self._parts: list[str] = []
        self.texts: list[tuple[float, float, str]] = []
        """Left and right end of every text, about, and the text."""

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        role: str = "ink",
        size: int = 13,
        anchor: str = "start",
        bold: bool = False,
    ) -> None:
        """Write a line; y is its base."""
        width = len(text) * size * 0.56
        left = {"start": x, "middle": x - width / 2, "end": x - width}[anchor]
        self.texts.append((left, left + width, text))
        weight = ' font-weight="600"' if bold else ""
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}" class="{role}" font-size="{size}" '
            f'text-anchor="{anchor}"{weight}>{escape(text)}</text>'
        )

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *lines: str,
        role: str = "plain",
        size: int = 13,
    ) -> None:
        """Draw a box with centred lines in it."""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" class="{role}"/>'
        )
        first = y + height / 2 - (len(lines) - 1) * (size + 4) / 2 + size * 0.36
        for number, line in enumerate(lines):
            self.text(x + width / 2, first + number * (size + 4), line, size=size, anchor="middle")

    def line(self, *points: tuple[float, float], arrow: bool = False, dashed: bool = False) -> None:
        """Draw a line through points, with an arrow at its end."""
        path = "M" + "L".join(f"{x:g} {y:g}" for x, y in points)
        ends = ' marker-end="url(#tip)"' if arrow else ""
        dashes = ' stroke-dasharray="4 3"' if dashed else ""
        self._parts.append(f'<path d="{path}" class="line"{ends}{dashes}/>')

    def svg(self) -> str:
        """Return the picture."""
        styles = (
            "text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}"
            + _style(SCHEMES["light"])
            + f"@media (prefers-color-scheme:dark){{{_style(SCHEMES['dark'])}}}"
        )
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" role="img">'
        )
        tip = (
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            'orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" class="tip"/></marker></defs>'
        )
        ground = (
            f'<rect x="0.5" y="0.5" width="{self.width - 1}" height="{self.height - 1}" rx="8" '
            'class="ground"/>'
        )
        parts = [head, f"<title>{escape(self.title)}</title>", f"<style>{styles}</style>", tip, ground]
        return "\n".join([*parts, *self._parts, "</svg>"]) + "\n"
