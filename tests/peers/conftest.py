"""These tests run where the peers are installed: `make peers`."""

import sys
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
collect_ignore_glob = [] if find_spec("lm_eval") and find_spec("inspect_ai") else ["test_*.py"]
