"""In a notebook: `from minitx.learn import check; check(layer_norm)`."""
from __future__ import annotations

from typing import Any

from minitx.learn.ladder import climb
from minitx.learn.language import chosen, say
from minitx.learn.loudness import limited
from minitx.learn.render import rendered
from minitx.learn.shelf import every, exercise


def check(function: Any, slug: str | None = None, *, seed: int = 0, lang: str | None = None) -> bool:
    """Check a function in this process; the exercise is found by the function's name, unless a slug is given."""
    name = getattr(function, "__name__", "")
    if slug is None:
        found = [e for e in every() if e.function == name]
        if not found:
            raise ValueError(f"no exercise asks for a function called {name!r}; name it: check(f, 'softmax')")
        slug = next((e.slug for e in found if e.slug == name.replace("_", "-")), found[0].slug)
    wanted, language = exercise(slug), chosen(lang)
    code = getattr(function, "__code__", None)
    with limited() as printed:
        result = climb(wanted, function, code.co_filename if code else "", seed)
    result.held_back = printed.held_back
    print(rendered(result, language))
    said = "passed" if result.passed else "hint"
    print("\n" + say(language, f"flow.{said}", slug=wanted.slug))
    return result.passed
