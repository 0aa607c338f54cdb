"""The audit of measured time and memory: they match the registration and satisfy the invariants."""

from protocol.evidence.invariants.invariant import describe_violations
from protocol.evidence.registration import Registration
from protocol.formats.findings import NotRun, Unfinished
from protocol.formats.refusals import Tampered
from protocol.instruments.cost import invariants, measurement_file
from protocol.instruments.cost.measurement_file import Measurement


def check(study: Registration, is_claimed: bool, has_ended: bool = False) -> str:
    """Return how many of the registered repetitions each machine measured.

    Raises Tampered for measurements that do not verify or break an invariant, NotRun where nothing
    was measured, Unfinished while more can be measured. has_ended: makes no difference.
    """
    measurements = measurement_file.read_measurements(study)
    attempts = measurement_file.verify(study, measurements)
    expected = measurement_file.expected_lines(study.lock.content)
    for measurement in measurements:
        if wrong := invariants.find_violations(study.lock.content, study.lock.digest, measurement, expected):
            raise Tampered(f"{measurement.name}: {describe_violations(wrong)}")
    nonempty = [measurement for measurement in measurements if measurement.bodies]
    if not attempts or not nonempty:
        raise NotRun("registered, but not measured" + (" before the claim" if is_claimed else ""))
    summary = "; ".join(_summarise(measurement, len(expected)) for measurement in nonempty)
    if not is_claimed and any(len(measurement.bodies) < len(expected) or measurement.torn for measurement in nonempty):
        raise Unfinished(f"{summary}; run again: kv-prereg cost {study.folder}")
    return f"{summary}; {len(invariants.INVARIANTS)} relations are satisfied; no verdict depends on it"


def _summarise(measurement: Measurement, expected_count: int) -> str:
    incomplete_text = "" if len(measurement.bodies) == expected_count else " (INCOMPLETE)"
    failed_count = sum(body["state"] != "ok" for body in measurement.bodies)
    failed_text = f", {failed_count} of them without a time" if failed_count else ""
    repetitions = f"{len(measurement.bodies)} of {expected_count} repetitions on {measurement.machine['host']}"
    return f"{repetitions}{incomplete_text}{failed_text}"
