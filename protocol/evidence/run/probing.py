"""The ledger lines of a probe: how each attempt on development problems began and ended.

Records could be deleted between two attempts of a probe. Lines with their number and their digests reveal
that.
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
    """Enter an attempt to probe; return its number, from 1."""
    now = study.anew()
    number = now.count("probe") + 1
    ledger.append(now.folder, "probe", {"number": number, "records": len(now.probed)})
    return number


def end(study: Registration) -> None:
    """Enter the end of the attempt with the number and the digests of its records."""
    now = study.anew()
    ledger.append(now.folder, "probed", _amount(now, now.probed))


def verify(study: Registration) -> None:
    """Raise Tampered unless each line `probed` directly follows the line of its attempt and matches the
    records of all attempts up to it.
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
    """Return the number of records, the digest of their outcome and the digest of their trajectories."""
    return {
        "records": len(probed),
        "outcome": records.outcome_digest(probed),
        "trajectories": canonical.digest(records.trajectories(study.place("probe"), probed)),
    }
