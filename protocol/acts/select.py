"""After the probe of a sweep: apply the committed rule and write selection.json; derive what confirm runs."""

from typing import Any

from analysis import selection as rule
from analysis.judgement.study_files import RecordError
from protocol.evidence import selection
from protocol.formats.refusals import BadInput, Tampered
from protocol.plan.design import Design
from protocol.workspace.study import Study

__all__ = ["confirmed_design", "format_table", "format_winner", "select_winner"]


def select_winner(study: Study) -> dict[str, Any]:
    """Select the winner and write it, once; safe to repeat. Raises BadInput when a probed lane has no grade."""
    try:
        selected = rule.select(study.folder)
    except RecordError as incomplete:
        raise BadInput(str(incomplete)) from None
    selection.write(study.registration, selected)
    return selected


def confirmed_design(study: Study) -> Design:
    """Return the design that confirm runs: the protocol as registered or, with a sweep, with the winner as
    its subject.

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
    try:
        reselected = rule.select(study.folder)
    except RecordError as incomplete:
        raise Tampered(f"{selection.NAME}: the rule selects nothing: {incomplete}") from None
    if reselected != selected:
        raise Tampered(
            f"{selection.NAME}: is not what the rule gives, {reselected['winner']}; restore what the probe wrote"
        )


def format_table(selected: dict[str, Any]) -> str:
    """Return a table of every candidate in every cell, with its mean, the winner and the rule that selected
    it.
    """
    head = f"candidate - {selected['baseline']} in points of 100, exploratory 95 % bootstrap interval"
    lines = [head, ""]
    width = max([6, *(len(cell["budget"]) for cell in selected["cells"])])
    for name, mean in selected["means"].items():
        for cell in selected["cells"]:
            if cell["candidate"] == name:
                cell_text = f"{cell['model']}  {cell['task']:<22} {cell['budget']:>{width}}  {name:<22}"
                low, high = format_points(cell["low"]), format_points(cell["high"])
                lines.append(f"{cell_text} {format_points(cell['difference'])}  [{low}, {high}]  n={cell['problems']}")
        mark = "  <- selected" if name == selected["winner"] else ""
        lines.append(f"mean over cells: {name:<22} {format_points(mean)}{mark}")
    return "\n".join([*lines, "", format_winner(selected), format_repeat(selected)])


def format_winner(selected: dict[str, Any]) -> str:
    winner, best = selected["winner"], selected["best"]
    if winner == best:
        return f"selected: {winner}, the largest mean difference"
    tolerance = format_points(selected["tolerance"]).strip().lstrip("+")
    return f"selected: {winner}, the first within {tolerance} points of the largest mean difference, {best}"


def format_repeat(selected: dict[str, Any]) -> str:
    repeat = selected["again"]
    return f"{selected['baseline']} twice: {repeat['differ']} of {repeat['lanes']} grades differ"


def format_points(share: str) -> str:
    return f"{100 * float(share):+6.2f}"
