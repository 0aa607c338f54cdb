"""Presses of kvpress as arms: the press runs on the prefill, its result decodes in this engine.

May import: policies, protocol.formats; torch, transformers, kvpress.
"""
