"""Labels that are a step where the prompt ends: what only tells the parts apart knows nothing within them, and the
registered test says so.
"""

import numpy as np
import pytest

from protocol.instruments.anatomy.analysis import registered_test
from protocol.instruments.anatomy.analysis.agreement import measure_agreement, partial_within_parts
from protocol.instruments.anatomy.analysis.traces import Anatomy, Trace, Values

PROMPT, TOKENS, TRACES = 40, 80, 12
STEP, INSIDE = ("step", 0), ("inside", 0)


class Made(Trace):
    """Needed: two random thirds of the prompt, nothing after it. step: high in the prompt; inside: high
    where a token is needed.
    """

    def values(self):
        rng = np.random.default_rng(int(self.problem))
        noise = rng.normal(size=(2, TOKENS))
        label = self.labels("dropped")
        return Values(np.array([noise[0] + 4 * (np.arange(TOKENS) < PROMPT), noise[1] + 4 * label]), None)


def made(prompt=PROMPT):
    found = []
    for number in range(TRACES):
        needed = set(np.random.default_rng(100 + number).choice(PROMPT, 2 * PROMPT // 3, replace=False))
        windows = {"dropped": tuple((at, at + 1, at in needed) for at in range(TOKENS))}
        head = ("m", "t", str(number), str(number), "choose", "labelled", (0, TOKENS), TOKENS * ("x",))
        found.append(Made(*head, windows, (STEP, INSIDE), (), None, prompt))
    return Anatomy("", {"reading": "dropped"}, (("m", "t"),), {}, {}, (), tuple(found))


def test_a_step_is_beyond_position_and_nothing_given_the_part():
    anatomy = made()
    found = measure_agreement(anatomy, ("m", "t"), None)
    within = partial_within_parts(anatomy, ("m", "t"), None, found).mean(axis=0)
    assert found.partial.mean(axis=0)[0] > 0.15  # the straight trend leaves much of a step
    assert abs(within[0]) < 0.08
    assert within[1] > 0.4


def test_a_span_in_one_part_has_the_partial_itself():
    for prompt in (0, TOKENS):
        anatomy = made(prompt)
        found = measure_agreement(anatomy, ("m", "t"), None)
        assert (partial_within_parts(anatomy, ("m", "t"), None, found) == found.partial).all()


def result_of(signal, **settings):
    """What the registered test says of one signal on both halves of labels with a step."""
    one = made()
    traces = tuple(trace._replace(half=half) for trace in one.traces for half in ("choose", "test"))
    held = {"reading": "dropped", "draws": 400, "seed": 7} | settings
    anatomy = one._replace(traces=traces, settings=held)
    choice = {"chosen": {"signal": signal[0], "layer": 0, "sign": 1, "mean": 0.5, "sd": 0.1}, "candidates": 2}
    return registered_test._test_pair(anatomy, ("m", "t"), choice, 0.05, 0)


@pytest.mark.parametrize(
    ("beyond", "step", "inside"), [("position", "AGREES", "AGREES"), ("parts", "NOT SHOWN", "AGREES")]
)
def test_a_step_agrees_beyond_position_and_not_within_parts(beyond, step, inside):
    for signal, word in ((STEP, step), (INSIDE, inside)):
        found = result_of(signal, beyond=beyond)
        assert (found["word"], found["beyond_position"]["word"]) == ("AGREES", word)
