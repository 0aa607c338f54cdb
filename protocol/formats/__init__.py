"""The ground that every package stands on: document formats, field declarations, refusals and how text is printed.

It needs the standard library only and loads nothing else of the project, so every package may import it.

May import: nothing.
"""
