"""What `torch.nn.attention.varlen.varlen_attn` of torch 2.13 computes on CUDA, as a loop over sequences.

Its arguments are held to what FlashAttention 2 demands of them (flash_api.cpp, mha_varlen_fwd), but for the
precision: the tests compute in float64.
"""

import torch

PAGE = 256


def varlen_by_loops(
    query,
    key,
    value,
    cu_seq_q,
    cu_seq_k,
    max_q,
    max_k,
    *,
    return_aux=None,
    scale=None,
    window_size=(-1, -1),
    enable_gqa=False,
    seqused_k=None,
    block_table=None,
    num_splits=None,
):
    sequences = len(cu_seq_q) - 1
    heads = key.shape[-2]
    assert query.dim() == 3
    assert sequences > 0
    assert key.shape == value.shape
    assert key.shape[-1] == query.shape[-1] <= 256
    assert query.shape[-1] % 8 == 0
    assert query.shape[1] == heads or (enable_gqa and query.shape[1] % heads == 0)
    assert query.stride(-1) == key.stride(-1) == value.stride(-1) == 1
    counted = [cu_seq_q, cu_seq_k, *(one for one in (seqused_k, block_table) if one is not None)]
    assert all(one.dtype == torch.int32 for one in counted)
    assert all(one.is_contiguous() for one in (cu_seq_q, cu_seq_k))
    assert len(cu_seq_k) == sequences + 1
    assert cu_seq_q[-1] == len(query)
    assert cu_seq_k.diff().ge(0).all()
    assert window_size in ((-1, -1), (-1, 0))
    if seqused_k is not None:
        assert seqused_k.shape == (sequences,)
        assert seqused_k.is_contiguous()
    if block_table is not None:
        assert key.dim() == 4
        assert key.shape[1] % PAGE == 0
        assert seqused_k is not None
        assert len(block_table) == sequences
    else:
        assert key.dim() == 3
        assert cu_seq_k[-1] <= len(key)
    output = torch.empty_like(query)
    lse = query.new_empty(query.shape[1], len(query), dtype=torch.promote_types(query.dtype, torch.float32))
    for number in range(sequences):
        own = slice(int(cu_seq_q[number]), int(cu_seq_q[number + 1]))
        rows = own.stop - own.start
        start, stop = int(cu_seq_k[number]), int(cu_seq_k[number + 1])
        used = stop - start if seqused_k is None else int(seqused_k[number])
        assert rows <= max_q
        assert used <= max_k
        if block_table is None:
            assert used <= stop - start
            keys, values = key[start : start + used], value[start : start + used]
        else:
            pages = block_table[number].long()
            keys, values = (whole[pages].flatten(0, 1)[:used] for whole in (key, value))
        keys, values = (one.repeat_interleave(query.shape[1] // heads, 1) for one in (keys, values))
        logits = torch.einsum("thd,nhd->htn", query[own], keys).to(lse.dtype)
        logits *= query.shape[-1] ** -0.5 if scale is None else scale
        if window_size == (-1, 0):  # aligned at the last row and the last slot
            logits.masked_fill_(torch.ones(rows, used, dtype=torch.bool).triu(used - rows + 1), -torch.inf)
        lse[:, own] = logits.logsumexp(-1)
        output[own] = torch.einsum("htn,nhd->thd", logits.softmax(-1).to(query.dtype), values)
    return (output, lse) if return_aux is not None and return_aux.lse else output
