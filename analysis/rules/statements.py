"""What a judgement proves and what it does not: plain sentences, computed from the judgement and the lock."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from analysis.rules import decisions
from analysis.studies.study_files import NOT_RUN

__all__ = ["does_not_prove", "proves"]

# Late randomness, by its name in a protocol.
SOURCES: Mapping[str, str] = MappingProxyType(
    {
        "nonce": "an auditor's nonce",
        "beacon": "a public beacon",
        "anchor": "the Bitcoin block that anchors the lock",
    }
)


def proves(judged: Mapping[str, Any]) -> list[str]:
    """Nothing unless the rule confirmed or refuted."""
    if judged["verdict"] not in (decisions.CONFIRMED, decisions.REFUTED):
        return []
    if "margin" in judged:
        return _within(judged)
    contrasts, subject = judged["contrasts"], judged["contrasts"][0]["subject"]
    how = f"{judged['method']}, level {_short(judged['alpha'])}"
    how += ", simultaneous" if judged["method"] == "max-t" else ", Bonferroni"
    facts = []
    for word, key in (("more", "better"), ("less", "worse")):
        found = [_place(one) for one in contrasts if one[key]]
        if found:
            facts.append(
                f"{subject} was significantly {word} accurate in {len(found)} of {len(contrasts)} contrasts "
                f"({how}): {_list(found)}."
            )
    if judged["branch"]:
        letter, guarded = judged["branch"]["registered"], judged["branch"]["symmetric"]
        facts.append(f"The registered rule gives branch {letter}, its symmetric form branch {guarded}.")
    elif judged["verdict"] == decisions.REFUTED:
        possible = sum(float(one["high_simultaneous"]) >= 0 or not one["matched"] for one in contrasts)
        if possible < judged["at_least"]:
            facts.append(
                f"At most {possible} of {len(contrasts)} contrasts can favour {subject}; "
                f"{judged['at_least']} were registered."
            )
    return facts


def _within(judged: Mapping[str, Any]) -> list[str]:
    """Of a rule with a margin."""
    contrasts, subject = judged["contrasts"], judged["contrasts"][0]["subject"]
    how = f"{judged['method']}, level {_short(judged['alpha'])}"
    points = f"{_short(judged['margin'])} accuracy points"
    if judged["verdict"] == decisions.CONFIRMED:
        verb = "differed" if judged["rule"] == "equivalent" else "was worse"
        return [f"{subject} {verb} by less than {points} in each of {len(contrasts)} contrasts ({how})."]
    margin = float(judged["margin"])
    low = [_place(one) for one in contrasts if one["matched"] and float(one["high_margin"]) < -margin]
    high = [_place(one) for one in contrasts if one["matched"] and float(one["low_margin"]) > margin]
    told = {"worse": low, "better": high if judged["rule"] == "equivalent" else []}
    return [
        f"{subject} was {word} by more than {points} in {len(found)} of {len(contrasts)} contrasts "
        f"({how}, Bonferroni): {_list(found)}."
        for word, found in told.items()
        if found
    ]


def does_not_prove(judged: Mapping[str, Any], lock: Mapping[str, Any]) -> list[str]:
    """The limits of this study; those that weigh most come first."""
    return [*_shortfalls(judged, lock), *_choices(judged, lock), *_scope(lock)]


def _shortfalls(judged: Mapping[str, Any], lock: Mapping[str, Any]) -> list[str]:
    contrasts, missing = judged["contrasts"], judged["missing"]
    decisive = _decisive(missing)
    sentences = _deviation(judged, lock)
    if decisive:
        what = "have no grade" if missing["rule"] == "inconclusive" else "were never run"
        sentences.append(
            f"The registered question: {decisive} of {missing['registered']} lanes {what}, "
            "and the registered rule then answers INCONCLUSIVE."
        )
    elif judged["verdict"] == decisions.INCONCLUSIVE:
        sentences.append("Equality: INCONCLUSIVE says that this study could not tell.")
    if "margin" in judged and judged["verdict"] == decisions.CONFIRMED:
        sentences.append(
            f"Equality: differences smaller than {_short(judged['margin'])} accuracy points were not asked "
            "about, and in the other direction none was."
            if judged["rule"] == "non_inferior"
            else f"Equality: differences smaller than {_short(judged['margin'])} accuracy points were not "
            "asked about."
        )
    if wrong := missing["lanes"] - decisive:
        sentences.append(
            f"What {wrong} of {missing['registered']} lanes would have answered: they ended without a grade "
            "and count as not correct, as registered; caches are compared on the problems whose every lane "
            "was measured."
        )
    few = [_place(one) for one in contrasts if one["difference"] is None]
    if few:
        sentences.append(
            f"Anything in {len(few)} of {len(contrasts)} contrasts, where fewer than two problems could be "
            f"compared: {_list(few)}."
        )
    unmatched = [_place(one) for one in contrasts if not one["matched"] and one["difference"] is not None]
    if unmatched:
        tolerance = _short(lock["protocol"]["content"]["decision"]["cache_tolerance"])
        sentences.append(
            f"Anything at equal memory in {len(unmatched)} of {len(contrasts)} contrasts, whose caches "
            f"were not matched within {tolerance}: {_list(unmatched)}."
        )
    if judged["label"] == "screening-grade":
        fewest = min(one["n"] for one in contrasts)
        sentences.append(f"A confirmation: n = {fewest}; effects below 200 problems often shrink or flip.")
    return sentences


def _deviation(judged: Mapping[str, Any], lock: Mapping[str, Any]) -> list[str]:
    if "rule_says" not in judged:
        return []
    amends = lock["amends"]
    return [
        f"The registered question: this lock amends {amends['name']} ({amends['lock'][:12]}) after its "
        f"claim, when held-out answers could be known. The rule alone says {judged['rule_says']}."
    ]


def _decisive(missing: Mapping[str, Any]) -> int:
    """How many of the lanes without a grade leave the question open."""
    if missing["rule"] == "inconclusive":
        return int(missing["lanes"])
    return sum(one["lanes"] for one in missing["cells"] if one["ended"] == NOT_RUN)


def _choices(judged: Mapping[str, Any], lock: Mapping[str, Any]) -> list[str]:
    content = lock["protocol"]["content"]
    sentences = []
    out = [one for one in judged.get("excluded", []) if one["problems"]]
    if out:
        counts = _list(
            f"{one['problems']} of {one['of']} problems of {one['task']} on {one['model']}" for one in out
        )
        longest = content["exclude"]["prompt_tokens_above"]
        sentences.append(f"Prompts above {longest} tokens: the registered exclusion left out {counts}.")
    if "selected" in judged:
        others = [name for name in content["sweep"]["candidates"] if name != judged["selected"]["arm"]]
        sentences.append(
            f"Anything about {_list(others)}: {judged['selected']['arm']} alone was confirmed, chosen on "
            "the development problems."
        )
    if "beside" in judged:
        named = _list(content["decision"]["beside"])
        sentences.append(f"Anything registered about {named}: these contrasts are outside the rule.")
    return sentences


def _scope(lock: Mapping[str, Any]) -> list[str]:
    content = lock["protocol"]["content"]
    generation = content["generation"]
    greedy = float(generation["temperature"]) == 0
    sampling = "greedy" if greedy else f"temperature {generation['temperature']}"
    generated = "" if lock["data"] else ", and its problems are generated text"
    tasks = [task["name"] for task in content["tasks"]]
    return [
        f"Other models or sizes: only {_list(content['models'])} ran.",
        f"Other tasks: only {_list(tasks)} ran{generated}.",
        f"Other budgets or decoding: only {_list(content['budgets'])}, {sampling}, {generation['dtype']}.",
        "Lower peak memory: every arm holds its whole prompt until its event; slots count from then on.",
        "The policies as their authors published them: these are this project's implementations.",
        _seeds(content),
        "Order in time: this judgement rests on no outside witness; anchors, where there are any, stand "
        "beside it (python -m protocol.audit).",
    ]


def _seeds(content: Mapping[str, Any]) -> str:
    if "randomness" in content:
        source = SOURCES[content["randomness"]["source"]]
        return (
            "Freedom from the author's choices: seeds and generated problems derive from the lock and "
            f"{source}, as the claim records; all else is author-chosen."
        )
    seeds = _list(str(seed) for seed in content["seeds"])
    return f"Freedom from the author's choices: the seeds ({seeds}) are author-chosen."


def _place(one: Mapping[str, Any]) -> str:
    return f"{one['model']} {one['task']} at {one['budget']} against {one['against']}"


def _list(words: Iterable[str]) -> str:
    """The first four and how many more there are."""
    named = list(words)
    return "; ".join(named[:4]) + (f"; and {len(named) - 4} more" if len(named) > 4 else "")


def _short(decimal: str) -> str:
    return decimal.rstrip("0").rstrip(".") if "." in decimal else decimal
