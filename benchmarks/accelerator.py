"""Everything that waits for an accelerator, in one command: each part writes its table, for RESULTS.md.

Parts run one after the other, each in a process of its own, since an error on CUDA spoils the process that it
happens in. A part that fails is a line in its table and stops no other. What a part has written is not
measured again, so that the command goes on where it stopped: machines are lent for minutes. No part begins
that could not end in time; those that are left are named.

    python -m benchmarks.accelerator --out out
    python -m benchmarks.accelerator --out out --part signals throughput
    python -m benchmarks.accelerator --out out --tiny      # four narrow layers on the CPU: does it run?
"""

import argparse
import contextlib
import importlib
import io
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import torch

from benchmarks import at_work, device_steps
from benchmarks.report import header
from benchmarks.setting import RANDOM, TINY, Setting

MINUTES = 9.0  # of a command; a machine that is lent allows ten
LEAST = 45.0  # seconds that a part is given, or it does not begin

Run: TypeAlias = Callable[[str, bool, float], str]


class Part(NamedTuple):
    """A script with its arguments, or what measures itself; the arguments of the tiny shapes."""

    about: str
    what: str | Callable[[Setting, bool], str]
    large: tuple[str, ...] = ()
    tiny: tuple[str, ...] = ()


ONCE = ("--repetitions", "1")
THRICE = ("--repetitions", "3")

PARTS: Mapping[str, Part] = {
    "sweep": Part(
        "the engine's sweep beside one `generate`",
        "sweep",
        ("--length", "4096", *THRICE),
        ("--length", "768", "--new-tokens", "2", *ONCE),
    ),
    "signals": Part(
        "signals of all policies beside the forward",
        "signals",
        ("--lengths", "4096", "16384", "32768", *ONCE),
        ("--lengths", "64", "128", *ONCE),
    ),
    "competitors": Part(
        "a policy's signals and first event",
        "competitors",
        (
            "--lengths",
            "4096",
            "16384",
            "32768",
            "--clock",
            "wall",
            *THRICE,
            "--policies",
            "tova",
            "snapkv",
            "h2o",
            "crystal",
        ),
        ("--lengths", "128", "--clock", "wall", *ONCE, "--policies", "tova", "h2o"),
    ),
    "crystal": Part(
        "CrystalCache beside the forward: the paper pays 29.8 % of the prefill at 4K and 63.7 % at 32K",
        "crystal",
        ("--lengths", "4096", "16384", "32768", *THRICE),
        ("--lengths", "512", "640", "--edges", "128", *ONCE),
    ),
    "memory": Part(
        "peaks of the prefill, and bytes freed",
        "memory",
        ("--lengths", "4096", "16384", "32768"),
        ("--lengths", "128", "256"),
    ),
    "freed": Part("bytes freed per head, allocated and reserved", at_work.freed),
    "throughput": Part("tokens a second at the most lanes that fit, by budget", at_work.throughput),
    "decode": Part(
        "tokens a second by lanes and budget, and events",
        "decode",
        ("--length", "4096", "--budgets", "256", "1024", *ONCE),
        ("--length", "48", "--new-tokens", "4", "--lanes", "1", "2", "--budgets", "16", *ONCE),
    ),
    "company": Part("one lane alone and in company: the same text?", at_work.company),
    "choices": Part("tokens drawn on the device, and by the CPU of the same logits", device_steps.choices),
    "texts": Part("chain arithmetic in float32 on the CPU and on the device", device_steps.texts),
    "traffic": Part("kernels, copies and waits of a step without events", device_steps.traffic),
    "steps": Part("tokens a second of a step without events", device_steps.steps),
    "ragged": Part("heads of unequal length: varlen beside padded", "ragged", (), ("--tiny", *ONCE)),
}


def main(argv: Sequence[str] | None = None, run: Run | None = None) -> int:
    """run: what runs a part, of its name, whether it is tiny and the seconds that it has; by default a
    process of its own.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.accelerator",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(f"  {name:<12} {part.about}" for name, part in PARTS.items()),
    )
    made.add_argument("--part", nargs="+", choices=tuple(PARTS), default=list(PARTS), metavar="PART")
    made.add_argument("--out", type=Path, help="the folder of the tables; without it they are printed")
    made.add_argument("--tiny", action="store_true", help="four narrow layers, on the CPU in float32")
    made.add_argument("--minutes", type=float, default=MINUTES, help=f"of the whole; default {MINUTES:g}")
    made.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = made.parse_args(argv)
    if not arguments.tiny and not torch.cuda.is_available():
        made.error("torch finds no accelerator here; --tiny tries every part on the CPU")
    if arguments.inside:
        print(measured(arguments.part[0], arguments.tiny))
        return 0
    return ran(arguments.part, arguments.out, arguments.tiny, 60 * arguments.minutes, run or apart)


def ran(parts: Sequence[str], out: Path | None, tiny: bool, seconds: float, run: Run) -> int:
    """The number of parts that failed or are left."""
    end, missing = time.monotonic() + seconds, []
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    for name in parts:
        path = None if out is None else out / f"{name}.md"
        if path is not None and path.is_file():
            print(f"{name}: measured before, in {path}", file=sys.stderr)
            continue
        left = end - time.monotonic()
        if left < LEAST:
            missing.append(name)
            print(f"{name}: left for another call", file=sys.stderr)
            continue
        try:
            table = run(name, tiny, left)
        except (Exception, SystemExit) as fault:  # of a stranger's kernel; the others are run
            missing.append(name)
            said = " ".join(str(fault).split())[-400:]
            table = f"| {name} | failed |\n| --- | --- |\n| {type(fault).__name__} | {said} |"
            path = None  # and is tried again by the next call
        if path is not None:
            path.write_text(table + "\n", encoding="utf-8")
        print(f"## {name}: {PARTS[name].about}\n\n{table}\n", flush=True)
    if missing:
        print(f"failed or left: {' '.join(missing)}", file=sys.stderr)
    return len(missing)


def apart(name: str, tiny: bool, seconds: float) -> str:
    """In a process of its own, which is ended when its time is over."""
    command = [sys.executable, "-m", "benchmarks.accelerator", "--inside", "--part", name]
    done = subprocess.run([*command, *(["--tiny"] if tiny else [])], capture_output=True, text=True, timeout=seconds)
    if done.returncode:
        raise RuntimeError((done.stderr or done.stdout).strip() or f"status {done.returncode}")
    return done.stdout.strip()


def measured(name: str, tiny: bool) -> str:
    """The table of a part, in this process."""
    part = PARTS[name]
    chosen = Setting(TINY, "cpu", "float32", 1) if tiny else Setting(RANDOM, "cuda", "bfloat16", 8)
    if not isinstance(part.what, str):
        argv = ["--part", name, *(["--tiny"] if tiny else [])]
        return f"{header(chosen, 'accelerator', argv)}\n{part.what(chosen, tiny)}"
    of = [f"--{field}" for field in ("model", "device", "dtype", "threads")]
    options = [
        text
        for pair in zip(of, (chosen.model, chosen.device, chosen.dtype, str(chosen.threads)), strict=True)
        for text in pair
    ]
    script = importlib.import_module(f"benchmarks.{part.what}")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = script.main([*options, *(part.tiny if tiny else part.large)])
    if status:
        raise RuntimeError(f"benchmarks.{part.what} ended with status {status}")
    return printed.getvalue().strip()


if __name__ == "__main__":
    raise SystemExit(main())
