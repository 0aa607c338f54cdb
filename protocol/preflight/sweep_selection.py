"""The committed rule of a sweep: applied after the probe, and again before confirm runs its winner."""

from typing import Any

from analysis.judgement.untrusted_files import RecordError
from protocol.evidence import selection
from protocol.formats.refusals import BadInput, Tampered
from protocol.plan.design import Design
from protocol.workspace.study import Study


def select_winner(study: Study) -> dict[str, Any]:
    """Select the winner and write it, once; safe to repeat. Raises BadInput when a probed lane has no grade."""
    from analysis import selection as rule  # with scipy and pandas, here and below

    try:
        selected = rule.select(study.folder)
    except RecordError as incomplete:
        raise BadInput(str(incomplete)) from None
    selection.write(study.registration, selected)
    return selected


def confirmed_design(study: Study) -> Design:
    """Return the design that confirm runs: the protocol as registered or, with a sweep, with the winner as its subject.

    The rule is applied again, except to a selection that was taken from the parent. Raises BadInput for a
    sweep without a selection, Tampered for a selection that does not verify or that the rule does not give.
    """
    if study.protocol.sweep is None:
        return study.protocol
    selected = selection.read(study.registration).content["selected"]
    if not selection.inherited_digest(study.registration):
        _refuse_different_selection(study, selected)
    return study.protocol.confirm_design(selected["winner"])


def _refuse_different_selection(study: Study, selected: dict[str, Any]) -> None:
    from analysis import selection as rule

    try:
        reselected = rule.select(study.folder)
    except RecordError as incomplete:
        raise Tampered(f"{selection.NAME}: the rule selects nothing: {incomplete}") from None
    if reselected != selected:
        raise Tampered(
            f"{selection.NAME}: differs from what the rule selects, {reselected['winner']}; restore the file "
            "that the probe wrote"
        )
