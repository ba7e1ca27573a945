"""The settings of embedded, read from the environment by `postroom.settings`."""

from dataclasses import dataclass
from pathlib import Path

from postroom.runtime.setting import setting


@dataclass(frozen=True, kw_only=True)
class EmbeddedSettings:
    data_dir: Path = setting(Path, Path(".postroom"), "data directory of the embedded server")
