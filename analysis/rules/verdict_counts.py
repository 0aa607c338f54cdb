"""The counts of all registrations by verdict and state, as one line."""

from collections.abc import Mapping

ALWAYS_COUNTED, COUNTED_IF_ANY = ("CONFIRMED", "REFUTED", "INCONCLUSIVE"), ("SCREENED", "DEVIATED", "RE-USED")
# The states of registrations without a verdict, with their labels.
WITHOUT_VERDICT = {
    "locked": "locked, not run",
    "unfinished": "claimed, unfinished",
    "amended": "amended",
    "withdrawn": "withdrawn",
    "INVALID": "INVALID",
    "cannot tell": "cannot tell",
}


def format_counts(counts: Mapping[str, int]) -> str:
    """Format the counts. The three verdicts of a rule appear even if zero; other words only if their count is
    not.

    counts: of "registered" and "judged", of every verdict and state, and of the CONFIRMED ones those with one model
    ("one_model") and those without a verified witness ("unwitnessed").
    """
    parts = [f"{counts[word]} {word}" for word in ALWAYS_COUNTED] + _nonzero_counts(
        counts, {word: word for word in COUNTED_IF_ANY}
    )
    if remarks := _nonzero_counts(counts, {"one_model": "for one model alone", "unwitnessed": "UNWITNESSED"}):
        parts[0] += f" ({', '.join(remarks)})"
    verdicts = f": {', '.join(parts)}" if counts["judged"] else ""
    summary = f"{counts['registered']} registered, {counts['judged']} judged{verdicts}"
    return "; ".join([summary, *_nonzero_counts(counts, WITHOUT_VERDICT)])


def _nonzero_counts(counts: Mapping[str, int], labels: Mapping[str, str]) -> list[str]:
    """Return the counts that are not zero, each with its label."""
    return [f"{counts[name]} {label}" for name, label in labels.items() if counts[name]]
