"""What one problem looks like, arm by arm, on a page and in a terminal.

May import: analysis.exploratory, protocol.formats.
"""
