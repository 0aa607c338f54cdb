"""Two small language models that this project trained, and how: their folders lie beside this file.

May import: nothing.
"""
