import pytest
import torch
from tiny_networks import DEVICES

from protocol.engine import sampling


@pytest.fixture(autouse=True)
def one_thread():
    """Tiny tensors gain nothing from two threads and wait long for the second on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


@pytest.fixture
def logits_of(monkeypatch):
    """Logits [vocabulary] by (problem, seed, step), of every token that is chosen from now on."""
    made, choose = {}, sampling.choose

    def note(logits, draws, *how):
        made.update(zip(draws, logits.clone(), strict=True))
        return choose(logits, draws, *how)

    monkeypatch.setattr(sampling, "choose", note)
    return made
