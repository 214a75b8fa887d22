"""Text for a terminal of any kind: lines of a width that fit, wide characters counted as two, ASCII where need be."""
from __future__ import annotations

import codecs
import io
import os
import sys
import unicodedata

BLOCKS, PLAIN = " ░▒▓█", " .:*#"
COLOURS = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "dim": "2", "bold": "1"}


SPELT = {  # signs of the equations that an old console does not have
    "μ": "mu", "σ": "sigma", "γ": "gamma", "β": "beta", "ε": "eps", "θ": "theta", "Σ": "sum", "√": "sqrt", "∂": "d",
    "²": "^2", "³": "^3", "ᵀ": "^T", "\u0302": "^", "ŷ": "y^", "·": "*", "→": "->", "≤": "<=", "≠": "!=", "∞": "inf",
}  # fmt: skip


def spelt(error: UnicodeError) -> tuple[str | bytes, int]:
    """What the console cannot encode, spelt out; other signs as Python writes them."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(SPELT.get(c) or c.encode("ascii", "backslashreplace").decode() for c in text), error.end


def spell_where_needed() -> None:
    codecs.register_error("minitx.spelt", spelt)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="minitx.spelt")


def width(text: str) -> int:
    """Columns of a terminal."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 0 if unicodedata.combining(c) else 1 for c in text)


def pad(text: str, columns: int) -> str:
    return text + " " * max(0, columns - width(text))


def wrap(text: str, columns: int = 100, indent: str = "") -> str:
    """Every paragraph in lines of at most so many columns; indented lines (code) stay as they are."""
    lines = []
    for paragraph in text.split("\n"):
        if paragraph.startswith("    ") or not paragraph.strip():
            lines.append(indent + paragraph if paragraph.strip() else "")
            continue
        line = indent
        for piece in _pieces(paragraph):
            if width(line + piece.rstrip()) > columns and line.strip():
                lines.append(line.rstrip())
                line, piece = indent, piece.lstrip()
            line += piece
        lines.append(line.rstrip())
    return "\n".join(lines)


def _pieces(text: str) -> list[str]:
    """Where a line may break: after a blank, and after any wide character unless a closing sign follows."""
    pieces, start = [], 0
    for i, c in enumerate(text[:-1]):
        wide = unicodedata.east_asian_width(c) in "WF"
        if c == " " or (wide and text[i + 1] not in ",.;:!?)]}`、。；：！？”），"):
            pieces.append(text[start : i + 1])
            start = i + 1
    return [*pieces, text[start:]]


def colour(text: str, name: str) -> str:
    """In colour where the terminal shows it (NO_COLOR and FORCE_COLOR are heeded)."""
    if not colours():
        return text
    return f"\x1b[{COLOURS[name]}m{text}\x1b[0m"


def colours() -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    shown = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    if shown and os.name == "nt":
        os.system("")  # wakes the colours of a Windows console
    return shown


def blocks() -> str:
    """Five signs from nothing to full, that the console can encode."""
    try:
        BLOCKS.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return PLAIN
    return BLOCKS


def sign(unicode: str, plain: str) -> str:
    """A sign, or its plain form where the console has no such character."""
    try:
        unicode.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return plain
    return unicode
