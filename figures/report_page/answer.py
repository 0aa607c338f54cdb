"""The answer to the registered question, with the number that decides, limited to what the verdict supports.

"Yes" and "No" refer to the registered rule and are used for CONFIRMED and REFUTED alone: a rule that was not
met leaves the question open. Every number was part of the judgement.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_CEILING, Decimal
from types import MappingProxyType
from typing import Any, TypeAlias

from analysis.rules import full_cache_gate, verdict_line
from analysis.rules.rule import BYTES_OF, budget_amount
from analysis.rules.verdicts import CONFIRMED, INCONCLUSIVE, REFUTED
from analysis.stats.methods import METHODS
from figures.drawing import formatting

__all__ = ["RULES", "format_answer"]

Row: TypeAlias = Mapping[str, Any]
PART_PHRASES = {"model": "on {}", "task": "on {}", "budget": "at budget {}", "against": "against {}"}


def format_answer(judged: Row, decision: Row | None = None) -> str:
    """Return one paragraph of text.

    judged: a judgement as `analysis.judgement.judgement` or `figures.drawing.page.read_judged` gives it. decision:
    that of its lock, which names the two models of a branch; without it they are not named.
    """
    rule_verdict, single_model = verdict_line.rule_verdict(judged), verdict_line.format_single_model(judged)
    scope = f", {single_model}" if single_model else ""
    if judged["verdict"] == verdict_line.SCREENED:
        few = verdict_line.smallest_contrast(judged["contrasts"])[1]
        opening = f"Not decided: {few} only screens. The rule alone says {rule_verdict}"
    elif judged["verdict"] == "DEVIATED":
        opening = f"Not decided: this study amends one that had been claimed. The rule alone says {rule_verdict}"
    elif judged["verdict"] in (CONFIRMED, REFUTED):
        # After a question whether something is lost, a bare "No" could be read as "nothing was".
        opening = f"{'Yes, as' if rule_verdict == CONFIRMED else 'No, not as'} registered{scope}"
    else:
        opening = "This study could not tell" if _void_reasons(judged) else "Not shown"
    void = _void_reasons(judged) if rule_verdict == INCONCLUSIVE else ""
    finding = void or RULES[judged["rule"]](judged, rule_verdict, decision or {})
    return " ".join([f"{opening}: {finding}.", *_caveats(judged)])


def _void_reasons(judged: Row) -> str:
    """Return why the rule was not applied; empty if it was."""
    missing, contrasts = judged["missing"], judged["contrasts"]
    open_ = missing["rule"] == "inconclusive" or any(item["ended"] == "not run" for item in missing["cells"])
    uncomparable = sum(item["difference"] is None for item in contrasts)
    gate = judged.get("gate")
    reasons = []
    if gate and not gate["passed"]:
        reasons.append(full_cache_gate.describe_gate(judged).removeprefix("uninformative: "))
    if missing["lanes"] and open_:
        reasons.append(f"{missing['lanes']} of {missing['registered']} registered lanes have no grade")
    if uncomparable:
        reasons.append(f"fewer than two problems could be compared in {uncomparable} of {len(contrasts)} contrasts")
    if missing.get("owed"):
        reasons.append("the rule is met only if the lanes that a comparator ended without a grade are wrong")
    return "; ".join(reasons)


def _caveats(judged: Row) -> list[str]:
    """Return the caveats that keep the answer from being read as more than it is."""
    contrasts, messages = judged["contrasts"], []
    if "selected" in judged:
        subject, chosen = contrasts[0]["subject"], judged["selected"]["arm"]
        messages.append(f"{subject} is {chosen}, selected on development problems.")
    estimated = [contrast for contrast in contrasts if contrast["difference"] is not None]
    if unmatched := sum(not contrast["matched"] for contrast in estimated):
        memory_phrase = (
            "no memory was saved" if any("saves" in contrast for contrast in estimated) else "memory was not matched"
        )
        # The letters of a branch depend on these, too.
        consequence = "" if judged["rule"] == "branch" else ", where none can be won or lost"
        messages.append(f"In {unmatched} of {_count_contrasts(contrasts)} {memory_phrase}{consequence}.")
    if memory_explained := [contrast for contrast in estimated if (contrast.get("memory") or {}).get("decided")]:
        refute = verdict_line.rule_verdict(judged) == REFUTED and "margin" in judged
        others = ", in none that refutes" if refute and not any(_beyond_margin(judged, memory_explained)) else ""
        among = f"{len(memory_explained)} of {_count_contrasts(contrasts)}{others}"
        messages.append(f"Unequal memory may explain the difference in {among}.")
    if any("scored" in contrast for contrast in contrasts):
        messages.append("Points are those of the mean score.")
    if "gate" in judged and judged["gate"] is None:
        messages.append("No gate shows that the full cache can do the task.")
    return messages


def _superior(judged: Row, rule_verdict: str, decision: Row) -> str:
    contrasts, least = judged["contrasts"], judged["at_least"]
    matched = [contrast for contrast in contrasts if contrast["matched"]]
    wins, losses = ([contrast for contrast in matched if contrast[way]] for way in ("better", "worse"))
    subject, among = contrasts[0]["subject"], _count_contrasts(contrasts)
    requirement = f"all {among}" if least == len(contrasts) else f"at least {least} of {among}"
    if len(contrasts) == 1:
        return _superior_single(judged, rule_verdict)
    if rule_verdict == CONFIRMED:
        return (
            f"{subject} was significantly better{_format_comparator(judged)} in {len(wins)} of {among} ({least} asked), "
            f"{_format_range(judged, wins)}, and significantly worse in none"
        )
    finding = (
        f"{subject} was to be significantly better{_format_comparator(judged)} in {requirement} and worse in none; "
        f"it was better in {len(wins) or 'none'} and worse in {len(losses) or 'none'}"
    )
    if rule_verdict == REFUTED:
        possible = sum(not contrast["matched"] or float(contrast["high_simultaneous"]) >= 0 for contrast in contrasts)
        late = f", and can be better in at most {possible}" if possible < least else ""
        lowest, name = (losses, "worst") if losses else (matched, "lowest")
        return f"{finding}{late}; the {name} difference is {_format_contrast(judged, min(lowest, key=_difference))}"
    if len(wins) >= least:
        harmed = [
            contrast
            for contrast in matched
            if _difference(contrast) < 0 and float(contrast["p"]) <= float(judged["alpha"])
        ]
        if harmed:
            why = f"{_format_contrast(judged, min(harmed, key=_difference))} goes against it before correction"
        elif len(matched) < len(contrasts):
            why = "memory that is not matched rules out a confirmation"
        else:
            why = "a contrast goes against it before correction"
        return f"{finding}, but {why}"
    return f"{finding}; {_nearest_win(judged, matched)}" if not wins else finding


def _superior_single(judged: Row, rule_verdict: str) -> str:
    """Return the answer for a family of one contrast."""
    (contrast,) = judged["contrasts"]
    if rule_verdict == CONFIRMED:
        return f"{contrast['subject']} was significantly better{_format_comparator(judged)}, by {_format_contrast(judged, contrast)}"
    claim = f"{contrast['subject']} was to be significantly better{_format_comparator(judged)}"
    if rule_verdict == REFUTED or not contrast["matched"] or _difference(contrast) <= 0:
        return f"{claim}; the difference is {_format_contrast(judged, contrast)}"
    return f"{claim}; {_nearest_win(judged, [contrast])}"


def _nearest_win(judged: Row, matched: Sequence[Row]) -> str:
    """Return how near a family without a win came to one."""
    ahead = [contrast for contrast in matched if _difference(contrast) > 0]
    matched_phrase = " with matched memory" if len(matched) < len(judged["contrasts"]) else ""
    if not ahead:
        highest = f"; the highest is {_format_contrast(judged, max(matched, key=_difference))}" if matched else ""
        return f"no contrast{matched_phrase} favours it{highest}"
    is_family_method = METHODS[judged["method"]].family
    p = "p_adjusted" if is_family_method else "p"
    best = min(ahead, key=lambda contrast: (float(contrast[p]), -_difference(contrast)))
    level = formatting.format_level(judged["alpha" if is_family_method else "corrected_alpha"])
    family_size = len(judged["contrasts"])
    threshold = level if is_family_method or family_size == 1 else f"the {level} that a family of {family_size} needs"
    adjusted = "adjusted " if is_family_method else ""
    name = "the difference is" if family_size == 1 else f"the best{matched_phrase} was"
    printed = _format_p(best[p])
    if formatting.format_p(best[p]).rstrip("0") == level:  # although p is above it
        printed = f"p = {float(best[p]):.6f}"
    return f"{name} {_format_points(best)}, {adjusted}{printed}, above {threshold}{_format_location(judged, best)}"


def _format_range(judged: Row, winning: Sequence[Row]) -> str:
    if len(winning) == 1:
        return f"by {_format_contrast(judged, winning[0])}"
    ends = [formatting.format_points(end(winning, key=_difference)["difference"]) for end in (min, max)]
    return f"by {ends[0]} to {ends[1]} points"


def _branch(judged: Row, rule_verdict: str, decision: Row) -> str:
    """Return the answer of the rule `branch`. `primary` and `transfer` are all contrasts and none if the
    models are not named.
    """
    subject, branch = judged["contrasts"][0]["subject"], judged["branch"]
    names = {role: decision.get(f"{role}_model") for role in ("primary", "transfer")}
    first, second = (names[role] or f"its {role} model" for role in names)
    primary, transfer = (
        [contrast for contrast in judged["contrasts"] if contrast["model"] == name] for name in names.values()
    )
    level, letter = float(judged["alpha"]), branch["registered"]
    alpha = f"p below {formatting.format_level(judged['alpha'])}"
    won = f"{subject} was better{_format_comparator(judged)} on {first}{_format_extreme(judged, _winning_rows(primary, level), max)}"
    if letter == "C":
        finding = f"branch C, no contrast on {first} favours {subject}{_format_comparator(judged, 'over')} with {alpha}"
        if rule_verdict == REFUTED:
            return f"{finding}, and one goes against it{_format_extreme(judged, _refuting_rows(primary, level), min)}"
        highest = (
            f"; the highest is {_format_contrast(judged, max(primary, key=_difference), 'model')}" if primary else ""
        )
        top = max(judged["contrasts"], key=_difference)
        transfer_note = ""
        if top in transfer and float(top["p"]) < float(judged["alpha"]):
            transfer_note = (
                f". The largest of all, {_format_contrast(judged, top)}, is on the transfer model, where no win counts"
            )
        return f"{finding}{highest}{transfer_note}"
    if letter == "B":
        if rule_verdict == REFUTED:
            return (
                f"branch B, {won}, but worse on {second}{_format_extreme(judged, _refuting_rows(transfer, level), min)}"
            )
        return f"branch B, {won}, but on {second} its mean is not above zero, or a contrast goes against it"
    if rule_verdict == CONFIRMED:
        return f"branch A, {won}, and not harmed on {second}"
    if branch["symmetric"] != "A":
        lost = [contrast for contrast in primary if _difference(contrast) < 0 and float(contrast["p"]) < level]
        return f"branch A, {won}, but another contrast there goes against it{_format_extreme(judged, lost, min)}"
    return f"branch A, {won}, but memory that is not matched rules out a confirmation"


def _winning_rows(rows: Sequence[Row], level: float) -> Sequence[Row]:
    """Return the rows that make a branch; the largest difference of all need not be among them."""
    won = [row for row in rows if _difference(row) > 0 and float(row["p"]) < level]
    return [row for row in won if row["matched"]] or won


def _refuting_rows(rows: Sequence[Row], level: float) -> Sequence[Row]:
    """Return the rows that refute a branch, at the level of older locks if none does at the current one."""
    lost = [row for row in rows if row["matched"] and _difference(row) < 0 and float(row["p"]) < level]
    return [row for row in lost if float(row["p"]) < level / len(rows)] or lost


def _format_extreme(judged: Row, rows: Sequence[Row], end: Callable[..., Row]) -> str:
    return f", {_format_contrast(judged, end(rows, key=_difference), 'model')}" if rows else ""


def _non_inferior(judged: Row, rule_verdict: str, decision: Row) -> str:
    return _margin(judged, rule_verdict, two_sided=False)


def _equivalent(judged: Row, rule_verdict: str, decision: Row) -> str:
    return _margin(judged, rule_verdict, two_sided=True)


def _margin(judged: Row, rule_verdict: str, *, two_sided: bool) -> str:
    contrasts, points = judged["contrasts"], f"{100 * float(judged['margin']):g} points"
    alpha, subject, among = float(judged["alpha"]), contrasts[0]["subject"], _count_contrasts(contrasts)
    matched = [contrast for contrast in contrasts if contrast["matched"]]
    comparator_phrase = f"beside {contrasts[0]['against']}" if len(contrasts) == 1 else f"in all {among}"
    differ = f"differ by less than {points}, either way," if two_sided else f"lose less than {points}"
    claim = f"{subject} was to {differ} {comparator_phrase}"

    def p(contrast: Row) -> float:
        sides = ("p_worse", "p_better") if two_sided else ("p_worse",)
        return max(float(contrast[side]) for side in sides)

    def where(rows: Sequence[Row]) -> str:
        return f" in {len(rows)}" if len(contrasts) > 1 else ""

    def nearest(rows: Sequence[Row]) -> str:
        closest = max(rows, key=p)
        estimate = f"{formatting.format_points(closest['difference'])} points, {_format_p(str(p(closest)))}"
        name = "the difference is" if len(contrasts) == 1 else "the closest is"
        return f"{name} {estimate}{_format_location(judged, closest)}"

    if rule_verdict == CONFIRMED:
        excluded_loss = f"a difference of {points} or more, either way," if two_sided else f"a loss of {points} or more"
        return f"{excluded_loss} is ruled out for {subject} {comparator_phrase}; {nearest(contrasts)}"
    if rule_verdict == REFUTED:
        low, high = _beyond_margin(judged, matched)
        furthest_phrase = "the furthest " if len(contrasts) > 1 else ""
        parts = [
            f"{word} by more{where(rows)}, {furthest_phrase}{_format_limits(judged, end(rows, key=_difference))}"
            for word, rows, end in (("worse", low, min), ("better", high, max))
            if rows
        ]
        return f"{claim}; it was {' and '.join(parts)}"
    within = sum(p(contrast) <= alpha for contrast in matched)
    if within == len(contrasts):  # as printed; the rule uses more digits
        return f"{claim}; {nearest(matched)}"
    outside = [contrast for contrast in matched if p(contrast) > alpha]
    furthest = f"; {nearest(outside)}" if outside else ""
    shown_phrase = "not shown" if len(contrasts) == 1 else f"shown in {within} of {len(contrasts)}"
    return f"{claim}, and this is {shown_phrase}{furthest}"


def _smallest_lossless(judged: Row, rule_verdict: str, decision: Row) -> str:
    points = f"{100 * float(judged['margin']):g} points"
    subject_result = judged["smallest_lossless"][0]
    subject, steps = subject_result["arm"], subject_result["steps"]
    if rule_verdict == CONFIRMED:
        memory = f"{(100 * Decimal(subject_result['memory'])).to_integral_value(ROUND_CEILING)} %"
        return (
            f"down to {_format_budget(subject_result['smallest'])} a loss of {points} or more is ruled out for {subject} on "
            f"every model and task, with at most {memory} of the full cache's memory"
        )
    if rule_verdict == REFUTED:
        subject_contrasts = [contrast for contrast in judged["contrasts"] if contrast["subject"] == subject]
        full_budgets = {
            contrast["budget"] for contrast in subject_contrasts if not contrast["matched"]
        }  # with the full cache's memory
        largest = max({contrast["budget"] for contrast in subject_contrasts} - full_budgets, key=budget_amount)
        beyond, _ = _beyond_margin(judged, subject_contrasts)
        worst = min((contrast for contrast in beyond if contrast["budget"] == largest), key=_difference)
        return (
            f"already at {_format_budget(largest)} {subject} was worse than the full cache by more than {points}, "
            f"{_format_limits(judged, worst, 'budget')}"
        )
    last = steps[-1]
    if last["passed"]:
        return f"{subject} passed at no budget that saves memory"
    worst = next(
        contrast
        for contrast in judged["contrasts"]
        if (contrast["subject"], *(contrast[name] for name in ("model", "task", "budget")))
        == (subject, *(last[name] for name in ("model", "task", "budget")))
    )
    first = "its largest budget" if len(steps) == 1 else "and no larger budget that passed saves memory"
    return (
        f"at {_format_budget(last['budget'])}, {first}, a loss of {points} or more is not ruled out for {subject}: "
        f"{_format_points(worst)}, {_format_p(last['p'])}{_format_location(judged, worst, 'budget')}"
    )


def _beyond_margin(judged: Row, rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Return the rows that refute by their margin: on the lower side, and on the upper one for a two-sided
    rule.
    """
    margin, two_sided = float(judged["margin"]), judged["rule"] == "equivalent"
    low = [row for row in rows if float(row["high_margin"]) < -margin]
    return low, [row for row in rows if two_sided and float(row["low_margin"]) > margin]


RULES: Mapping[str, Callable[[Row, str, Row], str]] = MappingProxyType(
    {
        "superior": _superior,
        "branch": _branch,
        "equivalent": _equivalent,
        "non_inferior": _non_inferior,
        "smallest_lossless": _smallest_lossless,
    }
)


def _difference(contrast: Row) -> float:
    return float(contrast["difference"])


def _format_points(contrast: Row) -> str:
    return f"{formatting.format_points(contrast['difference'])} points {formatting.format_interval(contrast['low'], contrast['high'])}"


def _format_contrast(judged: Row, contrast: Row, stated_part: str = "") -> str:
    """Format a contrast. stated_part: a part of its name that the text already stated."""
    return f"{_format_points(contrast)}, {_format_p(contrast['p'])}{_format_location(judged, contrast, stated_part)}"


def _format_limits(judged: Row, contrast: Row, stated_part: str = "") -> str:
    """Format a contrast with the limits that are compared with the margin."""
    limits = formatting.format_interval(contrast["low_margin"], contrast["high_margin"])
    return f"{formatting.format_points(contrast['difference'])} points, limits {limits}{_format_location(judged, contrast, stated_part)}"


def _format_location(judged: Row, contrast: Row, stated_part: str = "") -> str:
    """Return what distinguishes this contrast from the others of the family."""
    names = [name for name in PART_PHRASES if len({row[name] for row in judged["contrasts"]}) > 1]
    phrases = [_format_part(name, contrast[name]) for name in names if name != stated_part]
    return f" ({' '.join(phrases)})" if phrases else ""


def _format_comparator(judged: Row, word: str = "than") -> str:
    """Name the comparator, if there is only one."""
    against = {contrast["against"] for contrast in judged["contrasts"]}
    return f" {word} {against.pop()}" if len(against) == 1 else ""


def _count_contrasts(contrasts: Sequence[Row]) -> str:
    return "1 contrast" if len(contrasts) == 1 else f"{len(contrasts)} contrasts"


def _format_budget(text: str) -> str:
    return f"{text} slots" if text.isdigit() else f"a budget of {text}"


def _format_part(part: str, name: str) -> str:
    if part == "budget" and name.startswith(BYTES_OF):
        return f"at the {name} slots"
    return PART_PHRASES[part].format(name)


def _format_p(decimal: str) -> str:
    text = formatting.format_p(decimal)
    return f"p {text[0]} {text[1:]}" if text.startswith("<") else f"p = {text}"
