import pytest
from chat_servers import SECRET


@pytest.fixture
def openai_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key for the servers of this process, which take any."""
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
