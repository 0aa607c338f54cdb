import pytest

from protocol.formats.refusals import BadInput
from protocol.models import load, sources


@pytest.fixture(scope="session")
def smollm_tokenizer():
    try:
        return load.tokenizer("smollm2-135m", sources.cache_home())
    except BadInput as refusal:
        pytest.skip(str(refusal))
