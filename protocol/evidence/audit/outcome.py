"""Run a check and turn what it raises into a finding: faults of the evidence or limits of this machine."""

from collections.abc import Callable

from protocol.formats.findings import CannotTell, Finding, NotRun, Unfinished, find_remedy, one_line
from protocol.formats.refusals import Tampered


def run_check(item: str, check: Callable[[], str]) -> Finding:
    """Return the finding on one item.

    Any exception from a damaged file is a failure, in one line; what this machine lacks is "cannot tell",
    with the remedy.
    """
    try:
        return Finding(item, "held", one_line(check()))
    except NotRun as not_run:
        return Finding(item, "not run", one_line(not_run))
    except Unfinished as unfinished:
        return Finding(item, "unfinished", one_line(unfinished))
    except CannotTell as undetermined:
        return Finding(item, "cannot tell", one_line(undetermined))
    except Exception as error:
        if remedy := find_remedy(error):
            return Finding(item, "cannot tell", remedy)
        kind = "" if isinstance(error, Tampered) else f"{type(error).__name__}: "
        return Finding(item, "failed", f"{kind}{one_line(error)}")
