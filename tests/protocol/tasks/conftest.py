import pytest

from protocol.formats import files
from protocol.formats.refusals import BadInput
from protocol.models import load


@pytest.fixture(scope="session")
def smollm_tokenizer():
    try:
        return load.tokenizer("smollm2-135m", files.cache_home())
    except BadInput as refusal:
        pytest.skip(str(refusal))
