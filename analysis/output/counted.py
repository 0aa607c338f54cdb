"""What became of all that was registered, as one line counts it."""

from collections.abc import Mapping

__all__ = ["RARE", "SAID", "total"]

SAID, RARE = ("CONFIRMED", "REFUTED", "INCONCLUSIVE"), ("SCREENED", "DEVIATED")
# What is registered and has no verdict, as it is counted.
OPEN = {
    "locked": "locked, not run",
    "unfinished": "claimed, unfinished",
    "amended": "amended",
    "withdrawn": "withdrawn",
    "INVALID": "INVALID",
    "cannot tell": "cannot tell",
}


def total(counts: Mapping[str, int]) -> str:
    """Of the three words of a rule also those that nobody got; of the others those that somebody has.

    counts: of "registered" and "judged", of every word and state, and in "one_model" those CONFIRMED ones for
    which one model ran.
    """
    said = [f"{counts[word]} {word}" for word in SAID] + _some(counts, {word: word for word in RARE})
    if counts["one_model"]:
        said[0] += f" ({counts['one_model']} for one model alone)"
    verdicts = f": {', '.join(said)}" if counts["judged"] else ""
    whole = f"{counts['registered']} registered, {counts['judged']} judged{verdicts}"
    return "; ".join([whole, *_some(counts, OPEN)])


def _some(counts: Mapping[str, int], words: Mapping[str, str]) -> list[str]:
    """Those of which there are any, in words."""
    return [f"{counts[name]} {word}" for name, word in words.items() if counts[name]]
