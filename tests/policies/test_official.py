"""Our policies against what official code kept of the same tensors, index for index.

R-KV, its SnapKV and its StreamingLLM: Zefan-Cai/R-KV @ d15c976. LongFlow: the reference of yisunlp/LongFLow @
89a68d3. LagKV: AI-Lab-China-Merchants-Bank/LagKV @ 2a9d19e, and LagKVPress of NVIDIA/kvpress @ 8bb29b9.
DefensiveKV and Layer-DefensiveKV: FFY0/DefensiveKV @ 9251b95, of which cases are left out where a head lost a
part of its window. Their choices are the numbers in `official`, which `official/make.py` makes again from a
copy of their code.
"""

from collections.abc import Callable

import torch
from looped import looped
from official_cases import Case, digest, layers_of, projection, recorded, tensors
from torch import Tensor

from policies import AttentionRows, AttentionSignal, OutputSignal, Policy, View
from policies.defensivekv import defensivekv, layer_defensivekv
from policies.lagkv import lagkv
from policies.longflow import longflow
from policies.r_kv import r_kv, snapkv_rkv, streamingllm_rkv

OURS: dict[str, Callable[[Case], Policy]] = {
    "r-kv": lambda case: r_kv(case.window, case.kernel, case.weight),
    "snapkv-rkv": lambda case: snapkv_rkv(case.window, case.kernel),
    "streamingllm-rkv": lambda case: streamingllm_rkv(),
    "longflow": lambda case: longflow(),
    "lagkv": lambda case: lagkv(case.sinks, case.lag),
    "lagkv-kvpress": lambda case: lagkv(case.sinks, case.lag),
    "defensivekv": lambda case: defensivekv(case.window, case.kernel),
    "layer-defensivekv": lambda case: layer_defensivekv(case.window, case.kernel),
}


def kept_by(policy: Policy, case: Case) -> list[list[int]]:
    n = case.n - case.masked  # slots that are not there yet have no place in our cache

    def measured(signal, one):
        queries, keys, values = tensors(one)
        keys, values = keys[:, :n], values[:, :n]
        filled = torch.ones(keys.shape[:2], dtype=torch.bool)
        if isinstance(signal, AttentionSignal):
            return signal.result(signal.attend(last_rows(queries, keys), None))
        if isinstance(signal, OutputSignal):
            return signal.project(0, keys, values, filled, projection(one))
        return signal.summarise(0, keys, values, filled)

    signals = {signal: tuple(measured(signal, one) for one in layers_of(case)) for signal in policy.needs}
    view = View(torch.arange(n), case.layers, case.kv_heads, frozenset(), 0, signals)
    return [head.nonzero().flatten().tolist() for head in policy.keep(view, case.budget).flatten(0, 1)]


def last_rows(queries: Tensor, keys: Tensor) -> AttentionRows:
    """The queries [q_head, row, d] are those of the last tokens."""
    group, count, n = len(queries) // len(keys), queries.shape[1], keys.shape[1]
    logits = queries @ keys.repeat_interleave(group, 0).transpose(1, 2) / queries.shape[-1] ** 0.5
    later = torch.arange(n) > torch.arange(n - count, n)[:, None]
    logits = logits.masked_fill(later, -torch.inf)
    return AttentionRows(logits.softmax(-1), 0, n - count, n, len(keys), logits=logits)


@looped("method", OURS)
def test_the_slots_that_official_code_kept_are_ours(method):
    cases = recorded(method)
    assert len(cases) == 20
    for case, _, expected in cases:
        kept = kept_by(OURS[method](case), case)
        # LongFlow has one set for all heads of a layer.
        assert kept == (expected if len(expected) > 1 else expected * case.kv_heads), case


@looped("method", OURS)
def test_the_tensors_are_those_that_official_code_was_given_bit_for_bit(method):
    assert [digest(case) for case, _, _ in recorded(method)] == [given for _, given, _ in recorded(method)]
