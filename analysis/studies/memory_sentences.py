"""Sentences about unequal memory of two arms, and what it leaves open."""

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.rules.sentences import contrast, listed

__all__ = ["unequal", "unsaved"]

TOLD = 0.001  # smaller relative differences of memory are not reported unless they decided
FAR = 2.0  # memory ratio to the nearest measurement of a slope above which it is reported
WORDS = {  # names of the measures in a row
    "slots": "mean slots",
    "bytes": "mean bytes",
    "held bytes": "mean bytes of the slots in use",
    "peak slots": "peak slots",
    "granted": "the budgets that the cadence granted",
    "state": "the policies' own state (as a share of the cache)",
}


def unequal(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return sentences about unequal memory; none if all measures agree. rows: contrasts of a judgement."""
    known = [row for row in rows if row.get("memory") is not None]
    return [*_decided(known), *_unpriced(known), *_far(known), *_senses(known)]


def unsaved(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence about measures in which the subject saves no memory. rows: contrasts against the full
    cache that save the registered memory. Peaks equal the prompt in every arm and are reported elsewhere.
    """
    known = [row for row in rows if row.get("memory") is not None and row["matched"]]
    found = []
    for sense in ("slots", "bytes"):
        more = [row for row in known if float(row["memory"]["ratios"].get(sense, 0)) >= 1 - TOLD]
        if more:
            most = max(more, key=lambda row: float(row["memory"]["ratios"][sense]))
            ratio = 100 * float(most["memory"]["ratios"][sense])
            found.append(f"{WORDS[sense]}: {ratio:.0f} % of the full cache's ({contrast(most)})")
    total = [row for row in known if _with_state(row) >= 1 - TOLD]
    if total and not found:
        most = max(total, key=_with_state)
        found.append(
            f"bytes with the policies' own state: {100 * _with_state(most):.0f} % of the full cache's "
            f"({contrast(most)})"
        )
    if not found:
        return []
    by = known[0]["memory"]["by"]
    return [
        f"Less memory in every sense: {by} are saved, as registered, and others are not; {'; '.join(found)}."
    ]


def _with_state(row: Mapping[str, Any]) -> float:
    """Return bytes plus state of the subject relative to the bytes of the full cache."""
    ratios = row["memory"]["ratios"]
    return float(ratios.get("bytes", 0)) + float(ratios.get("state", 1)) - 1


def _decided(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    bought = [row for row in rows if row["memory"]["decided"]]
    if not bought:
        return []
    named = listed(f"{contrast(row)} ({_price(row['memory'])})" for row in bought)
    return [
        f"A difference at equal memory in {len(bought)} of {len(rows)} contrasts, where unequal memory may "
        f"have bought it: {named}."
    ]


def _price(memory: Mapping[str, Any]) -> str:
    charge = memory["charge"]
    points = "any difference" if charge is None else f"up to {100 * abs(float(charge)):.1f} pp"
    return f"{_percent(float(memory['excess']))} {memory['by']}, {points}"


def _unpriced(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence about contrasts that are charged without a measured slope."""
    blind = [row for row in rows if row["matched"] and row["memory"]["slope"] is None and _excess(row) != 0]
    if not blind:
        return []
    return [
        f"What memory buys in {len(blind)} of {len(rows)} contrasts: their comparator was measured at one "
        "budget alone, without a full cache, so that the arm that held more cannot win: "
        f"{listed(map(contrast, blind))}."
    ]


def _far(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    far = [
        row
        for row in rows
        if _excess(row) > TOLD
        and (near := row["memory"]["nearest"]) is not None
        and not 1 / FAR <= float(near) <= FAR
    ]
    if not far:
        return []
    return [
        f"What memory buys next to the budget in {len(far)} of {len(rows)} contrasts, whose comparator was "
        f"measured nowhere within half and twice its memory: {listed(map(contrast, far))}."
    ]


def _senses(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence with the largest difference of each measure and its contrast."""
    found = []
    for sense, words in WORDS.items():
        differing = [row for row in rows if sense in row["memory"]["ratios"]]
        if not differing:
            continue
        most = max(differing, key=lambda row: abs(float(row["memory"]["ratios"][sense]) - 1))
        ratio = float(most["memory"]["ratios"][sense])
        if abs(ratio - 1) > TOLD:
            found.append(f"{words} by {_percent(ratio - 1)} ({contrast(most)})")
    apart = max(rows, key=lambda row: float(row["memory"]["apart"]), default=None)
    if apart is not None and float(apart["memory"]["apart"]) > TOLD:
        share = f"{100 * float(apart['memory']['apart']):.2g} %"
        found.append(f"single problems by {share} of {apart['memory']['by']} on average ({contrast(apart)})")
    if not found:
        return []
    return [f"Equal memory in every sense; at most, the subject differed in {'; '.join(found)}."]


def _excess(row: Mapping[str, Any]) -> float:
    return abs(float(row["memory"]["excess"]))


def _percent(share: float) -> str:
    return f"{100 * share:+.2f} %"
