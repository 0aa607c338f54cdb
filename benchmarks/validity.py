"""How often whole rules err and families of intervals miss: every method, every rule, every kind of data.

    python -m benchmarks.validity                  # 10,000 studies a cell
    python -m benchmarks.validity --only clusters  # data whose name has this word

A family of two models and two budgets at 0.05. What registering refuses, by its own checks, is printed with its reason;
of scores and clusters with how often one side of a contrast errs at its worst, over its level, and how many of four
intervals hold where four problems are gained and none is lost. Of everything else the worst null is searched: all
populations in which registering looks, and in each every truth of the family, where a contrast is equal, or better or
worse by several amounts (at the margin, equal, or without any difference of a rule with a margin). A verdict hangs on
the sign of each contrast and on the levels that its p falls below: the rule is asked once for every such pattern, and a
truth weighs the patterns by the chances of its contrasts, which are independent. At the worst truth new studies are
drawn and counted.

CONFIRMED is wrong where fewer contrasts are better than it says, or where a contrast lies on the margin; REFUTED where
none is worse, or none beyond the margin. `branch` confirms the primary model; the transfer model is a guard. The errors
of max-t, whose contrasts are adjusted together, are those that registering simulates; those of as-published stand
beside its verdict.
"""

import argparse
import itertools
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis.rules import RULES
from analysis.rules.rule import Contrast
from analysis.rules.verdicts import CONFIRMED, REFUTED
from analysis.simulation import cluster_populations, margin_tests, null_populations, null_settings
from analysis.simulation.cluster_populations import ClusterSetting
from analysis.simulation.null_populations import SCORE_STEPS
from analysis.simulation.null_settings import LOSSES, TOTAL, Setting
from analysis.stats import betting, power, resampled_units
from analysis.stats.comparison import Margins
from analysis.stats.interval import clopper_pearson
from analysis.stats.methods import AS_PUBLISHED, METHODS
from benchmarks.report import table
from protocol.formats.refusals import BadInput
from protocol.formats.vocabulary import CURRENT_JUDGING
from protocol.plan import toml_reader
from protocol.plan.design import Design
from protocol.preflight import planned_size, rule_checks

Floats = NDArray[np.float64]
ALPHA, FAMILY, MARGIN = 0.05, 4, 0.05
LEVELS = np.array([ALPHA / 4, ALPHA / 2, ALPHA])  # at which rules take a contrast
EFFECTS = (0.0, 0.02, 0.1, 0.3, -0.02, -0.1, -0.3)  # shares of problems that are won, or lost
SEARCH_STUDIES = 1_000
INTERVAL_STUDIES = (1_500, 6_000, 24_000)  # as many as tell whether four intervals hold COVERAGE
COVERAGE = 0.935
NOT_FOR_SUCH_DATA = "not for such data"
MEASURED, MEASURED_STUDIES = ("t", "cr2", "sign-flip", "bootstrap"), 400  # of what is refused for scores and clusters
FEW_GAINED = 4.0  # problems, on average
PROTOCOL = """
title = "Validity"
question = "How often does the rule err?"
models = ["path:first", "path:second"]
seeds = {seeds}
budgets = [256, 128]
[[tasks]]
name = "needle-256"
query = "inside"
max_new_tokens = 24
[arms]
full = {{ policy = "full" }}
subject = {{ policy = "crystal-token-level" }}
other = {{ policy = "random" }}
[generation]
temperature = {temperature}
dtype = "float32"
device = "cpu"
threads = 1
[gate]
accuracy = 0.05
truncated = 0.5
[decision]
rule = "{rule}"
subject = "subject"
against = ["{against}"]
alpha = 0.05
method = "{method}"
cache_tolerance = 0.02
memory = "slots"
missing = "inconclusive"
{fields}
"""
RULE_FIELDS: Mapping[str, tuple[str, str]] = {
    "superior, 1 of 4": ("superior", "at_least = 1"),
    "superior, 2 of 4": ("superior", "at_least = 2"),
    "branch": ("branch", 'primary_model = "path:first"\ntransfer_model = "path:second"'),
    "equivalent": ("equivalent", f"margin = {MARGIN}"),
    "non_inferior": ("non_inferior", f"margin = {MARGIN}"),
    "smallest_lossless": ("smallest_lossless", f"margin = {MARGIN}"),
}
TASK = "needle-256"
# Of independent answers, and fewer than 500 that differ, a method is another one.
SAME: Mapping[str, str] = {"auto": "restricted-likelihood", "cr2": "t"}


class Data(NamedTuple):
    """sizes: problems of each cluster. seeds: of right and wrong answers; SCORE_STEPS of scores."""

    name: str
    sizes: tuple[int, ...]
    seeds: int

    @property
    def is_counted(self) -> bool:
        """Whether problems are independent, and right or wrong."""
        return max(self.sizes) == 1 and self.seeds != SCORE_STEPS

    def items(self) -> dict[str, Any]:
        """Return the item of the lock: each problem with its cluster."""
        clusters = {f"{c}-{p}": str(c) for c, size in enumerate(self.sizes) for p in range(size)}
        item = {"dev": [], "confirm": list(clusters)}
        return {TASK: item | ({"clusters": clusters} if max(self.sizes) > 1 else {})}


def _clusters() -> Iterator[Data]:
    for count, seeds in itertools.product((3, 5, 10, 42, 200), (1, 3)):
        yield Data(f"{count} clusters of 5", (5,) * count, seeds)
        uneven = tuple(np.linspace(1, 13, count).round().astype(int).tolist())
        yield Data(f"{count} clusters of 1 to 13", uneven, seeds)
    yield Data("160 clusters of 1, 40 of 2", (1,) * 160 + (2,) * 40, 1)
    yield Data("10 clusters of 2", (2,) * 10, 1)
    yield Data("60 clusters of 2", (2,) * 60, 1)
    yield Data("clusters: 199 of 1, one of 2", (1,) * 199 + (2,), 1)
    yield Data("clusters: 190 of 1, ten of 20", (1,) * 190 + (20,) * 10, 1)
    yield Data("clusters: 50 of 1, three of 50", (1,) * 50 + (50,) * 3, 1)
    yield Data("35 clusters of 1, 2, 4 to 64", (1, 2, 4, 8, 16, 32, 64) * 5, 1)
    yield Data("35 clusters of 1, 2, 4 to 64 with scores", (1, 2, 4, 8, 16, 32, 64) * 5, SCORE_STEPS)
    yield Data("clusters: 199 of 1, one of 200", (1,) * 199 + (200,), 1)


KINDS = (
    *(Data(f"{problems} problems", (1,) * problems, seeds) for problems in (60, 200, 500) for seeds in (1, 3)),
    *(Data(f"{problems} problems with scores", (1,) * problems, SCORE_STEPS) for problems in (60, 200)),
    Data("42 clusters of 1 to 13 with scores", tuple(np.linspace(1, 13, 42).round().astype(int).tolist()), SCORE_STEPS),
    *_clusters(),
)


class State(NamedTuple):
    """The truth of one contrast in a population. effect: share of problems that are won, or lost, besides. margin:
    by which the subject is worse, or better if mirrored. differs: whether the population's differences are there.
    """

    effect: float = 0.0
    margin: float = 0.0
    is_mirrored: bool = False
    differs: bool = True


PLAIN = tuple(State(effect) for effect in EFFECTS)
ABOUT_MARGIN = (State(), State(margin=MARGIN), State(margin=MARGIN, is_mirrored=True), State(differs=False))


def settings(data: Data, has_margin: bool) -> list[Any]:
    """Return the populations in which registering looks; of independent answers every second share."""
    if not data.is_counted:
        return [*cluster_populations.cluster_settings(np.asarray(data.sizes), data.seeds, margin=has_margin)]
    return [
        kind._replace(discordance=share)
        for kind in null_settings.kinds(data.seeds, margin=has_margin)
        if has_margin or kind.kind != LOSSES
        for share in null_populations.discordances(kind.kind, data.seeds)[::2]
    ]


def draw(data: Data, setting: Any, state: State, studies: int, rng: np.random.Generator) -> NDArray[Any]:
    """Return counts[study, 2 seeds + 1] of independent answers, else means[study, cluster]."""
    share, sign = abs(state.effect), np.sign(state.effect)
    if data.is_counted:
        shares = null_populations.shares(setting, data.seeds, state.margin)
        if not state.differs:
            shares = np.eye(len(shares))[data.seeds]
        shares = (1 - share) * shares
        shares[data.seeds + int(sign) * data.seeds] += share
        counts = rng.multinomial(len(data.sizes), shares, studies)
        return counts[:, ::-1] if state.is_mirrored else counts
    sizes = np.asarray(data.sizes)
    means = np.zeros((studies, len(sizes)))
    if state.differs:
        means = cluster_populations.draw_cluster_means(setting, sizes, data.seeds, studies, rng, state.margin)
    moved = rng.binomial(sizes, share, means.shape) / sizes
    mixed: NDArray[Any] = means * (1 - moved) + sign * moved
    return -mixed if state.is_mirrored else mixed


def categories(
    method: str, data: Data, has_margin: bool, drawn: NDArray[Any], rng: np.random.Generator
) -> NDArray[Any]:
    """Return which pattern each study shows, [study].

    Without a margin: 0 to 3 for a positive mean by the levels that p is below, 4 to 7 for a negative one. With one:
    3 x (above -margin, open, below it) + (below the margin, open, above it).
    """
    if data.is_counted:
        if has_margin:
            return _margin_category(*margin_tests.margin_p_values(method, drawn, MARGIN))
        p = power.p_values(method, drawn, None, rng)
        is_negative = drawn @ np.arange(-data.seeds, data.seeds + 1) < 0
    else:
        sizes, draws = np.asarray(data.sizes), power.draws_needed(ALPHA / FAMILY)

        def tails(null: float) -> Floats:
            return cluster_populations.cluster_tails(method, drawn, sizes, null, draws, rng).T

        if has_margin:
            return _margin_category(*tails(-MARGIN), *tails(MARGIN)[::-1])
        p, is_negative = 2 * tails(0.0).min(axis=0), drawn @ sizes < 0
    return np.searchsorted(LEVELS, p) + 4 * is_negative


def _margin_category(worse: Floats, below: Floats, better: Floats, above: Floats) -> NDArray[Any]:
    lower, upper = (
        np.where(inside <= ALPHA, 0, np.where(beyond <= ALPHA / FAMILY, 2, 1))
        for inside, beyond in ((worse, below), (better, above))
    )
    return 3 * lower + upper


class Wrong(NamedTuple):
    """Verdicts by pattern[category] * 4, with the truths[state] * 4 in which they are wrong."""

    patterns: NDArray[np.bool_]
    truths: NDArray[np.bool_]


class WrongVerdicts(NamedTuple):
    """CONFIRMED, of smallest_lossless one for each budget that it may name; and REFUTED."""

    confirmed: tuple[Wrong, ...]
    refuted: Wrong


def parse_protocol(rule: str, method: str, data: Data) -> Design | None:
    """Return the protocol; None if the rule does not take the method."""
    name, fields = RULE_FIELDS[rule]
    fields += "\ndraws = 200000\nseed = 7" if METHODS[method].draws else ""
    seeds = 1 if data.seeds == SCORE_STEPS else data.seeds
    text = PROTOCOL.format(
        rule=name,
        method=method,
        fields=fields,
        seeds=[*range(seeds)],
        temperature=0.6 if seeds > 1 else 0,
        against="full" if name == "smallest_lossless" else "other",
    )
    try:
        return toml_reader.parse(text.encode(), "validity.toml")
    except BadInput:
        return None


@cache
def wrong_verdicts(rule: str) -> WrongVerdicts:
    """Ask the rule for its verdict in every pattern. A pattern leaves the sign of a sum of contrasts open, which the
    paper's `branch` looks at: it counts as wrong if either sign makes it so.
    """
    name, fields = RULE_FIELDS[rule]
    protocol = parse_protocol(rule, "betting", KINDS[0])
    assert protocol is not None
    decision, has_margin = protocol.content()["decision"], "margin" in fields
    states, kinds = (ABOUT_MARGIN, 9) if has_margin else (PLAIN, 8)
    said = np.zeros((3, *[kinds] * FAMILY), dtype=bool)  # CONFIRMED at the larger budget, at the smaller one; REFUTED
    for pattern in itertools.product(range(kinds), repeat=FAMILY):
        for sizes in ((3, 1), (1, 3)) if name == "branch" else ((1, 1),):
            contrasts = [_contrast(place, kind, has_margin, sizes) for place, kind in enumerate(pattern)]
            verdict = RULES[name].decide(contrasts, decision, CURRENT_JUDGING)
            is_smaller = False
            if name == "smallest_lossless" and verdict == CONFIRMED:
                (arm,) = RULES[name].report(contrasts, decision, CURRENT_JUDGING)[name]
                is_smaller = arm["smallest"] == "128"
            said[(0, *pattern)] |= verdict == CONFIRMED and not is_smaller
            said[(1, *pattern)] |= verdict == CONFIRMED and is_smaller
            said[(2, *pattern)] |= verdict == REFUTED
    truths = np.indices([len(states)] * FAMILY)
    better = np.array([state.effect > 0 for state in states])[truths]
    worse = np.array([state.effect < 0 for state in states])[truths]
    on_margin = np.array([state.margin > 0 for state in states])[truths]
    below = on_margin & ~np.array([state.is_mirrored for state in states])[truths]
    refuted = Wrong(said[2], np.logical_not(worse.any(axis=0)))
    if name == "smallest_lossless":
        return WrongVerdicts(tuple(Wrong(said[place], below[place::2].any(axis=0)) for place in (0, 1)), refuted)
    wrong = {
        "superior": better.sum(axis=0) < decision.get("at_least", 0),
        "branch": np.logical_not(better[:2].any(axis=0)),
        "equivalent": on_margin.any(axis=0),
        "non_inferior": below.any(axis=0),
    }
    return WrongVerdicts((Wrong(said[0], wrong[name]),), refuted)


def _contrast(place: int, kind: int, has_margin: bool, sizes: tuple[int, int]) -> Contrast:
    """Return a contrast of the pattern `kind`; sizes: of a positive and of a negative mean."""
    is_negative, level = divmod(kind, 4)
    p = 0.999 * float(LEVELS[level]) if level < len(LEVELS) else 0.5
    net, margins = -sizes[1] if is_negative else sizes[0], None
    if has_margin:
        lower, upper = divmod(kind, 3)
        inside = [0.999 * ALPHA if side == 0 else 0.5 for side in (lower, upper)]
        margins = Margins(0.0, 1.0 if upper == 2 else -1.0, -1.0 if lower == 2 else 1.0, *inside)
        net = 0
    return Contrast(
        model="path:first" if place < 2 else "path:second",
        task=TASK,
        budget=("256", "128")[place % 2],
        subject="subject",
        against="other",
        delta=net / 1_000,
        high=-1.0 if net < 0 and level == 0 else 1.0,
        p=p,
        adjusted=min(1.0, FAMILY * p),
        matched=True,
        net=net,
        lanes=1_000,
        margins=margins,
    )


class Worst(NamedTuple):
    """The chance of a wrong verdict, estimated, and where: a population and the state of each contrast."""

    chance: float
    setting: Any
    truth: tuple[int, ...]


def find_worst(
    rules: Sequence[str], method: str, data: Data, studies: int, rng: np.random.Generator
) -> dict[tuple[str, str], Worst]:
    """Search all populations and truths for the largest chance of CONFIRMED, and of any wrong verdict, of each rule;
    with a margin of REFUTED, since each verdict has its own level.
    """
    has_margin = "margin" in RULE_FIELDS[rules[0]][1]
    states, kinds = (ABOUT_MARGIN, 9) if has_margin else (PLAIN, 8)
    worst: dict[tuple[str, str], Worst] = {}
    for setting in settings(data, has_margin):
        chances = np.stack(
            [
                np.bincount(
                    categories(method, data, has_margin, draw(data, setting, state, studies, rng), rng), minlength=kinds
                )
                / studies
                for state in states
            ]
        )
        for rule in rules:
            verdicts = wrong_verdicts(rule)
            confirmed = sum((_weigh(wrong, chances) for wrong in verdicts.confirmed), np.zeros(()))
            refuted = _weigh(verdicts.refuted, chances)
            for word, found in (("CONFIRMED", confirmed), ("all", refuted if has_margin else confirmed + refuted)):
                place = np.unravel_index(int(found.argmax()), found.shape)
                best = Worst(float(found[place]), setting, tuple(map(int, place)))
                worst[rule, word] = max(best, worst.get((rule, word), best), key=lambda each: each.chance)
    return worst


def _weigh(wrong: Wrong, chances: Floats) -> Floats:
    """Return the chance of a wrong verdict in every truth, [state] * 4. chances: [state, category]."""
    found = wrong.patterns.astype(float)
    for _ in range(FAMILY):
        found = np.tensordot(found, chances, axes=(0, 1))
    return found * wrong.truths


def count_wrong(
    rule: str, word: str, method: str, data: Data, worst: Worst, studies: int, rng: np.random.Generator
) -> int:
    """Return how many of new studies at the worst truth have a wrong verdict."""
    has_margin = "margin" in RULE_FIELDS[rule][1]
    states = ABOUT_MARGIN if has_margin else PLAIN
    shown = tuple(
        categories(method, data, has_margin, draw(data, worst.setting, states[at], studies, rng), rng)
        for at in worst.truth
    )
    verdicts = wrong_verdicts(rule)
    counted = [*verdicts.confirmed] if word == "CONFIRMED" or not has_margin else []
    counted += [verdicts.refuted] if word == "all" else []
    return int(sum(each.patterns[shown].sum() for each in counted if each.truths[worst.truth]))


# ----------------------------------------------------------------------------------------- refusals and intervals


def _scored(data: Data) -> list[str]:
    return [TASK] if data.seeds == SCORE_STEPS else []


_REFUSALS: dict[tuple[str, Data, bool], str] = {}


def refusal(rule: str, method: str, data: Data) -> str | None:
    """Return why registering refuses, in short; empty if it does not, None if the rule never takes the method."""
    if (protocol := parse_protocol(rule, method, data)) is None:
        return None
    items, scored, key = data.items(), _scored(data), (method, data, "margin" in RULE_FIELDS[rule][1])
    if _REFUSALS.get(key):
        return _REFUSALS[key]
    try:
        planned_size.refuse_few_clusters(items)
        rule_checks.refuse_method(protocol, items, scored)
        errors = rule_checks.check_method(protocol, items, scored)
    except BadInput as refused:
        _REFUSALS[key] = _shorten(str(refused))
        return _REFUSALS[key]
    try:
        rule_checks.check_decision(protocol, items, scored, errors)
    except BadInput as refused:
        return f"the rule, {_shorten(str(refused))}"
    return ""


def _shorten(message: str) -> str:
    if found := re.search(r"decides ([\d.e-]+) % .* (?:level|alpha) ([\d.]+) %", message):
        return f"{float(found[1]) / float(found[2]):.2g} x"
    for words, short in (
        ("an effective number of", "too few clusters"),
        ("is valid only for answers that are right or wrong", NOT_FOR_SUCH_DATA),
        ("cannot give a p below", "no p is small enough"),
    ):
        if words in message:
            return short
    return message.partition(";")[0]


def coverage(method: str, data: Data, worst: Setting | ClusterSetting, rng: np.random.Generator) -> tuple[float, float]:
    """Return how often four intervals at the corrected level hold four truths at once, with the lower limit: the worst
    of the worst population, of few gains without a loss, and of few total losses. Studies are added until the limit is
    at least COVERAGE or the share below it; the limits of all looks hold together at 95 %.
    """
    skewed = next(each for each in settings(data, True) if each.loss_kind == TOTAL)
    found = []
    for setting, state in (
        (worst, State()),
        (worst, State(effect=0.02, differs=False)),
        (worst, State(effect=0.1, differs=False)),
        (worst, State(effect=FEW_GAINED / sum(data.sizes), differs=False)),
        (skewed, State(margin=MARGIN)),
    ):
        missed, studies = 0, 0
        for wanted in INTERVAL_STUDIES:
            drawn = draw(data, setting, state, wanted - studies, rng)
            missed, studies = missed + count_misses(method, data, drawn, state.effect - state.margin), wanted
            high = clopper_pearson(missed, studies, 1 - 0.05 / len(INTERVAL_STUDIES))[1]
            share, low = ((1 - each) ** FAMILY for each in (missed / studies, high))
            if share < COVERAGE or low >= COVERAGE:
                break
        found.append((share, low))
    shares, lows = zip(*found, strict=True)
    return min(shares), min(lows)


def count_misses(method: str, data: Data, drawn: NDArray[Any], truth: float) -> int:
    """Return how many intervals of a contrast, at the corrected level, do not hold `truth`. drawn: as of `draw`.

    The interval of bets is what both one-sided tests do not reject, so that it is not searched for.
    """
    if method == "betting":
        sizes = np.asarray(data.sizes, dtype=float)
        p = betting.p_of_counts(drawn, truth) if data.is_counted else betting.one_sided_p(drawn, truth, sizes)
        return int((p.min(axis=1) <= ALPHA / FAMILY / 2).sum())
    rows, weights = np.unique(drawn, axis=0, return_counts=True)
    return sum(weight for row, weight in zip(rows, weights.tolist(), strict=True) if _misses(method, data, row, truth))


def _misses(method: str, data: Data, row: NDArray[Any], truth: float) -> bool:
    difference, clusters = _as_answers(data, row)
    (interval,) = resampled_units.compare_at_levels(
        method,
        difference,
        clusters,
        [1 - ALPHA / FAMILY],
        draws=power.draws_needed(ALPHA / FAMILY),
        rng=lambda: np.random.default_rng(0),
    )
    return not interval.low - 1e-9 <= truth <= interval.high + 1e-9


def _as_answers(data: Data, row: NDArray[Any]) -> tuple[Floats, list[str] | None]:
    """Return difference[problem, seed] and clusters of a study as `draw` has it."""
    if data.is_counted:
        sums = np.repeat(np.arange(-data.seeds, data.seeds + 1), row)
        return np.sign(sums)[:, None] * (np.arange(data.seeds) < np.abs(sums)[:, None]), None
    names = np.repeat(np.arange(len(data.sizes)), data.sizes).astype(str).tolist()
    return np.repeat(row, data.sizes)[:, None], names if max(data.sizes) > 1 else None


def rows_of(data: Data, studies: int) -> list[list[str]]:
    """Return the lines of the table: a line for each method that registers with some rule, and one of refusals."""
    lines: list[list[str]] = []
    refused: dict[str, str] = {}
    equal = {other: f"{other} = {name}" for name, other in SAME.items()} if data.is_counted else {}
    name = [data.name, "scores" if data.seeds == SCORE_STEPS else str(data.seeds)]
    for method in METHODS:
        if method == AS_PUBLISHED or (data.is_counted and method in SAME):
            continue
        why = {rule: refusal(rule, method, data) for rule in RULE_FIELDS}
        if all(why.values()) or not (open_rules := [rule for rule in RULE_FIELDS if why[rule] == ""]):
            refused[method] = "; ".join(dict.fromkeys(text for text in why.values() if text))
            continue
        cells, rng, populations = dict.fromkeys(RULE_FIELDS, "-"), np.random.default_rng([7, len(lines)]), []
        cells |= {rule: f"refused: {text}" for rule, text in why.items() if text}
        if METHODS[method].family:
            cells |= {rule: _family_errors(rule, method, data) for rule in open_rules}
            lines.append([*name, method, *cells.values(), ""])
            continue
        for has_margin in (False, True):
            rules = [rule for rule in open_rules if ("margin" in RULE_FIELDS[rule][1]) == has_margin]
            worst = find_worst(rules, method, data, SEARCH_STUDIES, rng) if rules else {}
            populations += [each.setting for (_, word), each in worst.items() if word == "all" and not has_margin]
            for rule in rules:
                shares = [
                    _format(count_wrong(rule, word, method, data, worst[rule, word], studies, rng), studies)
                    for word in ("CONFIRMED", "all")
                ]
                cells[rule] = " / ".join(shares)
        share, low = coverage(method, data, populations[0] if populations else settings(data, False)[0], rng)
        lines.append([*name, equal.get(method, method), *cells.values(), f"{100 * share:.1f} ({100 * low:.1f})"])
    refused |= {method: _measure(method, data) for method in MEASURED if refused.get(method) == NOT_FOR_SUCH_DATA}
    reasons = {
        reason: [equal.get(name, name) for name in refused if refused[name] == reason] for reason in refused.values()
    }
    text = "; ".join(f"{', '.join(methods)}: {reason}" for reason, methods in reasons.items())
    return [*lines, *([[*name, f"refused: {text}", *[""] * (len(RULE_FIELDS) + 1)]] if refused else [])]


def _measure(method: str, data: Data) -> str:
    """Return how often one side of a contrast errs, at its worst over its level, and how many of four intervals hold
    where four problems are gained on average and none is lost.
    """
    rng, level = np.random.default_rng(7), ALPHA / FAMILY / 2
    worst = cluster_populations.worst_error_of_clusters(method, data.sizes, data.seeds, (level, level), rng, 0.0)
    state = State(effect=FEW_GAINED / sum(data.sizes), differs=False)
    drawn = draw(data, worst.setting, state, MEASURED_STUDIES, rng)
    held = (1 - count_misses(method, data, drawn, state.effect) / MEASURED_STUDIES) ** FAMILY
    return f"{float(f'{worst.ratio:.2g}'):g} x and {100 * held:.0f} %"


def _family_errors(rule: str, method: str, data: Data) -> str:
    """Return the errors of a method that adjusts p for the whole family, as registering simulates them."""
    protocol = parse_protocol(rule, method, data)
    assert protocol is not None
    errors = rule_checks.check_decision(protocol, data.items(), _scored(data), {})
    return " / ".join(f"{100 * rate.share:.1f} ({100 * rate.high:.1f})" for rate in (errors.confirmed, errors.wrong))


def _format(count: int, studies: int) -> str:
    return f"{100 * count / studies:.1f} ({100 * clopper_pearson(count, studies)[1]:.1f})"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.validity", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--studies", type=int, default=10_000, help="counted at the worst null; default 10,000")
    parser.add_argument("--only", default="", help="a word in the name of the data")
    options = parser.parse_args(argv)
    started = time.process_time()
    heads = ["data", "seeds", "method", *RULE_FIELDS, "four intervals hold"]
    print(table(heads, []), flush=True)
    for data in KINDS:
        if options.only in data.name:
            for line in rows_of(data, options.studies):
                print(f"| {' | '.join(line)} |", flush=True)
    print(f"\n{time.process_time() - started:.0f} processor seconds.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
