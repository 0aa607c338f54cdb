"""What a check comes to, whatever it raises: what is wrong with the evidence is told from what this machine
lacks.
"""

from collections.abc import Callable

from protocol.evidence.findings import CannotTell, Finding, NotRun, Unfinished, line, trouble
from protocol.evidence.refusals import Tampered

__all__ = ["found"]


def found(item: str, check: Callable[[], str]) -> Finding:
    """The finding on one item. Whatever a damaged or absurd file provokes fails, in one line; what this
    machine lacks cannot be told, with the remedy.
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
