"""What a check has found, as data: sentences are made of it later, in the learner's language (render.py)."""
from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Finding:
    """A key of words/*/frame.toml and the values of its placeholders.

    A value that begins with @ is itself a key of the exercise's words: "@cases.large", "@terms.x.1".
    """

    key: str
    values: dict[str, Any] = field(default_factory=dict)
    weak: bool = False  # says where it is wrong, not what is wrong


FACTS = {  # what a rung says when it was not climbed
    "shape", "shape-plain", "value", "value-case", "gradient-shape", "gradient-case", "direction", "entries",
    "entries-some", "nonlinear", "says",
}  # fmt: skip


@dataclass
class Verdict:
    """The outcome of one check: which rungs were climbed, and what was found at the first that failed."""

    slug: str
    climbed: list[int] = field(default_factory=list)
    rungs: list[int] = field(default_factory=list)  # those that this exercise has
    failed: int | None = None  # 0: before the first rung (no file, no function, an exception)
    findings: list[Finding] = field(default_factory=list)
    heat: dict[str, Any] | None = None  # a picture of wrong entries: name, place, levels 0 to 4
    seconds: float = 0.0
    held_back: int = 0  # lines that the learner's code printed beyond what is let through

    @property
    def passed(self) -> bool:
        return self.failed is None

    @property
    def explained(self) -> bool:
        """Is there a reason among the findings, and not only the fact?"""
        return any(not found.weak and found.key not in FACTS for found in self.findings)

    @property
    def told(self) -> list[Finding]:
        """The findings without the bare fact that a number differs, where there is a reason."""
        return [f for f in self.findings if not (self.explained and f.key in ("direction", "entries"))]

    def asdict(self) -> dict[str, Any]:
        return asdict(self)


def verdict(data: dict[str, Any]) -> Verdict:
    """Back from JSON."""
    return Verdict(**(data | {"findings": [Finding(**found) for found in data["findings"]]}))


class Stop(Exception):
    """The check cannot go on: the finding says why."""

    def __init__(self, key: str, /, **values: Any) -> None:
        super().__init__(key)
        self.finding = Finding(key, values)
