"""The audit of a study whose outputs another harness made: the records are read again from the files that were read."""

from collections.abc import Callable, Mapping

from analysis.compare.scored_answers import ResultError
from protocol.evidence import records
from protocol.evidence.registration import CLAIM, Registration
from protocol.formats import files
from protocol.formats.findings import NotRun, Unfinished
from protocol.formats.refusals import Tampered
from protocol.outside import lanes, output_files, released
from protocol.outside.confirm import RELEASED


def make_checks(study: Registration) -> Mapping[str, Callable[[], str]]:
    """Return the checks that only such a study has, by the item of an audit."""
    return {"outputs": lambda: check_outputs(study)}


def check_outputs(study: Registration) -> str:
    """Return what was read of whom. Raises NotRun before the claim, Unfinished before the files were read, Tampered
    for released problems that the claim did not draw, a file that changed, and a record that its file does not have.
    """
    if not study.has(CLAIM):
        raise NotRun
    try:
        listed = files.read(study.folder / RELEASED, files.MAX_DOCUMENT_BYTES)
    except FileNotFoundError:
        raise Unfinished(f"{RELEASED}: has not been written yet; run again: kv-prereg confirm {study.folder}") from None
    if listed != released.format_released(study):
        raise Tampered(f"{RELEASED}: differs from what the claim released")
    if not files.exists(study.folder / output_files.LIST):
        if study.count_events("outputs") or len(study.confirm_records):
            raise Tampered(f"{output_files.LIST}: missing, although its files were read")
        raise Unfinished(f"no outputs have been read; run: kv-prereg confirm {study.folder} --outputs OUTPUTS")
    document = output_files.read_list(study)
    if (document.content["lock"], document.content["claim"]) != (study.lock.digest, study.claim.digest):
        raise Tampered(f"{output_files.LIST}: names a different lock or claim")
    if [entry.body for entry in study.entries if entry.event == "outputs"] != [{"outputs": document.digest}]:
        raise Tampered(f"{output_files.LIST}: the ledger's line about the outputs is missing or cites a different list")
    read = output_files.read_stored(study)
    stored = output_files.stored_names(study)
    cited = {file.sha256 for arm_files in read.values() for file in arm_files}
    if stored != cited:
        raise Tampered(f"{output_files.FILES}: has {len(stored - cited)} files that were not read")
    try:
        bodies = {records.body_key(body): body for body in lanes.make_bodies(study, read)}
    except ResultError as refusal:
        raise Tampered(f"{output_files.FILES}: {refusal}") from None
    for record in study.confirm_records:
        if record["body"] != bodies.get(lane := records.body_key(record["body"])):
            raise Tampered(f"{lane}: its record differs from what the files say")
    return (
        f"{len(study.confirm_records)} records match {len(cited)} files that were read once. Only the files "
        "themselves say how they were made: kv-prereg did not make or replay them"
    )
