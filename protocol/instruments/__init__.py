"""Instruments beside the core: each measures, plans or exports something about a study.

attempt is the command of those that measure a locked study.

May import: protocol.command, protocol.evidence, protocol.formats, protocol.models, protocol.preflight,
protocol.recompute, protocol.workspace.
"""
