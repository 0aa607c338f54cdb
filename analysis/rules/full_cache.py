"""The gate: the accuracy that the full cache must reach before any rule may decide.

If the model cannot do the task with its full cache, all policies fail alike and a rule would call them equal.
Shares are compared exactly, as counts of lanes.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

__all__ = ["Answers", "Needed", "answers", "fault", "needed", "shortfalls", "word"]


class Answers(NamedTuple):
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


class Needed(NamedTuple):
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
    def words(self) -> str:
        """A short description of the registered gate."""
        asked = f"at least {_short(self.accuracy)}, at most {_short(self.truncated)} cut"
        if self.published is None:
            return asked
        return f"{asked}, published {_short(self.published)} ± {_short(self.margin)}"


def answers(lanes: Iterable[tuple[str, str | None, str | None, object]]) -> Answers:
    """Count the lanes, each (state, grade, stop, score) as in records; excluded ones are left out. A score
    is read only with the grade "scored".
    """
    counted = [lane for lane in lanes if lane[0] != "excluded"]
    grades = [grade if state == "ok" else None for state, grade, _, _ in counted]
    worth = [_worth(grade, lane[3]) for grade, lane in zip(grades, counted, strict=True)]
    cut = [(one, stop == "length") for one, (_, _, stop, _) in zip(worth, counted, strict=True)]
    return Answers(
        lanes=len(counted),
        correct=sum(worth),
        truncated=sum(stopped for _, stopped in cut),
        cut=sum(stopped and not one for one, stopped in cut),
        no_answer=grades.count("no answer"),
        ungraded=sum(grade in (None, "error") for grade in grades),
    )


def _worth(grade: str | None, score: object) -> Fraction | int:
    return Fraction(str(score)) if grade == "scored" else int(grade == "correct")


def needed(gate: Mapping[str, Any], model: str, task: str) -> Needed:
    """Return the gate of one model and task. gate: as in a lock, decimals as text."""
    places: Iterable[Mapping[str, Any]] = gate.get("places", ())
    here = next((one for one in places if (one["model"], one["task"]) == (model, task)), None) or {}
    accuracy, truncated = (Fraction(here.get(name, gate[name])) for name in ("accuracy", "truncated"))
    if "published" not in here:
        return Needed(accuracy, truncated)
    return Needed(accuracy, truncated, Fraction(here["published"]), Fraction(here["margin"]))


def shortfalls(seen: Answers, asked: Needed) -> list[str]:
    """Return the reasons why the gate fails, with the numbers; empty if it passes."""
    if not seen.lanes:
        return ["the full cache has no lane here"]
    found = []
    if seen.accuracy < asked.accuracy:
        failed = f", {seen.ungraded} without a grade" if seen.ungraded else ""
        found.append(f"the full cache {_reached(seen)}{failed} (gate: {_short(asked.accuracy)})")
    if Fraction(seen.cut, seen.lanes) > asked.truncated:
        found.append(
            f"{seen.cut} of {seen.lanes} answers of the full cache are cut before they are correct "
            f"(gate: {_short(asked.truncated)})"
        )
    if asked.published is not None and abs(seen.accuracy - asked.published) > asked.margin:
        found.append(
            f"the full cache {_reached(seen)}, {float(seen.accuracy):.3f} where "
            f"{_short(asked.published)} ± {_short(asked.margin)} is published"
        )
    return found


def _reached(seen: Answers) -> str:
    """Describe the accuracy; the sum of scores is a Fraction and not a count, even if it is an integer."""
    if isinstance(seen.correct, int):
        return f"answers {seen.correct} of {seen.lanes}"
    return f"scores {float(seen.accuracy):.3f} on {seen.lanes} lanes"


def word(judged: Mapping[str, Any]) -> str:
    """Describe the gate of a judgement; empty if it passed."""
    gate = judged.get("gate")
    if gate is None:
        return "no gate: nothing here says that the full cache can do the task"
    if gate["passed"]:
        return ""
    places = [place for place in gate["places"] if not place["passed"]]
    alone = len(gate["places"]) == 1
    said = [
        ", ".join(place["why"]) + ("" if alone else f" on {place['model']}, {place['task']}")
        for place in places
    ]
    return f"uninformative: {'; '.join(said)}"


def fault(judged: Mapping[str, Any]) -> str:
    """Return `describe_gate`, but empty for a judgement from before gates existed."""
    return word(judged) if "gate" in judged else ""


def _short(share: Fraction) -> str:
    """Format with two digits, or with as many as are registered."""
    number = float(share)
    return f"{number:.2f}" if round(number, 2) == number else f"{number:g}"
