"""The ledger lines of a probe: how each attempt on development problems began and ended.

Records could be deleted between two attempts of a probe. Lines with their number and their digests reveal that.
"""

from collections.abc import Sequence
from typing import Any

from protocol.evidence import ledger, records
from protocol.evidence.records import Record
from protocol.evidence.registration import Registration
from protocol.formats import canonical
from protocol.formats.refusals import Tampered


def begin_attempt(study: Registration) -> int:
    """Enter an attempt to probe; return its number, from 1."""
    current = study.reopen()
    number = current.count_events("probe") + 1
    ledger.append(current.folder, "probe", {"number": number, "records": len(current.probe_records)})
    return number


def end_attempt(study: Registration) -> None:
    """Enter the end of the attempt with the number and the digests of its records."""
    current = study.reopen()
    ledger.append(current.folder, "probed", _summarise(current, current.probe_records))


def verify(study: Registration) -> None:
    """Raise Tampered unless each line `probed` follows that of its attempt and matches the records up to it."""
    attempts, last = 0, ""
    for entry in study.entries:
        attempts, previous, last = attempts + (entry.event == "probe"), last, entry.event
        if entry.event == "probed":
            if previous != "probe":
                raise Tampered(f"{ledger.NAME}: probe attempt {attempts} does not end where it began")
            earlier = [record for record in study.probe_records if record["costs"]["attempt"] <= attempts]
            summary = _summarise(study, earlier)
            if others := [name for name in summary if entry.body.get(name) != summary[name]]:
                raise Tampered(
                    f"probe attempt {attempts} ended with {entry.body.get('records')} records, but of today's "
                    f"records {len(earlier)} belong to it; {' and '.join(others)} differ"
                )


def _summarise(study: Registration, probed: Sequence[Record]) -> dict[str, Any]:
    """Return the number of records, the digest of their outcome and the digest of their trajectories."""
    return {
        "records": len(probed),
        "outcome": records.outcome_digest(probed),
        "trajectories": canonical.digest(records.hash_trajectories(study.phase_folder("probe"), probed)),
    }
