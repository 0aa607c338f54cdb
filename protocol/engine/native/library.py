"""The compiled kernel: built from `step.cpp` by the compiler of this machine on first use, and cached by digest."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from protocol.formats import files
from protocol.formats.refusals import BadInput

__all__ = ["INSTRUCTIONS", "build", "load"]

SOURCE = Path(__file__).with_name("step.cpp")
FLAGS = ("-O3", "-std=c++17", "-ffp-contract=off", "-shared", "-fPIC")
INSTRUCTIONS = {"AVX512": ("-mavx512f", "-mavx512dq", "-mavx2", "-mfma"), "AVX2": ("-mavx2", "-mfma"), "ARM": ()}
"""Compiler flags by the instructions of a processor. They change no number."""
INSTEAD = 'write kernel = "eager", the default, which needs none of this'


def load() -> ctypes.CDLL:
    """Return the kernel for this processor. Raises BadInput without such a processor, a compiler or its success."""
    is_arm = platform.machine().lower() in ("arm64", "aarch64")
    kind = "ARM" if is_arm else torch.backends.cpu.get_cpu_capability()
    if kind not in INSTRUCTIONS:
        raise BadInput(f'generation.kernel: "native" needs a processor with AVX2 or of ARM\'s 64 bits; {INSTEAD}')
    return ctypes.CDLL(str(build(INSTRUCTIONS[kind])))


def build(instructions: Sequence[str], flags: Sequence[str] = FLAGS) -> Path:
    """Return the shared library for these instructions; compile it unless the cache has it.

    Its name is a digest of source, flags and compiler, and it appears whole, so that processes may build at once.
    """
    compiler = os.environ.get("CXX") or next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if compiler is None:
        raise BadInput(
            f'generation.kernel: "native" needs a C++ compiler, and no c++, g++ or clang++ is here; {INSTEAD}'
        )
    command = (compiler, *flags, *instructions)
    version = run_compiler((compiler, "--version"))
    digest = hashlib.sha256(repr((command, version, SOURCE.read_bytes())).encode()).hexdigest()
    library = files.cache_home() / "native" / f"{digest[:32]}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
            run_compiler((*command, str(SOURCE), "-o", f"{folder}/built.so"))
            os.replace(f"{folder}/built.so", library)
    return library


def run_compiler(command: Sequence[str]) -> str:
    """Return what a compiler prints. Raises BadInput if it fails."""
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        lines = str(getattr(error, "stderr", "") or error).splitlines()
        reason = next((line for line in lines if "error" in line), lines[0] if lines else str(error))
        raise BadInput(
            f'generation.kernel: "native" could not be built by {command[0]}: {reason.strip()}; {INSTEAD}'
        ) from None
