"""The answer to the registered question, with the number that decides, limited to what the verdict supports.

"Yes" and "No" refer to the registered rule and are used for CONFIRMED and REFUTED alone: a rule that was not
met leaves the question open. Every number was part of the judgement.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_CEILING, Decimal
from types import MappingProxyType
from typing import Any, TypeAlias

from analysis.output import headline
from analysis.rules import full_cache
from analysis.rules.rule import BYTES_OF, amount
from analysis.rules.verdicts import CONFIRMED, INCONCLUSIVE, REFUTED
from analysis.stats.methods import METHODS
from figures.canvas import numbers

__all__ = ["RULES", "answer"]

Row: TypeAlias = Mapping[str, Any]
NAMED = {"model": "on {}", "task": "on {}", "budget": "at budget {}", "against": "against {}"}


def answer(judged: Row, decision: Row | None = None) -> str:
    """Return one paragraph of text.

    judged: a judgement as `analysis.studies.judgement` or `figures.canvas.page.judged` gives it. decision:
    that of its lock, which names the two models of a branch; without it they are not named.
    """
    says, alone = headline.says(judged), headline.alone(judged)
    told = f", {alone}" if alone else ""
    if judged["verdict"] == headline.SCREENED:
        few = headline.fewest(judged["contrasts"])[1]
        opening = f"Not decided: {few} only screens. The rule alone says {says}"
    elif judged["verdict"] == "DEVIATED":
        opening = f"Not decided: this study amends one that had been claimed. The rule alone says {says}"
    elif judged["verdict"] in (CONFIRMED, REFUTED):
        # After a question whether something is lost, a bare "No" could be read as "nothing was".
        opening = f"{'Yes, as' if says == CONFIRMED else 'No, not as'} registered{told}"
    else:
        opening = "This study could not tell" if _void(judged) else "Not shown"
    void = _void(judged) if says == INCONCLUSIVE else ""
    found = void or RULES[judged["rule"]](judged, says, decision or {})
    return " ".join([f"{opening}: {found}.", *_besides(judged)])


def _void(judged: Row) -> str:
    """Return why the rule was not applied; empty if it was."""
    missing, contrasts = judged["missing"], judged["contrasts"]
    open_ = missing["rule"] == "inconclusive" or any(one["ended"] == "not run" for one in missing["cells"])
    few = sum(one["difference"] is None for one in contrasts)
    gate = judged.get("gate")
    reasons = []
    if gate and not gate["passed"]:
        reasons.append(full_cache.word(judged).removeprefix("uninformative: "))
    if missing["lanes"] and open_:
        reasons.append(f"{missing['lanes']} of {missing['registered']} registered lanes have no grade")
    if few:
        reasons.append(f"fewer than two problems could be compared in {few} of {len(contrasts)} contrasts")
    if missing.get("owed"):
        reasons.append("the rule is met only if the lanes that a comparator ended without a grade are wrong")
    return "; ".join(reasons)


def _besides(judged: Row) -> list[str]:
    """Return the caveats that keep the answer from being read as more than it is."""
    contrasts, said = judged["contrasts"], []
    if "selected" in judged:
        subject, chosen = contrasts[0]["subject"], judged["selected"]["arm"]
        said.append(f"{subject} is {chosen}, selected on development problems.")
    known = [one for one in contrasts if one["difference"] is not None]
    if apart := sum(not one["matched"] for one in known):
        what = "no memory was saved" if any("saves" in one for one in known) else "memory was not matched"
        # The letters of a branch depend on these, too.
        neither = "" if judged["rule"] == "branch" else ", where none can be won or lost"
        said.append(f"In {apart} of {_contrasts(contrasts)} {what}{neither}.")
    if bought := [one for one in known if (one.get("memory") or {}).get("decided")]:
        refute = headline.says(judged) == REFUTED and "margin" in judged
        others = ", in none that refutes" if refute and not any(_beyond(judged, bought)) else ""
        among = f"{len(bought)} of {_contrasts(contrasts)}{others}"
        said.append(f"Unequal memory may explain the difference in {among}.")
    if any("scored" in one for one in contrasts):
        said.append("Points are those of the mean score.")
    if "gate" in judged and judged["gate"] is None:
        said.append("No gate shows that the full cache can do the task.")
    return said


def _superior(judged: Row, says: str, decision: Row) -> str:
    contrasts, least = judged["contrasts"], judged["at_least"]
    fair = [one for one in contrasts if one["matched"]]
    wins, losses = ([one for one in fair if one[way]] for way in ("better", "worse"))
    subject, among = contrasts[0]["subject"], _contrasts(contrasts)
    of = f"all {among}" if least == len(contrasts) else f"at least {least} of {among}"
    if len(contrasts) == 1:
        return _one(judged, says)
    if says == CONFIRMED:
        return (
            f"{subject} was significantly better{_than(judged)} in {len(wins)} of {among} ({least} asked), "
            f"{_span(judged, wins)}, and significantly worse in none"
        )
    found = (
        f"{subject} was to be significantly better{_than(judged)} in {of} and worse in none; "
        f"it was better in {len(wins) or 'none'} and worse in {len(losses) or 'none'}"
    )
    if says == REFUTED:
        possible = sum(not one["matched"] or float(one["high_simultaneous"]) >= 0 for one in contrasts)
        late = f", and can be better in at most {possible}" if possible < least else ""
        lowest, name = (losses, "worst") if losses else (fair, "lowest")
        return f"{found}{late}; the {name} difference is {_row(judged, min(lowest, key=_difference))}"
    if len(wins) >= least:
        harmed = [one for one in fair if _difference(one) < 0 and float(one["p"]) <= float(judged["alpha"])]
        if harmed:
            why = f"{_row(judged, min(harmed, key=_difference))} goes against it before correction"
        elif len(fair) < len(contrasts):
            why = "memory that is not matched rules out a confirmation"
        else:
            why = "a contrast goes against it before correction"
        return f"{found}, but {why}"
    return f"{found}; {_best(judged, fair)}" if not wins else found


def _one(judged: Row, says: str) -> str:
    """Return the answer for a family of one contrast."""
    (one,) = judged["contrasts"]
    if says == CONFIRMED:
        return f"{one['subject']} was significantly better{_than(judged)}, by {_row(judged, one)}"
    claim = f"{one['subject']} was to be significantly better{_than(judged)}"
    if says == REFUTED or not one["matched"] or _difference(one) <= 0:
        return f"{claim}; the difference is {_row(judged, one)}"
    return f"{claim}; {_best(judged, [one])}"


def _best(judged: Row, fair: Sequence[Row]) -> str:
    """Return how near a family without a win came to one."""
    ahead = [one for one in fair if _difference(one) > 0]
    matched = " with matched memory" if len(fair) < len(judged["contrasts"]) else ""
    if not ahead:
        highest = f"; the highest is {_row(judged, max(fair, key=_difference))}" if fair else ""
        return f"no contrast{matched} favours it{highest}"
    together = METHODS[judged["method"]].family
    p = "p_adjusted" if together else "p"
    best = min(ahead, key=lambda one: (float(one[p]), -_difference(one)))
    level = numbers.level(judged["alpha" if together else "corrected_alpha"])
    many = len(judged["contrasts"])
    needs = level if together or many == 1 else f"the {level} that a family of {many} needs"
    adjusted = "adjusted " if together else ""
    name = "the difference is" if many == 1 else f"the best{matched} was"
    printed = _p(best[p])
    if numbers.p_value(best[p]).rstrip("0") == level:  # although p is above it
        printed = f"p = {float(best[p]):.6f}"
    return f"{name} {_points(best)}, {adjusted}{printed}, above {needs}{_where(judged, best)}"


def _span(judged: Row, wins: Sequence[Row]) -> str:
    if len(wins) == 1:
        return f"by {_row(judged, wins[0])}"
    ends = [numbers.points(end(wins, key=_difference)["difference"]) for end in (min, max)]
    return f"by {ends[0]} to {ends[1]} points"


def _branch(judged: Row, says: str, decision: Row) -> str:
    """Return the answer of the rule `branch`. `primary` and `transfer` are all contrasts and none if the
    models are not named.
    """
    subject, given = judged["contrasts"][0]["subject"], judged["branch"]
    names = {role: decision.get(f"{role}_model") for role in ("primary", "transfer")}
    first, second = (names[role] or f"its {role} model" for role in names)
    primary, transfer = (
        [one for one in judged["contrasts"] if one["model"] == name] for name in names.values()
    )
    level, letter = float(judged["alpha"]), given["registered"]
    alpha = f"p below {numbers.level(judged['alpha'])}"
    won = f"{subject} was better{_than(judged)} on {first}{_named(judged, _ahead(primary, level), max)}"
    if letter == "C":
        found = f"branch C, no contrast on {first} favours {subject}{_than(judged, 'over')} with {alpha}"
        if says == REFUTED:
            return f"{found}, and one goes against it{_named(judged, _against(primary, level), min)}"
        highest = (
            f"; the highest is {_row(judged, max(primary, key=_difference), 'model')}" if primary else ""
        )
        top = max(judged["contrasts"], key=_difference)
        beside = ""
        if top in transfer and float(top["p"]) < float(judged["alpha"]):
            beside = (
                f". The largest of all, {_row(judged, top)}, is on the transfer model, where no win counts"
            )
        return f"{found}{highest}{beside}"
    if letter == "B":
        if says == REFUTED:
            return f"branch B, {won}, but worse on {second}{_named(judged, _against(transfer, level), min)}"
        return f"branch B, {won}, but on {second} its mean is not above zero, or a contrast goes against it"
    if says == CONFIRMED:
        return f"branch A, {won}, and not harmed on {second}"
    if given["symmetric"] != "A":
        lost = [one for one in primary if _difference(one) < 0 and float(one["p"]) < level]
        return f"branch A, {won}, but another contrast there goes against it{_named(judged, lost, min)}"
    return f"branch A, {won}, but memory that is not matched rules out a confirmation"


def _ahead(rows: Sequence[Row], level: float) -> Sequence[Row]:
    """Return the rows that make a branch; the largest difference of all need not be among them."""
    won = [one for one in rows if _difference(one) > 0 and float(one["p"]) < level]
    return [one for one in won if one["matched"]] or won


def _against(rows: Sequence[Row], level: float) -> Sequence[Row]:
    """Return the rows that refute a branch, at the level of older locks if none does at the current one."""
    lost = [one for one in rows if one["matched"] and _difference(one) < 0 and float(one["p"]) < level]
    return [one for one in lost if float(one["p"]) < level / len(rows)] or lost


def _named(judged: Row, rows: Sequence[Row], end: Callable[..., Row]) -> str:
    return f", {_row(judged, end(rows, key=_difference), 'model')}" if rows else ""


def _non_inferior(judged: Row, says: str, decision: Row) -> str:
    return _margin(judged, says, both=False)


def _equivalent(judged: Row, says: str, decision: Row) -> str:
    return _margin(judged, says, both=True)


def _margin(judged: Row, says: str, *, both: bool) -> str:
    contrasts, points = judged["contrasts"], f"{100 * float(judged['margin']):g} points"
    alpha, subject, among = float(judged["alpha"]), contrasts[0]["subject"], _contrasts(contrasts)
    fair = [one for one in contrasts if one["matched"]]
    in_all = f"beside {contrasts[0]['against']}" if len(contrasts) == 1 else f"in all {among}"
    differ = f"differ by less than {points}, either way," if both else f"lose less than {points}"
    claim = f"{subject} was to {differ} {in_all}"

    def p(one: Row) -> float:
        sides = ("p_worse", "p_better") if both else ("p_worse",)
        return max(float(one[side]) for side in sides)

    def where(rows: Sequence[Row]) -> str:
        return f" in {len(rows)}" if len(contrasts) > 1 else ""

    def nearest(rows: Sequence[Row]) -> str:
        last = max(rows, key=p)
        at = f"{numbers.points(last['difference'])} points, {_p(str(p(last)))}"
        name = "the difference is" if len(contrasts) == 1 else "the closest is"
        return f"{name} {at}{_where(judged, last)}"

    if says == CONFIRMED:
        ruled = f"a difference of {points} or more, either way," if both else f"a loss of {points} or more"
        return f"{ruled} is ruled out for {subject} {in_all}; {nearest(contrasts)}"
    if says == REFUTED:
        low, high = _beyond(judged, fair)
        most = "the furthest " if len(contrasts) > 1 else ""
        parts = [
            f"{word} by more{where(rows)}, {most}{_limits(judged, end(rows, key=_difference))}"
            for word, rows, end in (("worse", low, min), ("better", high, max))
            if rows
        ]
        return f"{claim}; it was {' and '.join(parts)}"
    within = sum(p(one) <= alpha for one in fair)
    if within == len(contrasts):  # as printed; the rule uses more digits
        return f"{claim}; {nearest(fair)}"
    outside = [one for one in fair if p(one) > alpha]
    furthest = f"; {nearest(outside)}" if outside else ""
    shown = "not shown" if len(contrasts) == 1 else f"shown in {within} of {len(contrasts)}"
    return f"{claim}, and this is {shown}{furthest}"


def _smallest_lossless(judged: Row, says: str, decision: Row) -> str:
    points = f"{100 * float(judged['margin']):g} points"
    own = judged["smallest_lossless"][0]
    subject, steps = own["arm"], own["steps"]
    if says == CONFIRMED:
        memory = f"{(100 * Decimal(own['memory'])).to_integral_value(ROUND_CEILING)} %"
        return (
            f"down to {_budget(own['smallest'])} a loss of {points} or more is ruled out for {subject} on "
            f"every model and task, with at most {memory} of the full cache's memory"
        )
    if says == REFUTED:
        every = [one for one in judged["contrasts"] if one["subject"] == subject]
        held = {one["budget"] for one in every if not one["matched"]}  # with the full cache's memory
        largest = max({one["budget"] for one in every} - held, key=amount)
        beyond, _ = _beyond(judged, every)
        worst = min((one for one in beyond if one["budget"] == largest), key=_difference)
        return (
            f"already at {_budget(largest)} {subject} was worse than the full cache by more than {points}, "
            f"{_limits(judged, worst, 'budget')}"
        )
    last = steps[-1]
    if last["passed"]:
        return f"{subject} passed at no budget that saves memory"
    worst = next(
        one
        for one in judged["contrasts"]
        if (one["subject"], *(one[name] for name in ("model", "task", "budget")))
        == (subject, *(last[name] for name in ("model", "task", "budget")))
    )
    first = "its largest budget" if len(steps) == 1 else "and no larger budget that passed saves memory"
    return (
        f"at {_budget(last['budget'])}, {first}, a loss of {points} or more is not ruled out for {subject}: "
        f"{_points(worst)}, {_p(last['p'])}{_where(judged, worst, 'budget')}"
    )


def _beyond(judged: Row, rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Return the rows that refute by their margin: on the lower side, and on the upper one for a two-sided
    rule.
    """
    margin, both = float(judged["margin"]), judged["rule"] == "equivalent"
    low = [one for one in rows if float(one["high_margin"]) < -margin]
    return low, [one for one in rows if both and float(one["low_margin"]) > margin]


RULES: Mapping[str, Callable[[Row, str, Row], str]] = MappingProxyType(
    {
        "superior": _superior,
        "branch": _branch,
        "equivalent": _equivalent,
        "non_inferior": _non_inferior,
        "smallest_lossless": _smallest_lossless,
    }
)


def _difference(one: Row) -> float:
    return float(one["difference"])


def _points(one: Row) -> str:
    return f"{numbers.points(one['difference'])} points {numbers.interval(one['low'], one['high'])}"


def _row(judged: Row, one: Row, known: str = "") -> str:
    """Format a contrast. stated_part: a part of its name that the text already stated."""
    return f"{_points(one)}, {_p(one['p'])}{_where(judged, one, known)}"


def _limits(judged: Row, one: Row, known: str = "") -> str:
    """Format a contrast with the limits that are compared with the margin."""
    limits = numbers.interval(one["low_margin"], one["high_margin"])
    return f"{numbers.points(one['difference'])} points, limits {limits}{_where(judged, one, known)}"


def _where(judged: Row, one: Row, known: str = "") -> str:
    """Return what distinguishes this contrast from the others of the family."""
    names = [name for name in NAMED if len({row[name] for row in judged["contrasts"]}) > 1]
    told = [_named_as(name, one[name]) for name in names if name != known]
    return f" ({' '.join(told)})" if told else ""


def _than(judged: Row, word: str = "than") -> str:
    """Name the comparator, if there is only one."""
    against = {one["against"] for one in judged["contrasts"]}
    return f" {word} {against.pop()}" if len(against) == 1 else ""


def _contrasts(contrasts: Sequence[Row]) -> str:
    return "1 contrast" if len(contrasts) == 1 else f"{len(contrasts)} contrasts"


def _budget(text: str) -> str:
    return f"{text} slots" if text.isdigit() else f"a budget of {text}"


def _named_as(part: str, name: str) -> str:
    if part == "budget" and name.startswith(BYTES_OF):
        return f"at the {name} slots"
    return NAMED[part].format(name)


def _p(decimal: str) -> str:
    text = numbers.p_value(decimal)
    return f"p {text[0]} {text[1:]}" if text.startswith("<") else f"p = {text}"
