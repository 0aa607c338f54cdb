"""The optional dependencies of this distribution: which extra installs a missing package."""

from collections.abc import Mapping
from types import MappingProxyType

# Imported packages by the extra of pyproject.toml that installs them; "" is every installation.
EXTRAS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "": ("numpy", "scipy", "pandas", "statsmodels", "matplotlib", "PIL", "jinja2", "shtab"),
        "run": (
            *("torch", "transformers", "safetensors", "gguf", "accelerate", "rich", "psutil", "math_verify"),
            *("tokenizers", "huggingface_hub", "sympy", "latex2sympy2_extended"),  # dependencies of these
        ),
        "anchor": ("opentimestamps", "bitcoin"),
        "seal": ("pyrage",),
        "tasks": ("lm_eval", "jieba", "fuzzywuzzy", "rouge", "wonderwords", "nltk"),
        "compare": ("zstandard",),
        "slurm": ("submitit", "cloudpickle"),
        "ray": ("ray",),
        "parity": ("kvpress",),
    }
)
PROJECT_PACKAGES = ("protocol", "policies", "splits", "analysis", "figures", "kv_prereg")


def install_hint(module: str | None) -> str:
    """Return how to install a missing module: "needs torch, which is not installed here; ..."."""
    package = (module or "").partition(".")[0]
    if package in PROJECT_PACKAGES:
        return f"{module}: is missing from this installation; correct the name where it is listed, or install again"
    extra = next((extra for extra, packages in EXTRAS.items() if package in packages), None)
    if extra is None:
        fix = f"no extra of kv-prereg installs it; run: pip install {package}"
    else:
        target = f"'.[{extra}]'" if extra else "."
        fix = f"run, in the clone of kv-prereg: pip install {target}"
    return f"needs {package}, which is not installed here; {fix}"
