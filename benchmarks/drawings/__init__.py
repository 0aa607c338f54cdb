"""Drawings of measurements that belong to no study.

May import: protocol.formats, figures; matplotlib.
"""
