"""The command line of every drawing: paths in, the written files out."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

__all__ = ["command"]


def command(
    name: str,
    description: str | None,
    paths: Mapping[str, str],
    draw: Callable[..., Sequence[Path | str]],
    refusals: type[ValueError] | tuple[type[ValueError], ...],
    argv: list[str] | None,
) -> int:
    """Exit status 0 after draw(*paths), 2 with one line for a refusal. paths: what each is, by name."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for path, what in paths.items():
        parser.add_argument(path, type=Path, help=what)
    try:
        drawn = draw(**vars(parser.parse_args(argv)))
    except refusals as refusal:
        print(f"{type(refusal).__name__}: {refusal}", file=sys.stderr)
        return 2
    print(*drawn, sep="\n")
    return 0
