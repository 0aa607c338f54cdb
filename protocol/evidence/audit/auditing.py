"""Whether a registration holds, from its files alone.

Every digest is computed again, every chain followed, every cell accounted for, and the verdict derived again
from the raw records by the locked code. What the folder cannot show by itself, whether it was written anew as
a whole with digests that fit, git history and outside witnesses show where there are any. What was run
before registering, nothing shows.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from protocol.evidence.audit import amendment
from protocol.evidence.audit.checks import Checks
from protocol.evidence.findings import CannotTell, Finding, NotRun
from protocol.evidence.lock import signing
from protocol.evidence.outside import history
from protocol.evidence.outside.anchors import Anchor
from protocol.evidence.refusals import Tampered
from protocol.evidence.run import late_randomness
from protocol.evidence.run.registration import Registration

__all__ = ["OUTSIDE", "audit", "failed", "judge_again", "select_again", "untold"]

# Items that lie outside the folder: that they cannot be told here is no fault of the evidence.
RANDOMNESS = ("protocol", "content", late_randomness.FIELD)
OUTSIDE = ("commit", "history", "signature", "amendment", "ending", "randomness", "anchors")


def judge_again(tree: Path, folder: Path) -> bytes:
    """What `analysis.judge` of the source tree `tree` prints about `folder`.

    It runs the code of the registration: who does not trust its author reads sources.zip first.
    """
    return _printed("analysis.judge", tree, folder)


def select_again(tree: Path, folder: Path) -> bytes:
    """What `analysis.selection` of the source tree `tree` prints about `folder`; see `judge_again`."""
    return _printed("analysis.selection", tree, folder)


def audit(
    study: Registration,
    rederive: Callable[[Path, Path], bytes] = judge_again,
    reselect: Callable[[Path, Path], bytes] = select_again,
    *,
    signers: Path | None = None,
    anchored: Sequence[Anchor] = (),
    block: Callable[[], late_randomness.Block] | None = None,
) -> list[Finding]:
    """One finding an item, in the order in which the evidence was made; some items only some studies have.

    rederive, reselect: given the extracted locked tree and the folder, return the canonical judgement and
    selection. signers: the keys that may have signed the lock, as ssh-keygen reads them. anchored: what
    `anchors.verified` found in anchors/. block: the block of Bitcoin that the lock's proof leads to.

    "not run" is a step that left no trace, as do the steps after it. Other evidence that is not there fails.
    """
    checked = Checks(study)
    checks: dict[str, Callable[[], str]] = {
        "lock": checked.check_lock,
        "protocol": checked.check_protocol,
        "sources": checked.check_sources,
        "commit": lambda: history.check_commit(study),
        "signature": lambda: signing.check(study.folder, signers),
        **({"amendment": lambda: amendment.verify(study)} if checked.has("amends") else {}),
        "ledger": checked.check_ledger,
        "history": lambda: history.check(study),
        "probe": checked.check_probe,
        **({"selection": lambda: checked.check_selection(reselect)} if checked.swept else {}),
        "claim": checked.check_claim,
        **({"randomness": lambda: checked.check_randomness(block)} if checked.has(*RANDOMNESS) else {}),
        "records": checked.check_records,
        "trajectories": checked.check_trajectories,
        "grid": checked.check_grid,
        "seal": checked.check_seal,
        "verdict": checked.check_verdict,
        "judgement": lambda: checked.check_judgement(rederive),
        **({"ending": lambda: amendment.ended(study)} if checked.ended else {}),
        "anchors": lambda: checked.check_anchors(anchored),
    }
    return [_found(item, check) for item, check in checks.items()]


def failed(findings: Iterable[Finding]) -> list[str]:
    return [one.item for one in findings if one.status == "failed"]


def untold(findings: Iterable[Finding]) -> list[str]:
    """What of the evidence itself could not be told here."""
    return [one.item for one in findings if one.status == "cannot tell" and one.item not in OUTSIDE]


def _found(item: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(item, "held", check())
    except NotRun as absent:
        return Finding(item, "not run", str(absent))
    except CannotTell as gap:
        return Finding(item, "cannot tell", str(gap))
    except Exception as problem:  # whatever a damaged file provokes is a finding
        kind = "" if isinstance(problem, Tampered) else f"{type(problem).__name__}: "
        return Finding(item, "failed", kind + " ".join(str(problem).split()))


def _printed(module: str, tree: Path, folder: Path) -> bytes:
    settings = {"PYTHONPATH": str(tree), "PYTHONUTF8": "1", "PATH": os.defpath}
    command = [sys.executable, "-B", "-m", module, str(folder.resolve())]
    done = subprocess.run(command, cwd=tree, env=settings, capture_output=True)
    last = (done.stderr.decode(errors="replace").strip().splitlines() or ["(no message)"])[-1]
    if last.startswith("ModuleNotFoundError"):
        raise CannotTell(f"the locked code needs what is not installed here: {last}")
    if not done.stdout:
        raise Tampered(f"the locked {module} said nothing: {last}")
    return done.stdout.removesuffix(b"\n")
