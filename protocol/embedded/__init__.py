"""Four small language models that this project trained, and their training settings; their folders are next to
this file.

May import: nothing.
"""
