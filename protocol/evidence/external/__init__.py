"""External evidence, which the folder of a registration cannot show by itself: git history and anchors.

May import: protocol.formats, protocol.lock, protocol.evidence.
"""
