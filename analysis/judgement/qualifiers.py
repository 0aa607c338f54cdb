"""The qualifiers of a verdict: words that the verdict line carries beside the verdict, each with its reason."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from analysis.judgement import previously_opened
from analysis.judgement.judging_rules import read_judging
from analysis.rules import sentences, verdict_line
from analysis.rules.verdict_line import REUSED, UNWITNESSED
from analysis.rules.verdicts import CONFIRMED, INCONCLUSIVE
from protocol.formats import runners
from protocol.formats.citations import CITES

REPRODUCTION, UNINFORMATIVE = "REPRODUCTION", "UNINFORMATIVE"
AS_PUBLISHED_WORD = "AS PUBLISHED"
OWN_POLICY = "OWN POLICY"
OUTSIDE = "OUTPUTS OF OTHERS"
CITED = "CITED"
AGREEMENT = "AGREEMENT"


class Qualifier(NamedTuple):
    """A word in capitals, e.g. UNINFORMATIVE, and a clause that says why it holds."""

    word: str
    text: str


def list_qualifiers(judged: Mapping[str, Any], lock: Mapping[str, Any]) -> list[Qualifier]:
    """Return the qualifiers of a judgement, the gravest first.

    judged: the judgement with all but its qualifiers and statements. lock: the content of the lock.
    """
    candidates = [
        Qualifier(REUSED, previously_opened.describe_reuse(lock)),
        Qualifier(REPRODUCTION, previously_opened.describe_reproduction(lock)),
        Qualifier(UNINFORMATIVE, _describe_uninformative(judged)),
        *_list_published(judged, lock),
        Qualifier(AGREEMENT, _describe_outcome(lock)),
        Qualifier(UNWITNESSED, _describe_unwitnessed(judged, lock)),
        Qualifier(OWN_POLICY, _describe_own_policies(lock) if read_judging(lock) >= 3 else ""),
        Qualifier(OUTSIDE, _describe_outside(lock)),
        Qualifier(CITED, _describe_cited(lock)),
    ]
    return [qualifier for qualifier in candidates if qualifier.text]


def _describe_outcome(lock: Mapping[str, Any]) -> str:
    """Say what is compared in the place of right answers; empty without an outcome of its own."""
    if "outcome" not in lock["protocol"]["content"]:
        return ""
    return (
        "accuracy is agreement: the share of positions of the full cache's text at which an arm that is fed it would "
        "have said the same token; no arm but the full cache answered"
    )


def _describe_own_policies(lock: Mapping[str, Any]) -> str:
    from analysis.judgement.own_policies import describe_own_policies

    return describe_own_policies(lock)


def _describe_outside(lock: Mapping[str, Any]) -> str:
    if runners.TABLE not in lock["protocol"]["content"]:
        return ""
    from analysis.judgement.outside_runs import describe_outside

    return describe_outside(lock)


def _describe_uninformative(judged: Mapping[str, Any]) -> str:
    """Say which contrasts below the floor may have kept the rule from deciding; empty if it decided."""
    if verdict_line.rule_verdict(judged) != INCONCLUSIVE:
        return ""
    return sentences.describe_uninformative(judged["contrasts"])


def _describe_cited(lock: Mapping[str, Any]) -> str:
    """Say which arms were not decoded, and from which study their records are."""
    studies: dict[str, list[str]] = {}
    for arm, entry in lock.get(CITES, {}).items():
        other = f", decoded with {entry['other_code']} other files or libraries" if entry["other_code"] else ""
        studies.setdefault(f"{entry['name']} (lock {entry['lock'][:12]}){other}", []).append(arm)
    texts = [f"the lanes of {', '.join(arms)} are records of {study}" for study, arms in studies.items()]
    if texts and previously_opened.describe_reproduction(lock):
        texts.append("this reproduction decoded only the other arms")
    return "; ".join(texts)


def _describe_unwitnessed(judged: Mapping[str, Any], lock: Mapping[str, Any]) -> str:
    """Say that no witness stands behind CONFIRMED; empty for other words, and by the rules of judging before 3.

    Lock and records cannot show a witness: commands that verify one print the judgement without this qualifier
    (`verdict_line.witnessed`).
    """
    if judged["verdict"] != CONFIRMED or read_judging(lock) < 3:
        return ""
    return "no witness was verified here: the lock may be younger than the results"


def _list_published(judged: Mapping[str, Any], lock: Mapping[str, Any]) -> list[Qualifier]:
    """Return the qualifier of a verdict by a published method: how often its rule errs, and the word of the sound
    method on the same records. A study on known problems has neither word.
    """
    if (sound := judged.get("sound")) is None:
        return []
    text, word = f"reproduction of a published rule{_describe_error(lock)}", AS_PUBLISHED_WORD
    if judged["verdict"] != REUSED:
        needs_witness = sound["verdict"] == CONFIRMED and read_judging(lock) >= 3
        sound_word = sound["verdict"] + verdict_line.IN_BRACKETS * needs_witness
        word += f"; A SOUND METHOD SAYS {sound_word}"
        text += f"; by {sound['method']}, which keeps its error level, the rule says {sound_word}"
    return [Qualifier(word, text)]


def _describe_error(lock: Mapping[str, Any]) -> str:
    """Describe how often the published rule errs, as the lock simulated it, with what its alpha promises."""
    if not (checks := lock.get("checks")):
        return ""
    confirmed, refuted = (float(checks["decision_errors"][outcome]["share"]) for outcome in ("confirmed", "refuted"))
    promised = float(lock["protocol"]["content"]["decision"]["alpha"]) / 2
    ratio = max(float(size["type_one_over_nominal"]) for size in checks["problems"].values())
    return (
        f": where nothing differs, it errs in at most {confirmed:.1%} (CONFIRMED) and {refuted:.1%} "
        f"(REFUTED) of simulated studies, while {promised:.1%} each are promised, and a single contrast "
        f"errs {ratio:.1f} times as often as its level"
    )
