"""The gate: the accuracy that the full cache must reach before any rule may decide.

If the model cannot do the task with its full cache, all policies fail alike and a rule would call them equal.
Shares are compared exactly, as counts of lanes.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple


class AnswerCounts(NamedTuple):
    """Counts of the lanes of one arm in one model and task, without excluded ones. A lane without a grade
    is not correct.
    """

    lanes: int
    correct: Fraction | int  # for scored answers, the sum of the scores
    truncated: int  # stopped by max_new_tokens
    cut: int  # truncated lanes that are not correct; for scored answers, those that score 0
    no_answer: int
    ungraded: int

    @property
    def accuracy(self) -> Fraction:
        """The share of correct lanes; 0 without any lane."""
        return Fraction(self.correct, self.lanes or 1)


class GateRequirement(NamedTuple):
    """The registered gate of one model and task."""

    accuracy: Fraction
    truncated: Fraction
    published: Fraction | None = None
    margin: Fraction = Fraction(0)

    @property
    def low(self) -> Fraction:
        """The lowest accuracy that passes."""
        return self.accuracy if self.published is None else max(self.accuracy, self.published - self.margin)

    @property
    def high(self) -> Fraction:
        """The highest accuracy that passes."""
        return Fraction(1) if self.published is None else min(Fraction(1), self.published + self.margin)

    @property
    def text(self) -> str:
        """A short description of the registered gate."""
        clause = f"at least {_format_share(self.accuracy)} correct, at most {_format_share(self.truncated)} cut"
        if self.published is None:
            return clause
        return f"{clause}, published {_format_share(self.published)} ± {_format_share(self.margin)}"


def count_answers(lanes: Iterable[tuple[str, str | None, str | None, object]]) -> AnswerCounts:
    """Count the lanes, each (state, grade, stop, score) as in records; excluded ones are left out. A score
    is read only with the grade "scored".
    """
    included = [lane for lane in lanes if lane[0] != "excluded"]
    grades = [grade if state == "ok" else None for state, grade, _, _ in included]
    lane_credits = [_credit(grade, lane[3]) for grade, lane in zip(grades, included, strict=True)]
    endings = [(credit, stop == "length") for credit, (_, _, stop, _) in zip(lane_credits, included, strict=True)]
    return AnswerCounts(
        lanes=len(included),
        correct=sum(lane_credits),
        truncated=sum(is_cut for _, is_cut in endings),
        cut=sum(is_cut and not credit for credit, is_cut in endings),
        no_answer=grades.count("no answer"),
        ungraded=sum(grade in (None, "error") for grade in grades),
    )


def _credit(grade: str | None, score: object) -> Fraction | int:
    return Fraction(str(score)) if grade == "scored" else int(grade == "correct")


def gate_requirement(gate: Mapping[str, Any], model: str, task: str) -> GateRequirement:
    """Return the gate of one model and task. gate: as in a lock, decimals as text."""
    overrides: Iterable[Mapping[str, Any]] = gate.get("places", ())
    override = next((entry for entry in overrides if (entry["model"], entry["task"]) == (model, task)), None) or {}
    accuracy, truncated = (Fraction(override.get(name, gate[name])) for name in ("accuracy", "truncated"))
    if "published" not in override:
        return GateRequirement(accuracy, truncated)
    return GateRequirement(accuracy, truncated, Fraction(override["published"]), Fraction(override["margin"]))


def shortfalls(counts: AnswerCounts, requirement: GateRequirement) -> list[str]:
    """Return the reasons why the gate fails, with the numbers; empty if it passes."""
    if not counts.lanes:
        return ["the full cache has no lane on this model and task"]
    reasons = []
    if counts.accuracy < requirement.accuracy:
        ungraded_note = f", {counts.ungraded} without a grade" if counts.ungraded else ""
        reasons.append(
            f"the full cache {_describe_accuracy(counts)}{ungraded_note} (gate: {_format_share(requirement.accuracy)})"
        )
    if Fraction(counts.cut, counts.lanes) > requirement.truncated:
        reasons.append(
            f"{counts.cut} of {counts.lanes} answers of the full cache are cut before they are correct "
            f"(gate: {_format_share(requirement.truncated)})"
        )
    if requirement.published is not None and abs(counts.accuracy - requirement.published) > requirement.margin:
        reasons.append(
            f"the full cache {_describe_accuracy(counts)}: {float(counts.accuracy):.3f}, while "
            f"{_format_share(requirement.published)} ± {_format_share(requirement.margin)} is published"
        )
    return reasons


def _describe_accuracy(counts: AnswerCounts) -> str:
    """Describe the accuracy; the sum of scores is a Fraction and not a count, even if it is an integer."""
    if isinstance(counts.correct, int):
        return f"answers {counts.correct} of {counts.lanes}"
    return f"scores {float(counts.accuracy):.3f} on {counts.lanes} lanes"


def describe_gate(judged: Mapping[str, Any]) -> str:
    """Describe the gate of a judgement; empty if it passed."""
    gate = judged.get("gate")
    if gate is None:
        return "no gate: nothing shows that the full cache can do the task"
    if gate["passed"]:
        return ""
    failures = [failure for failure in gate["places"] if not failure["passed"]]
    is_single = len(gate["places"]) == 1
    clauses = [
        ", ".join(failure["why"]) + ("" if is_single else f" on {failure['model']}, {failure['task']}")
        for failure in failures
    ]
    return f"uninformative: {'; '.join(clauses)}"


def describe_failure(judged: Mapping[str, Any]) -> str:
    """Return `describe_gate`, but empty for a judgement from before gates existed."""
    return describe_gate(judged) if "gate" in judged else ""


def _format_share(share: Fraction) -> str:
    """Format with two digits, or with as many as are registered."""
    number = float(share)
    return f"{number:.2f}" if round(number, 2) == number else f"{number:g}"
