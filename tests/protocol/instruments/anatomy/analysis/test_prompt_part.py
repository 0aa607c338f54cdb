"""Labels that are a step where the prompt ends: what only tells the parts apart knows nothing within them."""

import numpy as np

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
    within = partial_within_parts(anatomy, ("m", "t"), found).mean(axis=0)
    assert found.partial.mean(axis=0)[0] > 0.15  # the straight trend leaves much of a step
    assert abs(within[0]) < 0.08
    assert within[1] > 0.4


def test_a_span_in_one_part_has_the_partial_itself():
    for prompt in (0, TOKENS):
        anatomy = made(prompt)
        found = measure_agreement(anatomy, ("m", "t"), None)
        assert (partial_within_parts(anatomy, ("m", "t"), found) == found.partial).all()
