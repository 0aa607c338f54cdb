"""A network of transformers, packed for the native kernel, and its forward pass over slots."""

from __future__ import annotations

import ctypes
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protocol.engine.native import library
from protocol.formats.refusals import BadInput
from protocol.layers.layer_kinds import head_width, layers_of

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

FAMILIES = ("llama", "qwen2", "qwen3")
WIDTHS = (32, 64, 128)
MIN_THREAD_PRODUCTS = 1 << 22  # multiplications for which a thread is worth its start
PANEL, QUANTUM = 32, 16
"""Columns that the kernel packs together; what divides the sizes of a network."""

Numbers = NDArray[np.int64]


def obstacle_to_native(config: PreTrainedConfig) -> str:
    """Return what the native kernel needs and a network of this configuration lacks; empty if nothing."""
    sizes = {config.hidden_size, getattr(config, "intermediate_size", 0)}
    if config.model_type not in FAMILIES:
        return f"a model of type Llama, Qwen2 or Qwen3, but this one is {config.model_type}"
    if layers_of(config).window is not None:
        return "full attention in all layers, but the model has sliding windows"
    if head_width(config) not in WIDTHS:
        return f"a head size of 32, 64 or 128, but the model's is {head_width(config)}"
    if any(size % QUANTUM for size in sizes):
        return f"hidden and feed-forward sizes that are multiples of {QUANTUM}, but the model has {sorted(sizes)}"
    if config.hidden_act != "silu":
        return f"the activation silu, but the model has {config.hidden_act}"
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

    def part(self, rows: Numbers) -> NativeRows:
        """Return these rows, which are those of whole lanes."""
        tables = (table[rows] if table.ndim == 1 else table[:, rows] for table in self[1:])
        return NativeRows(self.new, *map(np.ascontiguousarray, tables))

    def store_for(self, sources: Numbers) -> NativeRows:
        """Return the rows, where the attention of sources [row] is stored if any row that takes it is read."""
        weights, raw, strides = (table.copy() for table in (self.weights, self.raw, self.strides))
        for stored, table in ((weights, self.weights), (raw, self.raw), (strides, self.strides)):
            np.maximum.at(stored.T, sources, table.T)  # any address of the equal ones will do
        return self._replace(weights=weights, raw=raw, strides=strides)


class NativeOutput(NamedTuple):
    """logits [lane, vocabulary], after the last token of each lane. projections [layer, row, queries, keys and values
    after RoPE], empty unless requested. hidden: by layer, [row, width], where requested.
    """

    logits: Tensor
    projections: Tensor
    hidden: dict[int, Tensor]


class NativeNetwork:
    """The packed weights of a network, which share no memory with it but the embedding.

    torch's number of threads share the columns of products and the heads of attention, so that no weight is
    read twice for the same rows. No number depends on how many there are, or on the other rows.
    """

    def __init__(self, network: PreTrainedModel, positions: int) -> None:
        """network: without an `obstacle_to_native`. positions: tokens of the longest lane. Raises BadInput for
        another device or dtype, for weights of other sizes than the configuration's, and where `library.load` does.
        """
        config, base = network.config, network.base_model
        if (network.device.type, network.dtype) != ("cpu", torch.float32):
            raise BadInput(
                'generation.kernel: "native" needs device cpu and dtype float32, but the model is on '
                f'{network.device.type} in {network.dtype}; write "eager", or leave kernel out'
            )
        self.library = library.load()
        self.tensors: list[Tensor] = []  # which the structures point into
        self.config = config
        self.vocabulary: int = config.vocab_size
        self.positions = positions
        self.threads = torch.get_num_threads()
        hidden, self.width = config.hidden_size, head_width(config)
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        if self.heads % self.kv_heads:
            raise BadInput(f"model: {self.kv_heads} KV heads do not divide {self.heads} query heads")
        blocks: Any = base.layers
        with ThreadPoolExecutor(self.threads) as executor:
            layers = (Layer * len(blocks))(*executor.map(self.pack_layer, blocks))
        self.layers = layers
        self.embedding = check_tensor(base.embed_tokens.weight, self.vocabulary, hidden).detach()
        angles = base.rotary_emb(torch.zeros(1), torch.arange(positions)[None])
        head: Any = network.get_output_embeddings()
        self.network = Network(
            layers=len(blocks),
            hidden=hidden,
            heads=self.heads,
            kv_heads=self.kv_heads,
            width=self.width,
            intermediate=config.intermediate_size,
            epsilon=config.rms_norm_eps,
            scale=blocks[0].self_attn.scaling,
            embedding=self.address(self.embedding, self.vocabulary, hidden),
            cosines=self.address(angles[0], 1, positions, self.width),
            sines=self.address(angles[1], 1, positions, self.width),
            norm=self.address(base.norm.weight, hidden),
            layer=ctypes.addressof(layers),
            head=self.pack(hidden, (self.vocabulary, head)),
        )
        self.fed = (self.heads + 2 * self.kv_heads) * self.width
        self.layer_products = (
            3 * hidden * config.intermediate_size
        )  # multiplications of a row, most of those of a layer

    def pack_layer(self, block: Any) -> Layer:
        attention, mlp = block.self_attn, block.mlp
        hidden, intermediate = self.config.hidden_size, self.config.intermediate_size
        queries, keys = self.heads * self.width, self.kv_heads * self.width
        norms = (getattr(attention, name, None) for name in ("q_norm", "k_norm"))
        query_norm, key_norm = (None if norm is None else self.address(norm.weight, self.width) for norm in norms)
        return Layer(
            attention_norm=self.address(block.input_layernorm.weight, hidden),
            query_norm=query_norm,
            key_norm=key_norm,
            mlp_norm=self.address(block.post_attention_layernorm.weight, hidden),
            projections=self.pack(
                hidden, (queries, attention.q_proj), (keys, attention.k_proj), (keys, attention.v_proj)
            ),
            output=self.pack(queries, (hidden, attention.o_proj)),
            gate_up=self.pack(hidden, (intermediate, mlp.gate_proj), (intermediate, mlp.up_proj)),
            down=self.pack(intermediate, (hidden, mlp.down_proj)),
        )

    def pack(self, factors: int, *linears: tuple[int, Any]) -> Linear:
        """Pack weights [columns, factors] of so many columns, one after the other, as [panel, factor, PANEL columns].

        A linear without a bias beside one that has it gets zeros.
        """
        total = sum(columns for columns, _ in linears)
        panels, first = torch.empty(-(-total // PANEL), factors, PANEL), 0
        panels[-1] = 0
        for columns, linear in linears:
            weight = check_tensor(linear.weight, columns, factors).detach().contiguous()
            arguments: tuple[int | Tensor, ...] = (weight, columns, factors, first, panels)
            self.library.pack(*map(as_argument, arguments))
            first += columns
        has_bias = any(linear.bias is not None for _, linear in linears)
        biases = [
            torch.zeros(columns) if linear.bias is None else check_tensor(linear.bias, columns)
            for columns, linear in linears
        ]
        bias = self.address(torch.cat(biases), total) if has_bias else None
        return Linear(panels=self.address(panels, *panels.shape), bias=bias, columns=total, factors=factors)

    def address(self, tensor: Tensor, *shape: int) -> int:
        """Keep the contiguous numbers of a tensor of this shape, and return where they begin."""
        numbers = check_tensor(tensor, *shape).detach().contiguous()
        self.tensors.append(numbers)
        return numbers.data_ptr()

    def forward(self, rows: NativeRows, *, projections: bool = False, hidden: Collection[int] = ()) -> NativeOutput:
        """Feed these tokens: append their keys and values to the slots, and return what is requested.

        projections: whether they are. hidden: layers of which the output is.
        """
        self.check_rows(rows, hidden)
        count, layers = len(rows.tokens), self.network.layers
        answers = np.arange(rows.new - 1, count, rows.new)
        logits = torch.empty(len(answers), self.vocabulary)
        projected = torch.empty(layers if projections else 0, count, self.fed)
        outputs = {layer: torch.empty(count, self.network.hidden) for layer in hidden}
        hidden_addresses = np.array([outputs[layer].data_ptr() if layer in outputs else 0 for layer in range(layers)])
        structure = build_rows(rows)
        structure.answers, structure.n_answers = answers.ctypes.data, len(answers)
        structure.logits, structure.hidden = logits.data_ptr(), hidden_addresses.ctypes.data
        structure.projections = projected.data_ptr() if projections else None
        self.call(self.library.forward, count * layers * self.layer_products, structure)
        return NativeOutput(logits, projected, outputs)

    def call(self, function: Any, products: int, *arguments: int | Tensor | Rows) -> None:
        """Call a function of the kernel by as many threads as so many multiplications are worth."""
        threads = min(self.threads, 1 + products // MIN_THREAD_PRODUCTS)
        function(ctypes.byref(self.network), ctypes.c_int64(threads), *map(as_argument, arguments))

    def check_rows(self, rows: NativeRows, hidden: Collection[int]) -> None:
        """Raise ValueError for a table that leads the kernel outside the numbers of the network.

        Whether the slots of the addresses suffice for the lengths is for whoever has them (`NativeStep.rows`).
        """
        layers, count = self.network.layers, len(rows.tokens)
        shapes = [(count,)] * 2 + [(layers, count, self.kv_heads)] * 3 + [(layers, count)] * 2 + [(count,)]
        for name, table, shape in zip(rows._fields[1:], rows[1:], shapes, strict=True):
            if table.shape != shape or table.dtype != np.int64 or not table.flags.c_contiguous:
                raise ValueError(
                    f"{name}: has shape {table.shape} and type {table.dtype}, but the kernel reads {shape} in int64"
                )
        bounds = {"tokens": self.vocabulary, "positions": self.positions}
        for name, table in (("tokens", rows.tokens), ("positions", rows.positions)):
            if not (table.min() >= 0 and table.max() < bounds[name]):
                raise ValueError(f"{name}: {table.min()} to {table.max()}, of {bounds[name]}")
        if rows.new < 1 or count % rows.new or rows.lengths.min() < 0 or not {*hidden} <= {*range(layers)}:
            raise ValueError(f"{rows.new} tokens of each lane, {count} rows and hidden layers {[*hidden]} of {layers}")

    def draw(self, logits: Tensor, keys: Numbers, temperature: float, rounding: float) -> Tensor:
        """Return [lane], the token with the largest sum of logits [lane, vocabulary] / temperature and noise of keys
        [lane, 2]; `sampling.UNSURE` where another sum is so close that rounding, of at most `rounding`, might decide.
        """
        logits, tokens = logits.float().contiguous(), torch.empty(len(logits), dtype=torch.int64)
        arguments = (*logits.shape, logits, keys, float(temperature), float(rounding), tokens)
        self.library.draw(*map(as_argument, arguments))
        return tokens

    def share(self, rows: NativeRows, stored: NativeRows, sources: Numbers) -> None:
        """Give each row what its equal, sources [row], was computed to: a slot, and its attention from `stored`."""
        self.library.share(
            ctypes.byref(self.network),
            ctypes.byref(build_rows(rows)),
            *(table.ctypes.data_as(ctypes.c_void_p) for table in (sources, stored.weights, stored.raw)),
        )


def as_argument(value: float | Tensor | Numbers | Rows) -> Any:
    """Return an integer, a float64, or the address of a structure or of contiguous numbers."""
    if isinstance(value, Rows):
        return ctypes.byref(value)
    if isinstance(value, int):
        return ctypes.c_int64(value)
    if isinstance(value, float):
        return ctypes.c_double(value)
    return ctypes.c_void_p(value.data_ptr() if isinstance(value, Tensor) else value.ctypes.data)


def build_rows(rows: NativeRows) -> Rows:
    """Return the structure of these tables, which it does not keep alive, without outputs."""
    return Rows(
        count=len(rows.tokens),
        **{name: getattr(rows, name).ctypes.data for name in NativeRows._fields if name != "new"},
    )


def check_tensor(tensor: Tensor, *shape: int) -> Tensor:
    """Return the tensor. Raises BadInput for another shape, dtype or device than the kernel reads."""
    if tensor.shape != shape or (tensor.dtype, tensor.device.type) != (torch.float32, "cpu"):
        raise BadInput(
            f'generation.kernel: "native" needs weights of shape {[*shape]} in float32 on the CPU, as the '
            f"model is configured, but one is {[*tensor.shape]} in {tensor.dtype} on {tensor.device.type}; "
            'write "eager", or leave kernel out'
        )
    return tensor
