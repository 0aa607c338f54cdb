"""Heads of unequal length: through a kernel of variable lengths, in pages, and padded; and in company.

Three tables: one layer of one decode step of a pool by either path; the slots that pages of 256 would take
beside the rooms of the pool; and whether a lane computes the same bits alone, in company of 8 and of 64, in
the attention and as a whole, linear layers among it. On a CPU the kernel does not exist, and the rows say so.

    python -m benchmarks.ragged --device cuda --dtype bfloat16 --model random-8b
    python -m benchmarks.ragged --tiny
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

import policies
from benchmarks.pairs import alternate, clocked
from benchmarks.report import header, span, table
from benchmarks.setting import Setting, Subject, open_subject, options, random_ids, setting
from protocol import engine
from protocol.engine import Lane, Prompt, Request
from protocol.engine.attention.kernels import PADDED, Attention, choose_attention
from protocol.engine.forward_step import ForwardStep
from protocol.engine.slots import CachedSlots, Pool, lane_shapes

PAGE = 256
"""Slots of a page: FlashAttention 2 takes multiples of it."""
PADDING, VARLEN, PAGED = "padded, with a mask", "variable lengths", "variable lengths, in pages"
MISSING = "not run: needs device cuda and bfloat16"
COMPANY = (1, 8, 64)


class Shape(NamedTuple):
    """A pool of one layer: `mean` slots a head, between 0 and twice as many; `room` for new ones."""

    lanes: int = 64
    kv_heads: int = 8
    group: int = 4
    width: int = 128
    mean: int = 1024
    room: int = 128


TINY = Shape(lanes=3, kv_heads=2, group=2, width=16, mean=20, room=4)


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    made = options("ragged", __doc__, repetitions=20)
    made.add_argument("--tiny", action="store_true", help="shapes of a few slots, for a look at the tables")
    made.add_argument("--no-company", action="store_true", help="leave the model out")
    arguments = made.parse_args(argv)
    chosen_setting = setting(arguments)
    shape = TINY if arguments.tiny else Shape()
    print(header(chosen_setting, "ragged", argv))
    print(paths(shape, chosen_setting, kernel_of(chosen_setting), arguments.repetitions), "\n")
    print(pages(shape), "\n")
    if not arguments.no_company:
        subject = open_subject(chosen_setting)
        length, new = (40, 4) if arguments.tiny else (1024, 64)
        print(company(subject, choose_attention(subject.network), length, new))
    return 0


def kernel_of(where: Setting) -> Attention:
    """varlen_attn where it runs."""
    if where.device != "cuda" or where.dtype == "float32":
        return PADDED
    from torch.nn.attention.varlen import varlen_attn

    return Attention(varlen_attn)


def counts_of(shape: Shape, lane: int) -> Tensor:
    """Slots of each head, [kv_head]; of equal sum in every lane, so that they share a pool."""
    heads, half = shape.kv_heads, shape.kv_heads // 2
    drawn = torch.randint(shape.mean, (half,), generator=torch.Generator().manual_seed(lane)).tolist()
    more = [shape.mean + by for by in drawn]
    fewer = [shape.mean - by for by in drawn]
    return torch.tensor(more + fewer + [shape.mean] * (heads - 2 * half))


def pool_of(shape: Shape, where: Setting, attention: Attention, lanes: Sequence[int]) -> Pool[int]:
    """One layer of random slots; what a lane holds is drawn by its number alone."""
    dtype = getattr(torch, where.dtype)
    pool: Pool[int] | None = None
    for lane in lanes:
        counts, generator = counts_of(shape, lane), torch.Generator().manual_seed(1000 + lane)
        drawn = torch.randn(2, shape.kv_heads, int(counts.max()), shape.width, generator=generator)
        keys, values = drawn.to(where.device, dtype)
        room = lane_shapes(counts[None], shape.room)
        # Heads that happen to be of equal length would lie in rows: one shape for all.
        room = tuple(own._replace(flat=True, capacity=int(counts.sum()) + shape.room * len(counts)) for own in room)
        pool = pool or Pool(room, [keys], attention=attention)
        (place,) = pool.admit([lane])
        kept = torch.arange(keys.shape[1]) < counts[:, None]
        pool.fill(place, 0, CachedSlots(keys, values), kept.to(where.device), counts)
    assert pool is not None
    return pool


def asked(shape: Shape, where: Setting, lanes: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of one new token of each lane."""
    heads, dtype = shape.kv_heads, getattr(torch, where.dtype)
    drawn = [
        torch.randn(heads * (shape.group + 2), 1, shape.width, generator=torch.Generator().manual_seed(lane))
        for lane in lanes
    ]
    whole = torch.stack(drawn).to(where.device, dtype)
    queries, keys, values = torch.split(whole, [heads * shape.group, heads, heads], 1)
    return queries, keys, values


def stepping(shape: Shape, where: Setting, attention: Attention, lanes: Sequence[int]) -> Callable[[], Tensor]:
    """One layer of one decode step, which may be repeated: the new slots are written anew."""
    pool, given = pool_of(shape, where, attention, lanes), asked(shape, where, lanes)

    def act() -> Tensor:
        step = ForwardStep(pool, range(len(lanes)), 1, shape.kv_heads * shape.group, {}, (), ())
        return step.attend(0, *given, shape.width**-0.5)

    return act


def paging(shape: Shape, where: Setting, attention: Attention, lanes: Sequence[int]) -> Callable[[], Tensor]:
    """The attention of `stepping` alone, over pages of each head."""
    pool, (queries, keys, values) = pool_of(shape, where, attention, lanes), asked(shape, where, lanes)
    step = ForwardStep(pool, range(len(lanes)), 1, shape.kv_heads * shape.group, {}, (), ())
    step.attend(0, queries, keys, values, 1.0)  # appends
    one = step.packings[0]
    paged, block_table = in_pages(pool.keys[0], one.cu_seq_k, one.used)
    paged_values, _ = in_pages(pool.values[0], one.cu_seq_k, one.used)
    kernel: Any = attention.kernel

    def act() -> Tensor:
        output: Tensor = kernel(
            queries.reshape(-1, shape.group, shape.width),
            paged,
            paged_values,
            one.cu_seq_q,
            one.cu_seq_k,
            1,
            one.max_k,
            scale=shape.width**-0.5,
            enable_gqa=True,
            seqused_k=one.used,
            block_table=block_table,
            num_splits=1,
        )
        return output.view(queries.shape)

    return act


def in_pages(rows: Tensor, first: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of slots [lane, row, capacity, d] as pages [page, PAGE, 1, d], and those of each sequence, int32
    [sequence, pages of the longest]; page 0 is empty and fills up.
    """
    flat, starts, lengths = rows.reshape(-1, rows.shape[-1]), first.tolist(), used.tolist()
    needed = [-(-length // PAGE) for length in lengths]
    pages = rows.new_zeros(1 + sum(needed), PAGE, 1, rows.shape[-1])
    chosen = torch.zeros(len(lengths), max(needed), dtype=torch.int32)
    at = 1
    for number, (length, count) in enumerate(zip(lengths, needed, strict=True)):
        own = pages[at : at + count].view(-1, rows.shape[-1])
        own[:length] = flat[starts[number] : starts[number] + length]
        chosen[number, :count] = torch.arange(at, at + count)
        at += count
    return pages, chosen.to(rows.device)


def paths(shape: Shape, where: Setting, attention: Attention, repetitions: int) -> str:
    """The time of either path, and how far their outputs lie apart."""
    lanes = range(shape.lanes)
    acts: dict[str, Callable[[], Tensor]] = {PADDING: stepping(shape, where, PADDED, lanes)}
    if attention.kernel is not None:
        acts[VARLEN] = stepping(shape, where, attention, lanes)
        acts[PAGED] = paging(shape, where, attention, lanes)
    plain = acts[PADDING]().float()
    apart = {name: f"{float((act().float() - plain).abs().max()):.1e}" for name, act in acts.items()}
    times = alternate({name: clocked(act, where.device) for name, act in acts.items()}, repetitions)
    rows = []
    for name in (PADDING, VARLEN, PAGED):
        if name in acts:
            ratio = span(times.ratio(name, PADDING))
            rows.append([name, f"{1000 * times.median(name):.3f}", ratio, apart[name]])
        else:
            rows.append([name, MISSING, "", ""])
    title = f"one layer, {shape.lanes} lanes, {shape.kv_heads} KV heads of {shape.mean} slots in the mean"
    return table((title, "milliseconds", "to padded", "largest difference"), rows)


def pages(shape: Shape) -> str:
    """Slots that are allocated a head: a room for new ones now, or whole pages as they are filled."""
    counts = torch.stack([counts_of(shape, lane) for lane in range(shape.lanes)]).double()
    rows = [
        ["held", *(f"{float(counts.mean()) + new:.0f}" for new in (0, shape.room))],
        ["rooms of a pool", *[f"{float(counts.mean()) + shape.room:.0f}"] * 2],
        [
            f"pages of {PAGE}",
            *(f"{float(((counts + new) / PAGE).ceil().mean()) * PAGE:.0f}" for new in (0, shape.room)),
        ],
    ]
    return table(("slots a head", "after an event", f"{shape.room} tokens later"), rows)


def company(subject: Subject, attention: Attention, length: int, new: int) -> str:
    """Whether a lane computes alone what it computes in company: bits of the attention of one step, and of
    the logits of a whole run under `ada-snapkv`, whose heads are of unequal length.
    """
    config: Any = subject.network.config
    heads = config.num_key_value_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    shape = Shape(0, heads, config.num_attention_heads // heads, width, mean=length // 2, room=new)
    dtype = str(subject.network.dtype).removeprefix("torch.")
    where = Setting(subject.name, subject.network.device.type, dtype, torch.get_num_threads())
    rows = []
    for name, path in ((PADDING, PADDED), (VARLEN, attention)):
        if name == VARLEN and path.kernel is None:
            rows.append([name, *[MISSING] * 2 * (len(COMPANY) - 1)])
            continue
        steps = [stepping(shape, where, path, range(lanes))()[0] for lanes in COMPANY]
        runs = [logits_of_first(subject, path, length, new, lanes) for lanes in COMPANY]
        bits = ["equal" if torch.equal(one, steps[0]) else "differ" for one in steps[1:]]
        rows.append([name, *bits, *(first_difference(one, runs[0]) for one in runs[1:])])
    others = COMPANY[1:]
    columns = [f"attention, {count} lanes" for count in others] + [f"logits, {count} lanes" for count in others]
    return table(("bits of a lane, to those of it alone", *columns), rows)


def logits_of_first(subject: Subject, path: Attention, length: int, new: int, lanes: int) -> list[Tensor]:
    """Logits of the first lane, one a forward: its prompt's, then one a token."""
    seen: list[Tensor] = []

    def note(module: Any, given: Any, output: Any) -> None:
        seen.append(output.logits[0, -1].clone())

    policy = policies.get("ada-snapkv")
    requests = []
    for number in range(lanes):
        ids = random_ids(subject, length + number)[number:]  # of equal length, other tokens
        requests.append(Request(f"p{number}", Prompt(ids, ()), (Lane("lane", policy, length // 2, 0),)))
    hook = subject.network.register_forward_hook(note)
    try:
        engine.run(subject, requests, max_new_tokens=new, max_concurrent=lanes, attention=path)
    finally:
        hook.remove()
    return [seen[0], *seen[lanes:]]  # the prompts of the others come between


def first_difference(found: Sequence[Tensor], alone: Sequence[Tensor]) -> str:
    for step, (one, other) in enumerate(zip(found, alone, strict=True)):
        if not torch.equal(one, other):
            return f"differ from step {step}"
    return f"equal, {len(alone)} forwards"


if __name__ == "__main__":
    raise SystemExit(main())
