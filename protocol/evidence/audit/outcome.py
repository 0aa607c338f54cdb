"""Run a check and turn what it raises into a finding: faults of the evidence or limits of this machine."""

from collections.abc import Callable

from protocol.evidence.findings import CannotTell, Finding, NotRun, Unfinished, line, trouble
from protocol.evidence.refusals import Tampered

__all__ = ["found"]


def found(item: str, check: Callable[[], str]) -> Finding:
    """Return the finding on one item.

    Any exception from a damaged file is a failure, in one line; what this machine lacks is "cannot tell",
    with the remedy.
    """
    try:
        return Finding(item, "held", line(check()))
    except NotRun as absent:
        return Finding(item, "not run", line(absent))
    except Unfinished as way:
        return Finding(item, "unfinished", line(way))
    except CannotTell as gap:
        return Finding(item, "cannot tell", line(gap))
    except Exception as problem:
        if remedy := trouble(problem):
            return Finding(item, "cannot tell", remedy)
        kind = "" if isinstance(problem, Tampered) else f"{type(problem).__name__}: "
        return Finding(item, "failed", f"{kind}{line(problem)}")
