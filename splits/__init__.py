"""Splits of problems into development and held-out ones, computed from their ids and frozen.

May import: protocol.formats.
"""

from splits.buckets import BUCKETS, CONFIRM, DEV, assign_bucket, subsample
from splits.manifest import Manifest, SplitError, load, make_manifest, parse_manifest

__all__ = [
    "BUCKETS",
    "CONFIRM",
    "DEV",
    "Manifest",
    "SplitError",
    "assign_bucket",
    "load",
    "make_manifest",
    "parse_manifest",
    "subsample",
]
