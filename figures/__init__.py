"""Drawings and tables of judged results."""
