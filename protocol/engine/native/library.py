"""The compiled kernel: built from `step.cpp` by the compiler of this machine on first use, and cached by digest."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from protocol.formats import files
from protocol.formats.refusals import BadInput

SOURCE = Path(__file__).with_name("step.cpp")
FLAGS = ("-O3", "-std=c++17", "-ffp-contract=off", "-shared", "-fPIC", "-pthread")
INSTRUCTIONS = {"AVX512": ("-mavx512f", "-mavx512dq", "-mavx2", "-mfma"), "AVX2": ("-mavx2", "-mfma"), "ARM": ()}
"""Compiler flags by the instructions of a processor. They change no number."""
COMPILERS = ("c++", "g++", "clang++")
INSTEAD = 'write kernel = "eager", the default, which needs no compiler'


def load() -> ctypes.CDLL:
    """Return the kernel for this processor. Raises BadInput without such a processor, a compiler or its success."""
    is_arm = platform.machine().lower() in ("arm64", "aarch64")
    kind = "ARM" if is_arm else torch.backends.cpu.get_cpu_capability()
    if kind not in INSTRUCTIONS:
        raise BadInput(f'generation.kernel: "native" needs a processor with AVX2 or a 64-bit ARM processor; {INSTEAD}')
    return ctypes.CDLL(str(build(INSTRUCTIONS[kind])))


def build(instructions: Sequence[str], flags: Sequence[str] = FLAGS) -> Path:
    """Return the shared library for these instructions; compile it unless the cache has it undamaged.

    Its name is a digest of source, flags and compiler; the digest of its bytes lies beside it. It appears whole, so
    that processes may build at once. CXX may have arguments, as in make.
    """
    compiler = find_compiler()
    command = (*compiler, *flags, *instructions)
    version = run_compiler((*compiler, "--version"))
    digest = hashlib.sha256(repr((command, version, SOURCE.read_bytes())).encode()).hexdigest()
    library = files.cache_home() / "native" / f"{digest[:32]}.so"
    record = library.with_suffix(".sha256")
    if not (library.is_file() and record.is_file() and record.read_bytes() == files.sha256(library).encode()):
        library.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
            built = Path(folder, "built.so")
            run_compiler((*command, str(SOURCE), "-o", str(built)), built)
            built.with_suffix(".sha256").write_text(files.sha256(built))
            os.replace(built, library)
            os.replace(built.with_suffix(".sha256"), record)
    return library


def find_compiler() -> tuple[str, ...]:
    """Return the compiler of CXX with its arguments, else one of this machine. Raises BadInput without one."""
    try:
        words = shlex.split(os.environ.get("CXX", ""))
    except ValueError as error:
        raise BadInput(f"CXX: {error}; set this variable to a C++ compiler and its arguments, or unset it") from None
    if not words:
        words = [path for path in map(shutil.which, COMPILERS) if path][:1]
    if not words:
        raise BadInput(
            f'generation.kernel: "native" needs a C++ compiler, but this machine has no c++, g++ or clang++; {INSTEAD}'
        )
    return tuple(words)


def run_compiler(command: Sequence[str], output: Path | None = None) -> str:
    """Return what a compiler prints. Raises BadInput if it fails, or does not write the output."""
    try:
        printed = subprocess.run(command, check=True, capture_output=True, text=True, errors="replace").stdout
        if output is not None and not output.is_file():
            raise OSError("the compiler wrote no library")
        return printed
    except (OSError, subprocess.CalledProcessError) as error:
        lines = str(getattr(error, "stderr", "") or error).splitlines()
        reason = next((line for line in lines if "error" in line), lines[0] if lines else str(error))
        raise BadInput(
            f'generation.kernel: "native" could not be built by {command[0]}: {reason.strip()}; {INSTEAD}'
        ) from None
