"""From the claim to the seal of a study that another harness runs: release the problems, read the outputs once."""

from collections.abc import Callable
from pathlib import Path

from analysis.compare.scored_answers import ResultError
from protocol.evidence import claim, late_randomness, ledger, records, seal
from protocol.evidence.held_out_guard import HeldOutGuard
from protocol.evidence.registration import CLAIM, Registration
from protocol.evidence.shard_writer import ShardWriter
from protocol.formats import files
from protocol.formats.progress_display import phase
from protocol.formats.refusals import BadInput, Tampered
from protocol.outside import derive, lanes, output_files, released
from protocol.workspace import drift, run_inputs
from protocol.workspace.planned_study import PlannedStudy, read_protocol

RELEASED = f"{output_files.FOLDER}/released.json"


def confirm_outside(
    study: Registration,
    outputs: Path | None,
    value: Path | None = None,
    block: Callable[[], late_randomness.Block] | None = None,
) -> list[str]:
    """Claim the study and release its problems; with outputs read them, record every lane and seal. Return what is to
    be run, one line each; nothing once it is sealed.

    Raises BadInput for outputs before the claim and for files that are not of this study, and as
    `verify_before_claim.refuse_edited_lock` and `claim.take` do.
    """
    if outputs is not None and not study.has(CLAIM):  # whoever has outputs by now cannot have the released problems
        raise BadInput(
            f"--outputs {outputs}: {study.folder} is not claimed yet, and outputs must be made after the "
            f"claim; first run: kv-prereg confirm {study.folder}"
        )
    with phase("hashing sources"):
        compared = drift.compare_locked_sources(study.lock.content)
        run_inputs.refuse(study, compared + run_inputs.compare_data(study.lock.content, study.folder))
    with phase("rederiving the lock"):
        data, protocol = read_protocol(study.folder)
        derive.refuse_edited_lock(study, PlannedStudy(protocol, files.cache_home(), folder=study.folder), data)
    with claim.exclusive_run(study):
        attempt = claim.take(study.reopen(), value, block)
        study = study.reopen()
        held_out = HeldOutGuard(study.lock, study.folder)
        for task in study.lock.content["items"]:
            held_out.ids(task, "confirm")
        if not files.exists(study.folder / RELEASED):
            files.create(study.folder / RELEASED, released.format_released(study))
        if outputs is None and not files.exists(study.folder / output_files.LIST):
            return list_commands(study)
        with phase("reading the outputs"):
            _record_outputs(study.reopen(), outputs, attempt)
        with phase("sealing"):
            seal.write(study)
    return []


def _record_outputs(study: Registration, outputs: Path | None, attempt: int) -> None:
    """Store the files of the outputs, then record every lane that has no record yet."""
    if outputs is None:
        read = output_files.read_stored(study)
    else:
        read = output_files.find_files(outputs, [*study.protocol["arms"]])
    try:
        bodies = lanes.make_bodies(study, read)
    except ResultError as refusal:
        raise (BadInput if outputs is not None else Tampered)(str(refusal)) from None
    ledger.ensure(study.folder, "outputs", {"outputs": output_files.store(study, read)})
    with ShardWriter(study.phase_folder("confirm")) as shard:
        new = [(body, {"attempt": attempt}) for body in bodies if records.body_key(body) not in shard]
        shard.append(new)


def list_commands(study: Registration) -> list[str]:
    """Return what is to be run, one line each."""
    counts = ", ".join(f"{len(ids)} of {task}" for task, ids in released.list_ids(study).items())
    return [
        f"claimed; the problems to run are listed in {study.folder / RELEASED}: {counts}",
        "run these problems, and no others, with every arm, and put the outputs of each arm into OUTPUTS/ARM:",
        *(f"  {name}: {arm['command']}" for name, arm in study.protocol["arms"].items()),
        f"then: kv-prereg confirm {study.folder} --outputs OUTPUTS",
    ]
