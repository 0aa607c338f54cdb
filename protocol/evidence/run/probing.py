"""What the ledger keeps of looking at development problems: how each look began and how it ended.

Records may be deleted between two attempts of a probe. A line that says how many there were, and what they
amounted to, makes that show.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from protocol.evidence.bytes import canonical
from protocol.evidence.refusals import Tampered
from protocol.evidence.run import ledger, records
from protocol.evidence.run.ledger import Entry
from protocol.evidence.run.records import Record

__all__ = ["begin", "end", "verify"]


def begin(folder: Path) -> int:
    """Enter an attempt to probe; returns its number, from 1."""
    number = ledger.count(folder, "probe") + 1
    ledger.append(folder, "probe", {"number": number, "records": len(_records(folder))})
    return number


def end(folder: Path) -> None:
    """Enter that the attempt came to its end, and with what."""
    ledger.append(folder, "probed", _amount(_place(folder), _records(folder)))


def verify(entries: Sequence[Entry], folder: Path, found: Sequence[Record]) -> None:
    """Raises Tampered unless each line `probed` says what the records of the attempts before it amount to.

    found: the probe's records of today, in `folder`.
    """
    attempts = 0
    for entry in entries:
        attempts += entry.event == "probe"
        if entry.event == "probed":
            before = [record for record in found if record["costs"]["attempt"] <= attempts]
            if entry.body != _amount(_place(folder), before):
                raise Tampered(
                    f"probe attempt {attempts} ended with {entry.body.get('records')} records; "
                    f"of today's, {len(before)} or others go back to it"
                )


def _amount(place: Path, found: Sequence[Record]) -> dict[str, Any]:
    """How many records there are, what they say, and the files of their trajectories."""
    return {
        "records": len(found),
        "outcome": records.outcome_digest(found),
        "trajectories": canonical.digest(records.trajectories(place, found)),
    }


def _records(folder: Path) -> list[Record]:
    return records.read(_place(folder))


def _place(folder: Path) -> Path:
    return folder / records.FOLDERS["probe"]
