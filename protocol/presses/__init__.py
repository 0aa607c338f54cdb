"""Presses of kvpress as arms: its own code runs on the prefill, what it leaves decodes in our engine.

May import: policies, protocol.evidence; torch, transformers, kvpress.
"""
