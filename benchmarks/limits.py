"""How near the native kernel comes to what the processor can do at most, on one thread.

A step takes at least as long as its products at the rate of fused multiplications and additions in registers, and then
its attention: at that rate, or the slots that it reads at the rate of memory, whichever is longer. Both rates are the
best of several runs of `limits.cpp`, measured in the same process.
"""

import ctypes
import subprocess
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import process_time
from typing import NamedTuple

import torch

from protocol.engine.native import library
from protocol.engine.native.network import NativeNetwork, NativeOutput, NativeRows

SOURCE = Path(__file__).with_name("limits.cpp")
STEPS, NUMBERS, RUNS = 5_000_000, 12 * 16 * 2**19, 7
"""Of a run: steps of multiplications, a few hundredths of a second, and numbers that are read, 400 MB. Runs of each."""


class Limits(NamedTuple):
    """operations, bytes: per second."""

    operations: float
    bytes: float

    def seconds(self, work: "Work") -> float:
        attention = max(work.attention / self.operations, work.read / self.bytes)
        return work.products / self.operations + attention


class Work:
    """Of the kernel: operations of products and of attention, bytes of slots that it read, seconds."""

    products = attention = read = 0
    seconds = 0.0

    def add(self, network: NativeNetwork, rows: NativeRows, seconds: float) -> None:
        layers, head, count = network.layers, network.network.head, len(rows.tokens)
        weights = sum(
            linear.columns * linear.factors
            for layer in layers
            for linear in (layer.projections, layer.output, layer.gate_up, layer.down)
        )
        self.products += 2 * (count * weights + count // rows.new * head.columns * head.factors)
        slots = int(rows.lengths.sum()) + rows.lengths.size
        self.attention += 4 * slots * network.width * network.heads // network.kv_heads
        self.read += 2 * 4 * slots * network.width
        self.seconds += seconds


def measure_limits() -> Limits:
    with tempfile.TemporaryDirectory() as folder:
        built = str(Path(folder, "limits.so"))
        command = [*library.find_compiler(), "-O3", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC"]
        subprocess.run([*command, str(SOURCE), "-o", built], check=True)
        loops = ctypes.CDLL(built)
    loops.operations.restype = ctypes.c_int64
    steps, numbers = ctypes.c_int64(STEPS), torch.rand(NUMBERS)
    address = ctypes.c_void_p(numbers.data_ptr())
    factor, addend = ctypes.c_float(0.5), ctypes.c_float(1.0)
    multiplying, reading = [], []
    for _ in range(RUNS):
        start = process_time()
        loops.multiply(steps, factor, addend)
        middle = process_time()
        loops.read(address, ctypes.c_int64(NUMBERS))
        multiplying.append(middle - start)
        reading.append(process_time() - middle)
    return Limits(loops.operations(steps) / min(multiplying), numbers.nbytes / min(reading))


@contextmanager
def count_work() -> Iterator[Work]:
    """Count the work of the kernel, which runs in one thread."""
    forward, work = NativeNetwork.forward, Work()

    def count(
        self: NativeNetwork, rows: NativeRows, *, projections: bool = False, hidden: Collection[int] = ()
    ) -> NativeOutput:
        start = process_time()
        output = forward(self, rows, projections=projections, hidden=hidden)
        work.add(self, rows, process_time() - start)
        return output

    NativeNetwork.forward = count  # type: ignore[method-assign]
    try:
        yield work
    finally:
        NativeNetwork.forward = forward  # type: ignore[method-assign]
