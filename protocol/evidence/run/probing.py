"""What the ledger keeps of looking at development problems: how each look began and how it ended.

Records may be deleted between two attempts of a probe. A line that says how many there were, and what they
amounted to, makes that show.
"""

from collections.abc import Sequence
from typing import Any

from protocol.evidence.bytes import canonical
from protocol.evidence.refusals import Tampered
from protocol.evidence.run import ledger, records
from protocol.evidence.run.records import Record
from protocol.evidence.run.registration import Registration

__all__ = ["begin", "end", "verify"]


def begin(study: Registration) -> int:
    """Enter an attempt to probe; returns its number, from 1."""
    now = study.anew()
    number = now.count("probe") + 1
    ledger.append(now.folder, "probe", {"number": number, "records": len(now.probed)})
    return number


def end(study: Registration) -> None:
    """Enter that the attempt came to its end, and with what."""
    now = study.anew()
    ledger.append(now.folder, "probed", _amount(now, now.probed))


def verify(study: Registration) -> None:
    """Raises Tampered unless each line `probed` follows that of its attempt, in which nothing else can be
    done, and says what the records of the attempts up to it amount to.
    """
    attempts, last = 0, ""
    for entry in study.entries:
        attempts, before_it, last = attempts + (entry.event == "probe"), last, entry.event
        if entry.event == "probed":
            if before_it != "probe":
                raise Tampered(f"{ledger.NAME}: probe attempt {attempts} does not end where it began")
            before = [record for record in study.probed if record["costs"]["attempt"] <= attempts]
            if entry.body != _amount(study, before):
                raise Tampered(
                    f"probe attempt {attempts} ended with {entry.body.get('records')} records; "
                    f"of today's, {len(before)} or others go back to it"
                )


def _amount(study: Registration, probed: Sequence[Record]) -> dict[str, Any]:
    """How many records there are, what they say, and the files of their trajectories."""
    return {
        "records": len(probed),
        "outcome": records.outcome_digest(probed),
        "trajectories": canonical.digest(records.trajectories(study.place("probe"), probed)),
    }
