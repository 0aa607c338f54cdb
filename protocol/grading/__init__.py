"""Grading: from generated text to a grade with its reason."""
