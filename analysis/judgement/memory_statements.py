"""Sentences about unequal memory of two arms, and what it leaves open."""

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.rules.sentences import contrast_name, list_first
from protocol.formats.vocabulary import READS

NEGLIGIBLE = 0.001  # smaller relative differences of memory are not reported unless they decided
MAX_DISTANCE = 2.0  # memory ratio to the nearest measurement of a slope above which it is reported
MEASURE_NAMES = {  # names of the measures in a row
    "slots": "mean slots",
    "bytes": "mean bytes",
    "held bytes": "mean bytes of the slots in use",
    "peak slots": "peak slots",
    "granted": "the budgets that the cadence granted",
    "reads": "mean slots that a token read",
    "state": "the policies' own state (as a share of the cache)",
}


def unequal_memory(rows: Sequence[Mapping[str, Any]], tolerance: float) -> list[str]:
    """Return sentences about unequal memory; none if all measures agree. rows: contrasts of a judgement."""
    known = [row for row in rows if row.get("memory") is not None]
    return [
        *_beyond_tolerance(known, tolerance),
        *_decided_by_charge(known),
        *_unpriced(known),
        *_far_measurements(known),
        *_differing_measures(known),
    ]


def unsaved_memory(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence about measures in which the subject saves no memory. rows: contrasts against the full
    cache that save the registered memory. Peaks equal the prompt in every arm and are reported elsewhere.
    """
    known = [row for row in rows if row.get("memory") is not None and row["matched"]]
    clauses = []
    for measure in ("slots", "bytes"):
        more = [row for row in known if float(row["memory"]["ratios"].get(measure, 0)) >= 1 - NEGLIGIBLE]
        if more:
            most = max(more, key=lambda row: float(row["memory"]["ratios"][measure]))
            ratio = 100 * float(most["memory"]["ratios"][measure])
            clauses.append(f"{MEASURE_NAMES[measure]} are {ratio:.0f} % of the full cache's ({contrast_name(most)})")
    total = [row for row in known if _ratio_with_state(row) >= 1 - NEGLIGIBLE]
    if total and not clauses:
        most = max(total, key=_ratio_with_state)
        clauses.append(
            f"bytes with the policies' own state are {100 * _ratio_with_state(most):.0f} % of the full "
            f"cache's ({contrast_name(most)})"
        )
    if not clauses:
        return []
    registered_measure = known[0]["memory"]["by"]
    return [
        (
            f"Less memory by every measure: {registered_measure} are saved, as registered, but not others: "
            f"{'; '.join(clauses)}."
        )
    ]


def _ratio_with_state(row: Mapping[str, Any]) -> float:
    """Return bytes plus state of the subject relative to the bytes of the full cache."""
    ratios = row["memory"]["ratios"]
    return float(ratios.get("bytes", 0)) + float(ratios.get("state", 1)) - 1


def _beyond_tolerance(rows: Sequence[Mapping[str, Any]], tolerance: float) -> list[str]:
    """Return a sentence about contrasts that are judged as iso-cache."""
    more = [row for row in rows if row["matched"] and float(row["cache_ratio"]) > 1 + tolerance + 1e-6]
    if not more:
        return []
    most = max(more, key=lambda row: float(row["cache_ratio"]))
    return [
        (
            f"The same memory in {len(more)} of {len(rows)} contrasts, judged as iso-cache: the subject "
            f"{_verb(most)} up to {_format_percent(float(most['cache_ratio']) - 1)} ({contrast_name(most)}). A "
            "win in these exceeds all that the comparator gains up to its next larger measurement."
        )
    ]


def unbounded_within(rows: Sequence[Mapping[str, Any]], tolerance: float) -> list[Mapping[str, Any]]:
    """Return the contrasts that are not matched although their caches are within the tolerance: nothing that
    was measured bounds what the excess may have bought.
    """
    return [row for row in rows if _is_unbounded(row) and float(row["cache_ratio"]) <= 1 + tolerance]


def _is_unbounded(row: Mapping[str, Any]) -> bool:
    return (row.get("memory") or {}).get("swing", "") is None


def _decided_by_charge(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    bought = [row for row in rows if row["memory"]["decided"]]
    if not bought:
        return []
    named = list_first(f"{contrast_name(row)} ({_format_charge(row['memory'])})" for row in bought)
    return [
        f"A difference at equal memory in {len(bought)} of {len(rows)} contrasts, where unequal memory may "
        f"have bought it: {named}."
    ]


def _format_charge(memory: Mapping[str, Any]) -> str:
    excess, charge = f"{_format_percent(float(memory['excess']))} {memory['by']}", memory["charge"]
    if neighbour := memory.get("neighbour"):
        return f"{excess}, not so against the comparator at {neighbour}"
    return f"{excess}, {'any difference' if charge is None else f'up to {100 * abs(float(charge)):.1f} pp'}"


def _unpriced(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence about contrasts in which nothing measured says what an excess may have bought."""
    unbounded = [row for row in rows if _is_unbounded(row)]
    if unbounded:
        return [
            (
                f"What memory buys in {len(unbounded)} of {len(rows)} contrasts: the subject {_verb(unbounded[0])} "
                "more, and its comparator was never measured with as much memory, so that they are not matched: "
                f"{list_first(map(contrast_name, unbounded))}."
            )
        ]
    blind = [row for row in rows if row["matched"] and row["memory"].get("slope", "") is None and _excess(row) != 0]
    if not blind:
        return []
    return [
        (
            f"What memory buys in {len(blind)} of {len(rows)} contrasts: their comparator was measured at only "
            f"one budget and without a full cache, so that the arm that {_verb(blind[0])} more cannot win: "
            f"{list_first(map(contrast_name, blind))}."
        )
    ]


def _far_measurements(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    far = [
        row
        for row in rows
        if _excess(row) > NEGLIGIBLE
        and (nearest := row["memory"].get("nearest")) is not None
        and not 1 / MAX_DISTANCE <= float(nearest) <= MAX_DISTANCE
    ]
    if not far:
        return []
    return [
        (
            f"What memory buys near the budget in {len(far)} of {len(rows)} contrasts: the comparator has no "
            f"other measurement between half and twice its memory: {list_first(map(contrast_name, far))}."
        )
    ]


def _differing_measures(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence with the largest difference of each measure and its contrast."""
    clauses = []
    for measure, measure_name in MEASURE_NAMES.items():
        differing = [row for row in rows if measure in row["memory"]["ratios"]]
        if not differing:
            continue
        most = max(differing, key=lambda row: abs(float(row["memory"]["ratios"][measure]) - 1))
        ratio = float(most["memory"]["ratios"][measure])
        if abs(ratio - 1) > NEGLIGIBLE:
            has_room = measure == "bytes" and "swing" in most["memory"]
            room = " with the room reserved for tokens to come" if has_room else ""
            clauses.append(f"{measure_name}{room} by {_format_percent(ratio - 1)} ({contrast_name(most)})")
    apart = max(rows, key=lambda row: float(row["memory"]["apart"]), default=None)
    if apart is not None and float(apart["memory"]["apart"]) > NEGLIGIBLE:
        share = f"{100 * float(apart['memory']['apart']):.2g} %"
        clauses.append(f"single problems by {share} of {apart['memory']['by']} on average ({contrast_name(apart)})")
    if not clauses:
        return []
    return [f"Equal memory in every sense; at most, the subject differed in {'; '.join(clauses)}."]


def _verb(row: Mapping[str, Any]) -> str:
    """Return what an arm did with the memory that is compared."""
    return "read" if row["memory"]["by"] == READS else "held"


def _excess(row: Mapping[str, Any]) -> float:
    return abs(float(row["memory"]["excess"]))


def _format_percent(share: float) -> str:
    return f"{100 * share:+.2f} %"
