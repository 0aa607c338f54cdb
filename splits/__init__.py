"""Splits of problems into development and held-out ones, computed from their ids and frozen.

May import: nothing.
"""

from splits.buckets import BUCKETS, CONFIRM, DEV, bucket, first
from splits.manifest import Manifest, SplitError, load, made, read

__all__ = ["BUCKETS", "CONFIRM", "DEV", "Manifest", "SplitError", "bucket", "first", "load", "made", "read"]
