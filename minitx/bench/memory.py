"""How much memory a process has taken at most."""
from __future__ import annotations

import sys


def peak() -> float | None:
    """Megabytes, in all, at most so far; None where the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, KB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
