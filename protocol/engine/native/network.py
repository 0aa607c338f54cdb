"""A network of transformers, packed for the native kernel, and its forward pass over slots."""

from __future__ import annotations

import ctypes
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from protocol.engine.native import library
from protocol.formats.refusals import BadInput
from protocol.layers.layer_kinds import head_width, layers_of

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

__all__ = ["NativeNetwork", "NativeOutput", "NativeRows", "obstacle_to_native"]

FAMILIES = ("llama", "qwen2", "qwen3")
WIDTHS = (32, 64, 128)
PANEL, QUANTUM = 32, 16
"""Columns that the kernel packs together; what divides the sizes of a network."""

Numbers = NDArray[np.int64]


def obstacle_to_native(config: PreTrainedConfig) -> str:
    """Return what the native kernel needs and a network of this configuration lacks; empty if nothing."""
    sizes = {config.hidden_size, getattr(config, "intermediate_size", 0)}
    if config.model_type not in FAMILIES:
        return f"a model of Llama, Qwen2 or Qwen3, and this one is of {config.model_type}"
    if layers_of(config).window is not None:
        return "layers of full attention alone, and the model has sliding windows"
    if head_width(config) not in WIDTHS:
        return f"heads of 32, 64 or 128 numbers, and those of the model have {head_width(config)}"
    if any(size % QUANTUM for size in sizes):
        return f"hidden and feed-forward sizes that {QUANTUM} divides, and the model has {sorted(sizes)}"
    if config.hidden_act != "silu":
        return f"the activation silu, and the model has {config.hidden_act}"
    return ""


class Linear(ctypes.Structure):
    """struct Linear of step.cpp."""

    _fields_ = (
        ("panels", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("columns", ctypes.c_int64),
        ("factors", ctypes.c_int64),
    )


class Layer(ctypes.Structure):
    """struct Layer of step.cpp."""

    _fields_ = tuple((f"{name}_norm", ctypes.c_void_p) for name in ("attention", "query", "key", "mlp")) + tuple(
        (name, Linear) for name in ("projections", "output", "gate_up", "down")
    )


class Network(ctypes.Structure):
    """struct Network of step.cpp."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("layers", "hidden", "heads", "kv_heads", "width", "intermediate")),
        *((name, ctypes.c_float) for name in ("epsilon", "scale")),
        *((name, ctypes.c_void_p) for name in ("embedding", "cosines", "sines", "norm", "layer")),
        ("head", Linear),
    )


class Rows(ctypes.Structure):
    """struct Rows of step.cpp."""

    _fields_ = (
        ("count", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("tokens", "positions", "keys", "values", "lengths", "answers")),
        ("n_answers", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("logits", "projections", "hidden", "weights", "raw", "strides")),
    )


class NativeRows(NamedTuple):
    """The tokens of a forward pass, `new` of each lane, lane by lane, with the slots of each.

    tokens, positions: [row]. keys, values: [layer, row, kv_head], the address of the first slot. lengths: of that
    shape, the slots before the one of this row. weights, raw: [layer, row], the address at which the attention of a
    row is stored, [q_head, slot] with `strides` [row] numbers between heads; 0 where nobody reads it.
    """

    new: int
    tokens: Numbers
    positions: Numbers
    keys: Numbers
    values: Numbers
    lengths: Numbers
    weights: Numbers
    raw: Numbers
    strides: Numbers

    def part(self, rows: slice) -> NativeRows:
        """Return these rows, which are those of whole lanes."""
        tables = (table[rows] if table.ndim == 1 else table[:, rows] for table in self[1:])
        return NativeRows(self.new, *map(np.ascontiguousarray, tables))


class NativeOutput(NamedTuple):
    """logits [lane, vocabulary], after the last token of each lane. projections [layer, row, queries, keys and values
    after RoPE], empty unless requested. hidden: by layer, [row, width], where requested.
    """

    logits: Tensor
    projections: Tensor
    hidden: dict[int, Tensor]


class NativeNetwork:
    """The packed weights of a network, which share no memory with it but the embedding.

    Rows are divided among torch's threads. No number depends on how many there are, or on the other rows.
    """

    def __init__(self, network: PreTrainedModel, positions: int) -> None:
        """network: without an `obstacle_to_native`. positions: tokens of the longest lane. Raises BadInput for
        another device or dtype, and where `library.load` does.
        """
        config, base = network.config, network.base_model
        if (network.device.type, network.dtype) != ("cpu", torch.float32):
            raise BadInput(
                'generation.kernel: "native" needs device cpu and dtype float32, and the model is on '
                f'{network.device.type} in {network.dtype}; write "eager", or leave kernel out'
            )
        self.run = library.load().forward
        self.tensors: list[Tensor] = []  # which the structures point into
        self.vocabulary: int = config.vocab_size
        self.threads = torch.get_num_threads()
        self.executor = ThreadPoolExecutor(self.threads)
        blocks: Any = base.layers
        layers = (Layer * len(blocks))(*map(self.pack_layer, blocks))
        self.layers = layers
        attention, rotary = blocks[0].self_attn, base.rotary_emb
        angles = rotary(torch.zeros(1), torch.arange(positions)[None])
        head: Any = network.get_output_embeddings()
        self.network = Network(
            layers=len(blocks),
            hidden=config.hidden_size,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            width=head_width(config),
            intermediate=config.intermediate_size,
            epsilon=config.rms_norm_eps,
            scale=attention.scaling,
            embedding=self.address(base.embed_tokens.weight),
            cosines=self.address(angles[0]),
            sines=self.address(angles[1]),
            norm=self.address(base.norm.weight),
            layer=ctypes.addressof(layers),
            head=self.pack(head),
        )
        self.fed = (config.num_attention_heads + 2 * config.num_key_value_heads) * head_width(config)

    def pack_layer(self, block: Any) -> Layer:
        attention, mlp = block.self_attn, block.mlp
        norms = (getattr(attention, name, None) for name in ("q_norm", "k_norm"))
        query_norm, key_norm = (None if norm is None else self.address(norm.weight) for norm in norms)
        return Layer(
            attention_norm=self.address(block.input_layernorm.weight),
            query_norm=query_norm,
            key_norm=key_norm,
            mlp_norm=self.address(block.post_attention_layernorm.weight),
            projections=self.pack(attention.q_proj, attention.k_proj, attention.v_proj),
            output=self.pack(attention.o_proj),
            gate_up=self.pack(mlp.gate_proj, mlp.up_proj),
            down=self.pack(mlp.down_proj),
        )

    def pack(self, *linears: Any) -> Linear:
        """Pack weights [columns, factors], one after the other, as [panel, factor, PANEL columns]."""
        weight = torch.cat([linear.weight for linear in linears])
        columns, factors = weight.shape
        panels = pad(weight, (0, 0, 0, -columns % PANEL)).view(-1, PANEL, factors).transpose(1, 2)
        biases = [linear.bias for linear in linears if linear.bias is not None]
        bias = self.address(torch.cat(biases)) if biases else None
        return Linear(panels=self.address(panels), bias=bias, columns=columns, factors=factors)

    def address(self, tensor: Tensor) -> int:
        """Keep a contiguous tensor of these numbers, and return where it begins."""
        self.tensors.append(tensor.detach().contiguous())
        return self.tensors[-1].data_ptr()

    def forward(self, rows: NativeRows, *, projections: bool = False, hidden: Collection[int] = ()) -> NativeOutput:
        """Feed these tokens: append their keys and values to the slots, and return what is requested.

        projections: whether they are. hidden: layers of which the output is.
        """
        lanes = len(rows.tokens) // rows.new
        parts = min(self.threads, lanes)
        if parts == 1:
            return self.forward_part(rows, projections, hidden)
        ends = [part * lanes // parts * rows.new for part in range(parts + 1)]
        pieces = [rows.part(slice(*bounds)) for bounds in pairwise(ends)]
        results = list(self.executor.map(lambda piece: self.forward_part(piece, projections, hidden), pieces))
        return NativeOutput(
            torch.cat([result.logits for result in results]),
            torch.cat([result.projections for result in results], 1),
            {layer: torch.cat([result.hidden[layer] for result in results]) for layer in hidden},
        )

    def forward_part(self, rows: NativeRows, projections: bool, hidden: Collection[int]) -> NativeOutput:
        """Run the kernel on rows of whole lanes, in this thread."""
        count, layers = len(rows.tokens), self.network.layers
        answers = np.arange(rows.new - 1, count, rows.new)
        logits = torch.empty(len(answers), self.vocabulary)
        projected = torch.empty(layers if projections else 0, count, self.fed)
        outputs = {layer: torch.empty(count, self.network.hidden) for layer in hidden}
        hidden_addresses = np.array([outputs[layer].data_ptr() if layer in outputs else 0 for layer in range(layers)])
        self.run(
            ctypes.byref(self.network),
            ctypes.byref(
                Rows(
                    count=count,
                    tokens=rows.tokens.ctypes.data,
                    positions=rows.positions.ctypes.data,
                    keys=rows.keys.ctypes.data,
                    values=rows.values.ctypes.data,
                    lengths=rows.lengths.ctypes.data,
                    answers=answers.ctypes.data,
                    n_answers=len(answers),
                    logits=logits.data_ptr(),
                    projections=projected.data_ptr() if projections else None,
                    hidden=hidden_addresses.ctypes.data,
                    weights=rows.weights.ctypes.data,
                    raw=rows.raw.ctypes.data,
                    strides=rows.strides.ctypes.data,
                )
            ),
        )
        return NativeOutput(logits, projected, outputs)
