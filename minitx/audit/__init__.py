"""Checks for everything in the house: witnesses for each component, mutants for the checks, an audit for models.

    case.py, cases/          what every op is tried on             op_columns.py, part.py, parts.py   layers and models
    written/                 layers and models, written out        check.py                           minitx check
    mutants.py, verdicts.py  wrong backward passes, judged         score.py                           check --mutants
    leaks.py, targets.py     who sees what they must not see       noise.py                           minitx audit
"""

from minitx.audit.finding import Finding, Report
from minitx.audit.whole import audit

__all__ = ["audit", "Report", "Finding"]
