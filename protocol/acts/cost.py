"""Measure what [cost] registers, on this machine, line by line, until all of it is measured."""

from protocol.evidence import claim, costs
from protocol.formats import progress_display
from protocol.formats.progress_display import phase
from protocol.preflight import verify_before_claim
from protocol.recompute import study_files
from protocol.run import cost_measurement
from protocol.run.executors import local
from protocol.workspace.study import Study, refuse_drift

__all__ = ["cost"]


def cost(study: Study) -> None:
    """Measure the repetitions that this machine's file lacks. Raises as `study_files.check_instrument`,
    `refuse_drift` and `verify_before_claim.refuse_edited_lock` do.
    """
    study_files.check_instrument(study.registration, costs.INSTRUMENT)
    with phase("hashing sources, packages and weights"):
        refuse_drift(study, with_weights=True)
    with phase("deriving the lock again"):
        verify_before_claim.refuse_edited_lock(study, simulated=False)
    with claim.exclusive_run(study.registration):
        study_files.refuse_claimed(study.registration.reopen(), costs.INSTRUMENT)
        cost_measurement.configure_torch(study.planned)
        machine = cost_measurement.describe_machine(study.planned)
        expected = costs.expected_lines(study.lock.content)
        if costs.count_repetitions(study.registration, machine) < len(expected):
            _measure_points(study, machine, expected)


def _measure_points(study: Study, machine: dict[str, object], expected: list[costs.ExpectedLine]) -> None:
    attempt = costs.begin_attempt(study.registration, machine)
    model_of = local.cache_models(study.planned, lambda progress_event: None)
    with costs.MeasurementWriter(study.registration, machine) as writer, phase("measuring") as update:
        measured_count = writer.measured
        for index, repetition in enumerate(expected[measured_count:], start=measured_count):
            position_text = f"{index:,} of {len(expected):,} repetitions"
            update(
                progress_display.Progress(
                    position_text, index, len(expected), more=f"{repetition.point.arm}, {repetition.point.lanes} lanes"
                )
            )
            writer.append(
                cost_measurement.measure_point(study.planned, model_of(repetition.point.model), repetition, attempt)
            )
    costs.end_attempt(study.registration, machine)
