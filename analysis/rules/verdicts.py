"""The three words that a rule says of a study, and it says no other."""

__all__ = ["CONFIRMED", "INCONCLUSIVE", "REFUTED"]

CONFIRMED, REFUTED, INCONCLUSIVE = "CONFIRMED", "REFUTED", "INCONCLUSIVE"
