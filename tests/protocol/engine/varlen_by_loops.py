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
        first, last = int(cu_seq_q[number]), int(cu_seq_q[number + 1])
        assert last - first <= max_q
        start, stop = int(cu_seq_k[number]), int(cu_seq_k[number + 1])
        used = stop - start if seqused_k is None else int(seqused_k[number])
        if block_table is None:
            assert used <= stop - start
            keys, values = key[start : start + used], value[start : start + used]
        else:
            pages = block_table[number].long()
            keys, values = (whole[pages].flatten(0, 1)[:used] for whole in (key, value))
        assert len(keys) == used <= max_k
        for row in range(first, last):
            seen = used - (last - 1 - row) if window_size == (-1, 0) else used  # aligned at the last of both
            for head in range(query.shape[1]):
                own = head // (query.shape[1] // heads)
                logits = keys[:seen, own] @ query[row, head] * (scale or query.shape[-1] ** -0.5)
                output[row, head] = logits.softmax(0) @ values[:seen, own]
                lse[head, row] = logits.to(lse.dtype).logsumexp(0)
    return (output, lse) if return_aux is not None and return_aux.lse else output


def varlen_in_products(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, **settings):
    """The same for one KV head and nothing paged, quicker: a product a sequence."""
    output, scale = torch.empty_like(query), settings["scale"]
    assert key.shape[1] == 1
    for number, used in enumerate(settings["seqused_k"].tolist()):
        own = slice(*cu_seq_q[number : number + 2].tolist())
        start = int(cu_seq_k[number])
        assert used <= int(cu_seq_k[number + 1]) - start
        logits = torch.einsum("thd,nd->htn", query[own], key[start : start + used, 0]) * scale
        if settings["window_size"] == (-1, 0):
            ahead = torch.ones(logits.shape[1:], dtype=torch.bool).triu(used - logits.shape[1] + 1)
            logits.masked_fill_(ahead, -torch.inf)
        output[own] = torch.einsum("htn,nd->thd", logits.softmax(-1), value[start : start + used, 0])
    return output
