"""Text files from anywhere: UTF-8 with or without a byte-order mark, any line ends, one clear error each."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_MARK = b"\xef\xbb\xbf"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def read_text(path: str | Path) -> str:
    """The text of a file, lines ended by a newline character alone. An empty file is an error."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give a text file")
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file")
    raw = path.read_bytes()
    start = len(_MARK) if raw.startswith(_MARK) else 0
    try:
        text = raw[start:].decode("utf-8")
    except UnicodeDecodeError as error:
        at = start + error.start
        line = raw.count(b"\n", 0, at) + 1
        guess = "it looks like UTF-16" if raw.startswith(_UTF_16) else "it may be in another encoding, or not be text"
        raise ValueError(
            f"{path} is not UTF-8: byte 0x{raw[at]:02x} at position {at} (line {line}); {guess}: save it as UTF-8"
        ) from None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        raise ValueError(f"{path} is empty")
    return text


def read_pairs(path: str | Path) -> Iterator[tuple[int, str, str]]:
    """(line number, source, target) of every line `source TAB target`; blank lines skipped, outer spaces removed."""
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        parts = [part.strip() for part in line.split("\t")]
        if len(parts) == 1:
            raise ValueError(f"{path}, line {number}: no tab; a line is `source TAB target`, this one {_shown(line)}")
        if len(parts) > 2:
            raise ValueError(f"{path}, line {number}: {len(parts) - 1} tabs; a line is `source TAB target`, with one")
        if not all(parts):
            side = "source" if not parts[0] else "target"
            raise ValueError(f"{path}, line {number}: the {side} is empty; write both, or take the line out")
        yield number, parts[0], parts[1]


def _shown(line: str, most: int = 40) -> str:
    return ascii(line if len(line) <= most else line[:most] + "...")
