"""Measurements of the engine, one script a question; what they said is in RESULTS.md."""
