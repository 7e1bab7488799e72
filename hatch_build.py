"""Writes into a wheel and a source archive which commit they were made of; `cudamaster --version` tells it.

A source archive has no git: what it was made of lies in its file COMMIT. Whoever builds without git's folder, as the
Containerfile does, can write that file.
"""

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_GIT = ["git", "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=+dirty"]


class CommitHook(BuildHookInterface):
    """Adds the file to what is built. An editable install asks git each time."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before a build."""
        if version == "editable" or not (commit := self._commit()):
            return
        self._folder = tempfile.TemporaryDirectory()
        file = Path(self._folder.name) / "commit"
        file.write_text(commit + "\n")
        place = "cudamaster/_data/commit" if self.target_name == "wheel" else "COMMIT"
        build_data["force_include"][str(file)] = place

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """After it."""
        if hasattr(self, "_folder"):
            self._folder.cleanup()

    def _commit(self) -> str:
        root = Path(self.root)
        if (root / ".git").exists():
            return subprocess.run(_GIT, cwd=root, capture_output=True, text=True, check=False).stdout.strip()
        file = root / "COMMIT"
        return file.read_text().strip() if file.is_file() else ""
