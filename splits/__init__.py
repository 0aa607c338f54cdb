"""Which problems are for development and which are held out: a frozen, recomputable fact about their ids.

May import: nothing.
"""

from splits.buckets import BUCKETS, CONFIRM, DEV, bucket, first
from splits.manifest import Manifest, SplitError, load, made, read

__all__ = ["BUCKETS", "CONFIRM", "DEV", "Manifest", "SplitError", "bucket", "first", "load", "made", "read"]
