"""Formatting of judged numbers, equal in every table and drawing: differences in pp, p with four digits."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from analysis.rules import RULES, full_cache_gate, judged_numbers, verdict_line
from analysis.stats.methods import METHODS
from protocol.formats.vocabulary import FULL

WITNESS = "UNANCHORED"  # in every verdict line until proofs of external witnesses are verified
# prefix of a verdict's label -> sample sizes: some contrast has fewer than 200 problems, or none has
GRADES: Mapping[str, str] = MappingProxyType(
    {"screening-grade": "n < 200", "confirmatory-grade": "n ≥ 200", "uninformative": "n ≥ 200"}
)


def format_size(contrast: Mapping[str, Any]) -> str:
    """Return the number of problems and, if they are clustered, of clusters: "120/24"."""
    return "/".join(str(contrast[name]) for name in ("n", "clusters") if name in contrast)


def compares_agreement(contrasts: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether the outcome is agreement with the full cache, so that all other arms were fed its text."""
    return any(contrast.get("scored") == "agreement" for contrast in contrasts)


def was_fed(judged: Mapping[str, Any], arm: Mapping[str, Any]) -> bool:
    """Return whether an arm of a cell was fed the full cache's text, and so gave no answers of its own."""
    return compares_agreement(judged["contrasts"]) and arm["budget"] != FULL


def name_score(contrasts: Iterable[Mapping[str, Any]]) -> str:
    """Return what contrasts with scores compare: the mean score, or agreement where that is the outcome."""
    return "the mean agreement with the full cache on its text" if compares_agreement(contrasts) else "the mean score"


def score_notes(contrasts: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return notes on contrasts with scores or clusters; none for right and wrong answers alone."""
    every, notes = list(contrasts), []
    if any("scored" in contrast for contrast in every):
        notes.append(
            f"Accuracy is {name_score(every)}, from 0 to 1; gains and losses count the answers with a "
            "higher or lower score."
        )
    if any("clusters" in contrast for contrast in every):
        notes.append("n: problems/clusters. Intervals and p resample whole clusters.")
    if uneven := [contrast for contrast in every if "effective_clusters" in contrast]:
        least = min(contrast["effective_clusters"] for contrast in uneven)
        notes.append(f"Clusters differ in size; the fewest count as {least} clusters of equal size.")
    return notes


def memory_basis(contrasts: Iterable[Mapping[str, Any]]) -> str:
    """Return the registered basis of memory matching: "slots", "bytes", "total" or "reads"; slots if none was
    registered.
    """
    bases = ((contrast.get("memory") or {}).get("by") for contrast in contrasts)
    return str(next(filter(None, bases), "slots"))


def cache_ratio(contrast: Mapping[str, Any]) -> str:
    """Return the ratio of the memory of subject and comparator; a dash where none was measured."""
    ratio = contrast["cache_ratio"]
    return "-" if ratio is None else f"{float(ratio):.3f}"


def memory_charge(contrast: Mapping[str, Any]) -> str:
    """Return the points charged for a memory difference of the subject, gained (+) or lost (-); empty for
    none. "all" if the value of memory is unknown. Where a neighbour was tested, its budget: nothing is charged.
    """
    memory = contrast.get("memory")
    if memory is None or not contrast["matched"] or float(memory["excess"]) == 0:
        return ""
    if "neighbour" in memory:
        return f"none: at {memory['neighbour']} too"
    return "all" if memory["charge"] is None else judged_numbers.format_points(memory["charge"])


def format_correction(method: str, family: Mapping[str, Any]) -> str:
    """Return how a judged family is corrected, and the level that its p values are compared with."""
    if METHODS[method].family:
        return f"{method} {judged_numbers.format_level(family['alpha'])}"
    return f"Bonferroni {judged_numbers.format_level(family['corrected_alpha'])}"


def rule_details(judged: Mapping[str, Any]) -> str:
    """Return details of the rule beyond its verdict, after a space; empty for most rules."""
    rule = RULES.get(judged.get("rule", ""))  # None for an index over unverified files
    details = () if rule is None else rule.text.letters(judged)
    return f" ({', '.join(details)})" if details else ""


def interval_heading(contrasts: Iterable[Mapping[str, Any]]) -> str:
    """Return the heading of `judged_numbers.format_decisive_interval`."""
    return "simultaneous" if any(map(judged_numbers.has_decisive_numbers, contrasts)) else "95 % interval"


def idle_text(contrast: Mapping[str, Any]) -> str:
    """Return why an estimated contrast is no evidence, or is counted elsewhere; empty for one that counts."""
    if not contrast["matched"]:
        return "unmatched" if contrast.get("saves") is None else "saves no memory"
    if contrast.get("floor", {}).get("uninformative"):
        return "uninformative"
    return "counted above" if "repeats" in contrast else ""


def unmatched_reason(contrasts: Iterable[Mapping[str, Any]]) -> str:
    """Return why contrasts that are not matched count for nothing."""
    return "no memory was saved" if any("saves" in contrast for contrast in contrasts) else "memory was not matched"


def sample_text(judged: Mapping[str, Any]) -> str:
    """Return the size of the sample and its units; of a judgement without them what its label states of its size."""
    label = str(judged.get("label", ""))
    grade = next((words for begins, words in GRADES.items() if label.startswith(begins)), label)
    return str(judged.get("sample", grade))


def verdict_text(judged: Mapping[str, Any]) -> str:
    """Return the verdict with its caveats: those of a screening, the single model that it covers, and a full
    cache that failed its gate. An old verdict without gates mentions none.
    """
    return verdict_line.format_line(
        judged, full_cache_gate.describe_failure(judged).partition(":")[0], rule_details(judged)
    )


def outcome_text(judged: Mapping[str, Any]) -> str:
    """Return the verdict, the size of its contrasts and its witness. judged: as from `page.read_judged`."""
    return f"{verdict_text(judged)}, {sample_text(judged)}, {judged['witness']}"


def rule_line(judged: Mapping[str, Any]) -> str:
    """Return rule, method and levels of a judgement."""
    method, alpha = judged["method"], f"alpha {judged_numbers.format_level(judged['alpha'])}"
    if not METHODS[method].family:
        alpha += f" ({format_correction(method, judged)})"
    idle = ", which decides nothing here" if judged["verdict"] != verdict_line.rule_verdict(judged) else ""
    return f"rule {judged['rule']}{idle}: {RULES[judged['rule']].text.line(judged)}; {method}, {alpha}"
