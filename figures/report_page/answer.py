"""The answer to the registered question, with the number that decides, limited to what the verdict supports.

"Yes" and "No" refer to the registered rule and are used for CONFIRMED and REFUTED alone: a rule that was not
met leaves the question open. Every number was part of the judgement.
"""

from analysis.rules import RULES, full_cache_gate, verdict_line
from analysis.rules.margin_rules import beyond_margin
from analysis.rules.sentences import Row, count_contrasts, describe_uninformative
from analysis.rules.verdicts import CONFIRMED, INCONCLUSIVE, REFUTED
from figures.drawing import formatting


def format_answer(judged: Row, decision: Row | None = None) -> str:
    """Return one paragraph of text.

    judged: a judgement as `analysis.judgement.judgement` or `figures.drawing.page.read_judged` gives it. decision:
    that of its lock, which names the two models of a branch; without it they are not named.
    """
    rule_verdict, single_model = verdict_line.rule_verdict(judged), verdict_line.format_single_model(judged)
    scope = f", {single_model}" if single_model else ""
    if judged["verdict"] == verdict_line.SCREENED:
        few = verdict_line.smallest_contrast(judged["contrasts"])[1]
        is_shipped = verdict_line.is_judged_as_shipped(judged)
        opening = f"Not decided: {few} is only a screening" + f". The rule alone says {rule_verdict}" * is_shipped
    elif judged["verdict"] == "DEVIATED":
        why = "did not keep to its looks" if "looks" in judged else "amends one that had been claimed"
        opening = f"Not decided: this study {why}. The rule alone says {rule_verdict}"
    elif judged["verdict"] == verdict_line.REUSED:
        opening = "Not decided: held-out problems had been opened before this was registered"
    elif judged["verdict"] in (CONFIRMED, REFUTED):
        # After a question whether something is lost, a bare "No" could be read as "nothing was".
        opening = f"{'Yes, as' if rule_verdict == CONFIRMED else 'No, not as'} registered{scope}{_format_words(judged)}"
        if "sound" in judged:
            word = "yes" if rule_verdict == CONFIRMED else "no"
            opening = f"By the published rule {word}{scope}{_format_words(judged)}"
    else:
        opening = "This study could not decide" if _void_reasons(judged) else "Not shown"
    void = _void_reasons(judged) if rule_verdict == INCONCLUSIVE else ""
    finding = void or RULES[judged["rule"]].text.answer(judged, rule_verdict, decision or {})
    return " ".join([f"{opening}: {finding}.", *_caveats(judged)])


def _format_words(judged: Row) -> str:
    """Return the qualifiers of a verdict, and that no outside witness is verified, if the caller knows."""
    if verdict_line.is_judged_as_shipped(judged):
        return ""
    words = [qualifier["word"] for qualifier in judged["qualifiers"]]
    is_said = verdict_line.UNWITNESSED in words  # more than that no proof was verified
    words += [judged["witness"]] if judged.get("witness") == formatting.WITNESS and not is_said else []
    return f" [{'; '.join(words)}]" if words else ""


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
    if uninformative := describe_uninformative(contrasts):
        reasons.append(uninformative)
    if missing.get("owed") and not verdict_line.is_judged_as_shipped(judged):
        reasons.append(f"the answer depends on the grades of {missing['lanes']} lanes that ended without one")
    elif missing.get("owed"):
        reasons.append("the rule is met only if the ungraded lanes of a comparator count as wrong")
    return "; ".join(reasons)


def _caveats(judged: Row) -> list[str]:
    """Return the caveats that keep the answer from being read as more than it is."""
    rule, contrasts, messages = RULES[judged["rule"]], judged["contrasts"], []
    if "sound" in judged and judged["verdict"] != verdict_line.REUSED:
        word, method = verdict_line.sound_word(judged), judged["sound"]["method"]
        messages.append(f"By {method}, which keeps its error level, the rule says {word}.")
    if "selected" in judged:
        subject, chosen = contrasts[0]["subject"], judged["selected"]["arm"]
        messages.append(f"{subject} is {chosen}, selected on development problems.")
    estimated = [contrast for contrast in contrasts if contrast["difference"] is not None]
    if unmatched := sum(not contrast["matched"] for contrast in estimated):
        reason = formatting.unmatched_reason(estimated)
        messages.append(f"In {unmatched} of {count_contrasts(contrasts)} {reason}{rule.text.unmatched}.")
    if memory_explained := [contrast for contrast in estimated if (contrast.get("memory") or {}).get("decided")]:
        refute = verdict_line.rule_verdict(judged) == REFUTED and "margin" in judged
        is_apart = refute and not any(beyond_margin(judged, memory_explained, rule.has_two_sided_margin))
        others = ", but in none of those that refute" if is_apart else ""
        among = f"{len(memory_explained)} of {count_contrasts(contrasts)}{others}"
        messages.append(f"Unequal memory may explain the difference in {among}.")
    uninformative = describe_uninformative(contrasts)
    if uninformative and verdict_line.rule_verdict(judged) != INCONCLUSIVE:
        messages.append(f"Left out: {uninformative}.")
    if any("scored" in contrast for contrast in contrasts):
        messages.append(f"Points are those of {formatting.name_score(contrasts)}.")
    if "resolution" in judged and verdict_line.rule_verdict(judged) == INCONCLUSIVE:
        messages.append(judged["resolution"])
    if "gate" in judged and judged["gate"] is None:
        messages.append("No gate shows that the full cache can do the task.")
    return messages
