"""What several test folders share, made once for all workers: a tiny random Llama with a tokenizer of its
own, saved as a user would save one, and a study of it, registered, probed and confirmed.
"""

import fcntl
import functools
import gc
import hashlib
import json
import multiprocessing.forkserver
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import finished_study
import pytest
import studies

import splits
from protocol.formats import progress_display
from protocol.sandbox import sandbox
from splits.manifest import FOLDER

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a test that reaches for a hub is wrong
os.environ.setdefault("OMP_NUM_THREADS", "1")  # two workers and their children share the cores

STUDY = "registrations/study"
PIECE = r" ?[A-Za-z]+|[0-9]|[^A-Za-z0-9]"
CHAT = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def texts():
    """What the tokenizer learns: development problems, so that they fit the lengths they are named after."""
    from protocol import tasks

    for name in ("needle-256", "association-256"):
        for item in splits.load(name).dev:
            problem = tasks.get(name).build(item, lambda text: len(text.split()))
            yield f"user\n{problem.context}\n{problem.question}\nassistant\n{problem.prefix}"


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """A file that both workers import at once is compiled twice, and all that it imports."""
    if not isinstance(collector, pytest.Module):
        return (yield)
    with collector.path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        return (yield)


def pytest_collection_finish() -> None:
    """Ten thousand collected tests are no garbage; an eighth of the time went on looking at them again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def pytest_sessionfinish() -> None:
    """Ends the process that others are forked from, so that its time is counted."""
    multiprocessing.forkserver._forkserver._stop()


@pytest.fixture(scope="session", autouse=True)
def nothing_shown() -> Iterator[None]:
    """What a command says of itself depends on how fast the machine is: tests look at it where they ask."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress_display, "show_phases", nullcontext)
        yield


@pytest.fixture(scope="session", autouse=True)
def repository_as_it_stands() -> Iterator[None]:
    """The sources of this repository, its splits and its shipped registrations stay as they are while tests
    run: each process reads them once. Reading them again was half of an audit of a study that is made here.
    Whatever lies elsewhere is read as ever. What a generated problem asks follows from its task and its id: a study
    of such problems is compared with those of every shipped one, each time that it is locked, opened and audited.
    """
    from protocol.evidence.registration import REGISTRATION_FOLDERS, Registration
    from protocol.lock import bundle, closure
    from protocol.preflight import previously_opened, sibling_registrations
    from protocol.tasks.chain import Chain
    from protocol.tasks.programs import Programs

    shipped = functools.cache(Registration)
    own = functools.cache(closure.sources)
    manifest = functools.cache(splits.load)
    shelves = {studies.ROOT / name for name in REGISTRATION_FOLDERS}

    def registration(folder: Path) -> Registration:
        return (shipped if folder.parent in shelves else Registration)(folder)

    @functools.cache
    def once_claimed(folder: Path) -> bool:
        return ask_claimed(shipped(folder))

    def claimed(study: Registration) -> bool:
        return once_claimed(study.folder) if study.folder.parent in shelves else ask_claimed(study)

    @functools.cache
    def once_committed(folder: Path, commit: str) -> bool:
        return ask_git(shipped(folder), {"commit": commit})

    def committed(study: Registration, git: Mapping[str, Any] | None) -> bool:
        if git is None or study.folder.parent not in shelves:
            return ask_git(study, git)
        return once_committed(study.folder, git["commit"])

    def sources(root: Path) -> dict[str, str]:
        return dict(own(root)) if root == studies.ROOT else read_sources(root)

    def load(name: str, folder: Path = FOLDER) -> splits.Manifest:
        return manifest(name) if folder == FOLDER else read_manifest(name, folder)

    unpacked: dict[bytes, dict[str, bytes]] = {}

    def members(archive: Path) -> dict[str, bytes]:
        """An audit unpacks the bundle three times, a third of its time; equal bytes have equal members."""
        if not archive.exists():
            return read_members(archive)
        key = hashlib.sha256(read_zip(archive)).digest()
        if key not in unpacked:
            if len(unpacked) == 4:
                unpacked.clear()
            unpacked[key] = read_members(archive)
        return dict(unpacked[key])

    ask_claimed = previously_opened._is_claimed
    read_members, read_zip = bundle._read_own, bundle._read_zip
    read_sources, read_manifest, ask_git = closure.sources, splits.load, sibling_registrations._has_committed_claim
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(previously_opened, "Registration", registration)
        patch.setattr(previously_opened, "_is_claimed", claimed)
        patch.setattr(sibling_registrations, "_has_committed_claim", committed)
        patch.setattr(closure, "sources", sources)
        patch.setattr(splits, "load", load)
        patch.setattr(bundle, "_read_own", members)
        for task in (Chain, Programs):
            patch.setattr(task, "content_digest", functools.cache(task.content_digest))
        yield


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Callable[[str, Callable[[Path], object]], Path]:
    """made(name, make): the folder that the first worker that asks has `make` fill; nobody changes it."""
    base = tmp_path_factory.getbasetemp()
    root = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def once(name: str, make: Callable[[Path], object]) -> Path:
        folder, unfinished = root / name, root / f"{name}.unfinished"
        with (root / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                shutil.rmtree(unfinished, ignore_errors=True)  # of a worker whose attempt failed
                make(unfinished)
                unfinished.rename(folder)
        return folder

    return once


@pytest.fixture(scope="session")
def tiny_model(made) -> Path:
    """A folder with a 2-layer random Llama (4 query heads, 2 KV heads of 8) and a word-level tokenizer."""
    return made("tiny-model", save_tiny_model)


@pytest.fixture(scope="session")
def wide_model(made) -> Path:
    """The tiny model with heads of 32, which formats of whole blocks can pack."""
    return made("wide-model", functools.partial(save_tiny_model, head_dim=32))


@pytest.fixture(scope="session")
def thinking_model(made, tiny_model) -> Path:
    """The tiny model, of whose words every eighth is a mark."""

    def rename(folder: Path) -> None:
        shutil.copytree(tiny_model, folder, dirs_exist_ok=True)
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        words = tokenizer["model"]["vocab"]
        tokenizer["model"]["vocab"] = {
            word if number % 8 else f"\\boxed{number}": number for word, number in words.items() if number
        } | {"<unk>": 0}
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))

    return made("thinking-model", rename)


@pytest.fixture(scope="session")
def broken_model(made, tiny_model) -> Path:
    """The tiny model with an infinite weight: no lane of it gives an answer."""

    def spoil(folder: Path) -> None:
        from safetensors.torch import load_file, save_file

        shutil.copytree(tiny_model, folder, dirs_exist_ok=True)
        tensors = load_file(folder / "model.safetensors")
        tensors["model.layers.1.mlp.down_proj.weight"][0, 0] = float("inf")
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})

    return made("broken-model", spoil)


@pytest.fixture(scope="session")
def registered(made, tiny_model) -> Iterator[Path]:
    """The study of `studies.PROTOCOL`, locked and no more. Copy it before use; so too the next two."""

    def register(shelves: Path) -> None:
        carried_out("register", studies.write(shelves / STUDY, tiny_model))

    yield from unchanged(made("registered", register) / STUDY)


@pytest.fixture(scope="session")
def probed(made, registered) -> Iterator[Path]:
    yield from unchanged(made("probed", after(registered, "probe")) / STUDY)


@pytest.fixture(scope="session")
def confirmed(made, probed) -> Iterator[Path]:
    yield from unchanged(made("confirmed", after(probed, "confirm")) / STUDY)


@pytest.fixture(scope="session")
def sweep_registered(made, tiny_model) -> Iterator[Path]:
    """The same with a sweep of two candidates, and the next two."""

    def register(shelves: Path) -> None:
        carried_out("register", studies.write(shelves / STUDY, tiny_model, studies.SWEEP))

    yield from unchanged(made("sweep-registered", register) / STUDY)


@pytest.fixture(scope="session")
def sweep_probed(made, sweep_registered) -> Iterator[Path]:
    yield from unchanged(made("sweep-probed", after(sweep_registered, "probe")) / STUDY)


@pytest.fixture(scope="session")
def swept(made, sweep_probed) -> Iterator[Path]:
    yield from unchanged(made("swept", after(sweep_probed, "confirm")) / STUDY)


@pytest.fixture(scope="session")
def finished_toy(made) -> Iterator[Path]:
    """The study of `finished_study`, to its verdict; copy it before use."""
    yield from unchanged(made("toy", lambda shelf: finish_toy(shelf / "study")) / "study")


def finish_toy(folder: Path) -> None:
    folder.parent.mkdir()
    finished_study.finished(folder)


@pytest.fixture(scope="session")
def sources(tmp_path_factory) -> Path:
    """A copy of the source tree, byte for byte what is locked; each test leaves it so."""
    return studies.copy_tree(tmp_path_factory.mktemp("tree"))


@pytest.fixture
def edited() -> Iterator[Callable[[Path, Callable[[bytes], bytes]], None]]:
    """Edit a file for one test: edited(path, change)."""
    undo: list[tuple[Path, bytes]] = []

    def edit(path: Path, change: Callable[[bytes], bytes]) -> None:
        undo.append((path, path.read_bytes()))
        path.write_bytes(change(path.read_bytes()))

    yield edit
    for path, data in reversed(undo):
        path.write_bytes(data)


@pytest.fixture(params=sandbox.MECHANISMS)
def way(request) -> sandbox.Mechanism:
    """Each way to contain a program that works here."""
    if not sandbox.is_usable(request.param):
        pytest.skip(f"{request.param} does not work here")
    return request.param


def after(study: Path, act: str) -> Callable[[Path], None]:
    return lambda to: carried_out(act, shutil.copytree(study, to / STUDY))


def unchanged(folder: Path) -> Iterator[Path]:
    """The folder, which is refused at the end when a test wrote to what all of them share."""
    before = studies.snapshot(folder)
    yield folder
    assert studies.snapshot(folder) == before, f"{folder}: a test changed this, and not a copy of it"


def carried_out(act: str, folder: Path) -> None:
    """What the command said lies above the shelf."""
    done = studies.ran((0, 10, 11), act, folder, drawn=True)  # a model that knows nothing confirms nothing
    (folder.parent.parent / f"{act}.txt").write_text(done.stdout)


def save_tiny_model(folder: Path, head_dim: int | None = None) -> None:
    import torch
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    pieces = sorted({piece for text in texts() for piece in re.findall(PIECE, text)} | set("0123456789. \n"))
    vocabulary = {piece: number for number, piece in enumerate(["<unk>", "<|im_start|>", "<|im_end|>", *pieces])}
    raw = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Split(Regex(PIECE), "isolated")
    raw.decoder = decoders.Fuse()
    raw.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, unk_token="<unk>", eos_token="<|im_end|>")
    tokenizer.chat_template = CHAT
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=head_dim,
        max_position_embeddings=2048,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    torch.manual_seed(0)
    network = LlamaForCausalLM(config)
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.fixture(scope="module")
def forked_workers():
    """The processes of a pool are forked from one that has torch: spawned ones take seconds to import it."""

    get_context = multiprocessing.get_context

    def context(how: str | None = None):
        return studies.FORKING if how == "spawn" else get_context(how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multiprocessing, "get_context", context)
        yield


@pytest.fixture(scope="session")
def contained():
    """A sandbox for programs works on this machine."""
    from protocol.formats.findings import CannotTell
    from protocol.sandbox import sandbox

    try:
        sandbox.find_mechanism()
    except CannotTell as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def same_environment():
    """What is installed stays as it is while these tests run; hashing all of it takes seconds each time."""
    from protocol.lock import installed_files

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(installed_files, "environment", studies.surroundings)
        yield
