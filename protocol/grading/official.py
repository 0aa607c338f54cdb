"""The official score of a task: lm-eval's own scorer, unchanged, whatever its faults."""

import json

from protocol import harness
from protocol.grading.answer_text import excerpt, strip_special_tokens
from protocol.grading.grade import Grade, make_score


class OfficialScorer:
    """The first metric of the installed task, by its first filter; computed in a separate process.

    A gold answer is a row of the task's data, as JSON. The text is the model's output without special tokens,
    as lm-eval decodes it, thoughts included, cut where the first of the task's stop strings begins: lm-eval
    stops there, our engine at its end token or the token limit. lm-eval returns -1 for a length that was not
    run; that metric is skipped.
    """

    def __init__(self, task: str):
        self._task = task
        self._facts = harness.shared_harness().facts(task)

    def grade(self, gold: str, text: str) -> Grade:
        """Always "scored", except "timeout" if scoring took too long and "error" for a score outside 0 to 1."""
        try:
            values, answer = harness.shared_harness().scores(self._task, json.loads(gold), strip_special_tokens(text))
        except harness.TookTooLong as timeout:
            return Grade("timeout", None, str(timeout))
        name, value = self._first_metric({name: value for name, value in values.items() if value != -1})
        if value is None or not 0 <= value <= 1:
            return Grade("error", excerpt(answer), f"lm-eval's {name} is {value}, not from 0 to 1")
        return make_score(value, excerpt(answer), "" if value == 1 else f"lm-eval's {name}")

    def _first_metric(self, values: dict[str, float]) -> tuple[str, float | None]:
        """Return the task's first metric. RULER's is named by the length of the problem, and no other metric
        replaces a missing one.
        """
        for name, value in values.items():
            metric = name.partition("/")[2]
            if metric == self._facts.metric or (metric.isdecimal() and self._facts.metric.isdecimal()):
                return name, value
        return self._facts.metric, None
