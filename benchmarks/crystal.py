"""What CrystalCache costs: its part of a prefill, its edges beside a plain NumPy reading.

Two tables. The parts of a prefill are measured apart, each for itself: what the first layer takes longer
when its attention is observed, and the stages after it. The edges are those of synthetic attention that is
formed in blocks outside the clock; NumPy gathers those of a chunk and sorts.

    python -m benchmarks.crystal
    python -m benchmarks.crystal --lengths 1024 2048 4096 8192
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import policies
from benchmarks import plain_edges
from benchmarks.pairs import Times, alternate, clocked, wait
from benchmarks.plain_edges import Sort
from benchmarks.report import at_least, at_most, exponent, header, span, table
from benchmarks.setting import Subject, context, hidden_layers, open_subject, options, setting
from policies import AttentionRows, Scores, Signal, View
from policies.crystal import graph, trunks
from policies.crystal.coattention import CoAttention, Edges
from policies.crystal.scoring import TrunkScoring
from policies.signals import BLOCK, attention_rows
from protocol.engine import prefill
from protocol.engine.observation import observe_forward
from protocol.engine.prefill import Recorder

SHARE = 0.3  # of the context's tokens that are kept
AFTER = ("trunks", "impact", "graph", "eviction")  # the stages after the forward


class FirstLayer(NamedTuple):
    """queries [q_head, n, d], keys and values [kv_head, n, d], with RoPE."""

    queries: Tensor
    keys: Tensor
    values: Tensor
    scale: float


Reading: TypeAlias = Callable[[FirstLayer], tuple[float, Edges]]  # seconds, and what was found


@dataclass(frozen=True)
class Given:
    """A scoring whose scores are there already."""

    scores: Scores

    @property
    def needs(self) -> frozenset[Signal]:
        return frozenset()

    def score(self, view: View) -> Scores:
        return self.scores


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    made = options("crystal", __doc__, repetitions=5)
    made.add_argument("--lengths", type=int, nargs="+", default=[1024, 2048, 4096], metavar="N")
    made.add_argument(
        "--edges", type=int, default=8192, metavar="N", help="length of the synthetic attention; default 8192"
    )
    arguments = made.parse_args(argv)
    chosen = setting(arguments)
    subject = open_subject(chosen)
    costs = {}
    for length in sorted(arguments.lengths):
        first, view = fed(subject, context(subject, length))
        costs[length] = alternate(stages(subject, first, view, chosen.device), arguments.repetitions)
    print(header(chosen, "crystal", argv, "numpy"))
    print(prefill_table(costs), end="\n\n")
    drawn = synthetic(arguments.edges, subject.network.device)
    print(edges_table(drawn, chosen.device, arguments.repetitions))
    return 0


def fed(subject: Subject, ids: tuple[int, ...]) -> tuple[FirstLayer, View]:
    """The first layer of a prefill, and what `crystal` would be shown at its end."""
    signals = policies.get("crystal").needs
    with observe_forward(subject.network, hidden_layers(subject, signals)), torch.no_grad():
        found = prefill.feed(subject, ids, signals, chunk=None, recent=len(ids))
    view = View(
        token_ids=torch.tensor(ids, device=subject.network.device),
        layers=len(found.keys),
        kv_heads=len(found.keys[0]),
        sentence_ends=subject.sentence_ends,
        seed=0,
        signals=found.signals,
    )
    return FirstLayer(found.recent[0], found.keys[0], found.values[0], found.scale), view


def stages(subject: Subject, first: FirstLayer, view: View, device: str) -> Mapping[str, Callable[[], float]]:
    """By name: the forward, its first layer without and with the signals of crystal, and what follows."""
    policy = policies.get("crystal")
    scoring = policy.scoring
    assert isinstance(scoring, TrunkScoring)
    seen, ids = scoring.measure_first_layer(view), view.token_ids.cpu()
    parts = trunks.split_sentences(ids, view.sentence_ends)
    spans = trunks.build_trunks(parts, seen.edges, scoring.merge_threshold, scoring.max_trunk)
    budget = int(SHARE * view.slots)
    evicting = replace(policy, scoring=Given(scoring.score(view)))

    def forward() -> None:
        with observe_forward(subject.network), torch.no_grad():
            prefill.feed(subject, tuple(ids.tolist()), (), chunk=None)

    def attended(signals: frozenset[Signal]) -> None:
        recorder = Recorder(view.slots, signals, 0, prompt=view.slots, layers=1)
        recorder.attend(0, first.queries[None], first.keys[None], first.values[None], first.scale)
        recorder.measure()

    def trunked() -> None:
        found = trunks.split_sentences(ids, view.sentence_ends)
        trunks.build_trunks(found, scoring.measure_first_layer(view).edges, scoring.merge_threshold, scoring.max_trunk)

    def weighed() -> None:
        scoring.impact.trunk_impact(scoring.impact.token_impact(seen.mass, ids, parts), spans)

    def linked() -> None:
        links = graph.build_links(spans, seen.edges, scoring.edge_threshold)
        graph.crystallization(links, len(spans), scoring.steepness)

    acts: dict[str, Callable[[], object]] = {
        "forward": forward,
        "first layer": lambda: attended(frozenset()),
        "first layer observed": lambda: attended(policy.needs),
        "trunks": trunked,
        "impact": weighed,
        "graph": linked,
        "eviction": lambda: evicting.keep(view, budget),
    }
    return {name: clocked(act, device) for name, act in acts.items()}


def seconds_of(tokens: int, times: Times) -> dict[str, float]:
    """The seconds of each part, by its name."""
    observing = times.median("first layer observed") - times.median("first layer")
    parts = {name: times.median(name) for name in AFTER}
    return {"tokens": tokens, "forward": times.median("forward"), "salience_and_edges": max(0.0, observing), **parts}


def prefill_table(costs: Mapping[int, Times]) -> str:
    """Seconds and shares of the forward, a column a length."""
    rows = [seconds_of(n, times) for n, times in costs.items()]
    forward = [row["forward"] for row in rows]

    def growth(seconds: Sequence[float]) -> str:
        slope = exponent(list(costs), seconds)
        return "" if slope is None else f"{slope:.2f}"

    def line(name: str, parts: Sequence[str], most: float | None = None) -> list[str]:
        seconds = [sum(row[part] for part in parts) for row in rows]
        shares = [100 * one / whole for one, whole in zip(seconds, forward, strict=True)]
        cells = [f"{one:.4f} ({share:.2f} %)" for one, share in zip(seconds, shares, strict=True)]
        target = "" if most is None else at_most(shares[-1], most, "{:.1f} %")
        return [name, *cells, growth(seconds), target]

    lines = [
        ["the forward alone", *(f"{one:.3f}" for one in forward), growth(forward), ""],
        line("salience and edges, in the first layer", ["salience_and_edges"]),
        *(line(name, [name]) for name in AFTER),
        line("trunks to eviction together", AFTER, 1),
        line("all beyond the forward", ["salience_and_edges", *AFTER], 10),
    ]
    if len(rows) > 1:
        grown, allowed = lines[-1][-2], lines[0][-2]
        target = at_most(float(grown), float(allowed)) if grown else ""
        lines.append(["its growth beside the forward's", *[""] * len(rows), grown, target])
    columns = [f"n = {n}" for n in costs]
    return table(("seconds (of the forward)", *columns, "exponent", f"target at {columns[-1]}"), lines)


def synthetic(n: int, device: torch.device) -> FirstLayer:
    """Random queries and keys that heads have in common for the most part, so that edges between chunks
    exceed the threshold: a few a token.
    """
    random = torch.Generator().manual_seed(0)

    def draw(heads: int) -> Tensor:
        shared, own = (torch.randn(count, n, 64, generator=random) for count in (1, heads))
        return (shared + 0.5 * own).to(device)

    keys = draw(3)
    return FirstLayer(2 * draw(9), keys, keys, 64**-0.5)


def blocks(first: FirstLayer) -> Iterator[Tensor]:
    """Causal attention [q_head, row, slot], BLOCK rows at a time; each overlays the one before."""
    n = first.keys.shape[1]
    workspace = first.keys.new_empty(len(first.queries) * BLOCK * n)
    for start in range(0, n, BLOCK):
        stop = min(start + BLOCK, n)
        yield attention_rows(first.queries[:, start:stop], first.keys[:, :stop], first.scale, start, workspace)


def streamed(first: FirstLayer, signal: CoAttention, device: str) -> tuple[float, Edges]:
    """Seconds of the fold and of reading it, and the edges."""
    n, state, seconds = first.keys.shape[1], None, 0.0
    for attention in blocks(first):
        wait(device)
        start = perf_counter()
        state = signal.attend(AttentionRows(attention, 0, attention.shape[2] - attention.shape[1], n, 1), state)
        wait(device)
        seconds += perf_counter() - start
    assert state is not None
    start = perf_counter()
    edges = signal.result(state).edges
    wait(device)
    return seconds + perf_counter() - start, edges


def materialised(first: FirstLayer, settings: CoAttention, sort: Sort) -> tuple[float, Edges]:
    """Seconds in which NumPy gathers the blocks of a chunk into one array and reads it, and the edges."""
    heads, n, _ = first.queries.shape
    found, seconds, chunk = [], 0.0, None
    for attention in blocks(first):
        rows, stop = attention.shape[1:]
        begin = perf_counter()
        opened = (stop - 1) // settings.chunk * settings.chunk
        given = attention.cpu().numpy()
        if chunk is None:
            end = min(opened + settings.chunk, n)
            chunk = np.zeros((heads, end - opened, end), given.dtype)
        chunk[:, stop - rows - opened : stop - opened, :stop] = given
        if stop == chunk.shape[2]:
            found += plain_edges.of_chunk(chunk, settings, sort).edges
            chunk = None
        seconds += perf_counter() - begin
    return seconds, Edges(*(torch.from_numpy(np.concatenate(c)) for c in zip(*found, strict=True)))


def apart(one: Edges, other: Edges, n: int) -> int:
    """How many pairs are in one of them alone."""
    return len(np.setxor1d(pairs_of(one, n), pairs_of(other, n)))


def pairs_of(edges: Edges, n: int) -> NDArray[np.int64]:
    """Each pair as a number."""
    return (edges.i * n + edges.j).cpu().numpy()


def edges_table(first: FirstLayer, device: str, repetitions: int) -> str:
    """The edges are compared in float64, where no two weights that differ are rounded to one."""
    n, settings, ours = first.keys.shape[1], CoAttention(), "blocks of rows"
    readings: dict[str, Reading] = {
        ours: partial(streamed, signal=settings, device=device),
        "NumPy, argsort": partial(materialised, settings=settings, sort="quicksort"),
        "NumPy, stable argsort": partial(materialised, settings=settings, sort="stable"),
    }
    times = alternate({name: timed(read, first) for name, read in readings.items()}, repetitions)
    wide = FirstLayer(first.queries.double(), first.keys.double(), first.values.double(), first.scale)
    found = {name: read(wide)[1] for name, read in readings.items()}
    rows = []
    for name, edges in found.items():
        ratio = times.ratio(name, ours)
        others = apart(found[ours], edges, n)
        target = "" if name == ours else at_least(ratio.median, 20, "{:.1f}")
        rows.append([name, f"{times.median(name):.3f}", span(ratio, 1), str(len(edges.i)), str(others), target])
    columns = ("seconds", "to blocks", "edges", "edges in one of both only", "target")
    return table((f"salience and edges of {n} tokens", *columns), rows)


def timed(read: Reading, first: FirstLayer) -> Callable[[], float]:
    return lambda: read(first)[0]


if __name__ == "__main__":
    raise SystemExit(main())
