import sys
from collections.abc import Iterator

import pytest
from chat_servers import SECRET


@pytest.fixture
def openai_key(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A key for the servers of this process, which take any.

    LiteLLM keeps what it made for an address for ten minutes, a proxy of the environment included, and a server of a
    later test may get the same port: so nothing is kept.
    """
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    yield
    if "litellm" in sys.modules:
        sys.modules["litellm"].in_memory_llm_clients_cache.flush_cache()
