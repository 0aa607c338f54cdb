"""Measure what [cost] registers, on this machine, line by line, until all of it is measured."""

from analysis.output import phases
from analysis.output.phases import phase
from protocol.acts import beforehand
from protocol.acts.locking import unedited
from protocol.evidence.run import claim, costs
from protocol.locked.study import Study, refuse_drift
from protocol.running import measured
from protocol.running.executors import local

__all__ = ["cost"]


def cost(study: Study) -> None:
    """Measure the repetitions that this machine's file lacks. Raises as `preflight.check_cost`,
    `refuse_drift` and `verify_before_claim.refuse_edited_lock` do.
    """
    beforehand.cost(study.registration)
    with phase("hashing sources, packages and weights"):
        refuse_drift(study, with_weights=True)
    with phase("deriving the lock again"):
        unedited.refuse_edited(study, simulated=False)
    with claim.running(study.registration):
        beforehand.refuse_claimed(study.registration.anew())
        measured.ready(study.planned)
        here = measured.machine(study.planned)
        due = costs.due(study.lock.content)
        if costs.lines(study.registration, here) < len(due):
            _measure(study, here, due)


def _measure(study: Study, here: dict[str, object], due: list[costs.Due]) -> None:
    attempt = costs.begin(study.registration, here)
    model_of = local.held(study.planned, lambda told: None)
    with costs.Writer(study.registration, here) as writer, phase("measuring") as tell:
        done = writer.measured
        for at, one in enumerate(due[done:], start=done):
            words = f"{at:,} of {len(due):,} repetitions"
            tell(phases.At(words, at, len(due), more=f"{one.point.arm}, {one.point.lanes} lanes"))
            writer.append(measured.measure(study.planned, model_of(one.point.model), one, attempt))
    costs.end(study.registration, here)
