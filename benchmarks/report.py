"""What a script prints: where and how it was measured, and one table."""

import os
import platform
import re
import shlex
from collections.abc import Sequence
from datetime import date
from importlib.metadata import version
from math import log
from pathlib import Path
from statistics import linear_regression

import torch

from benchmarks.pairs import Ratio
from benchmarks.setting import Setting


def header(setting: Setting, script: str, argv: Sequence[str], *packages: str) -> str:
    """Two lines: machine, versions and date; the exact command."""
    versions = [f"python {platform.python_version()}"]
    versions += [f"{package} {version(package)}" for package in ("torch", "transformers", *packages)]
    where = [
        date.today().isoformat(),
        f"{processor()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        f"{setting.model}, {setting.dtype} on {accelerator(setting.device)}, {setting.threads} threads",
        ", ".join(versions),
    ]
    command = shlex.join(["python", "-m", f"benchmarks.{script}", *argv])
    return f"{'; '.join(where)}.\n`{command}`\n"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown; the first column names the contender, the others are numbers."""
    rule = ["---"] + ["---:"] * (len(columns) - 1)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (columns, rule, *rows))


def span(ratio: Ratio, digits: int = 2) -> str:
    """Median and range."""
    middle, low, high = (f"{value:.{digits}f}" for value in ratio)
    return f"{middle} [{low}, {high}]"


def percent(ratio: Ratio) -> str:
    """Median and range of shares."""
    middle, low, high = (f"{100 * value:.1f}" for value in ratio)
    return f"{middle} % [{low}, {high}]"


def at_most(value: float, target: float, form: str = "{:.2f}") -> str:
    return verdict("at most", target, value - target, form)


def at_least(value: float, target: float, form: str = "{:.2f}") -> str:
    return verdict("at least", target, target - value, form)


def verdict(side: str, target: float, missing: float, form: str) -> str:
    met = "met" if missing <= 0 else f"missed by {form.format(missing)}"
    return f"{side} {form.format(target)}: {met}"


def exponent(lengths: Sequence[int], amounts: Sequence[float]) -> float | None:
    """The slope of log(amount) over log(length); None of one length, and of what is not there at all."""
    if len(lengths) < 2 or min(amounts) <= 0:
        return None
    return linear_regression(list(map(log, lengths)), list(map(log, amounts))).slope


def processor() -> str:
    info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.+)", info.read_text()) if info.exists() else None
    return found[1] if found else platform.processor() or platform.machine()


def accelerator(device: str) -> str:
    return str(torch.cuda.get_device_name()) if device == "cuda" else device
