"""The DKIM keys of the settings."""

from pathlib import Path

from postroom.errors import SettingInvalid
from postroom.post.dkim import Signer


def load_signers(keys: str | None) -> dict[str, list[Signer]]:
    """Signers by domain from `domain:selector:path`, comma-separated."""
    signers: dict[str, list[Signer]] = {}
    for entry in (part.strip() for part in (keys or "").split(",") if part.strip()):
        domain, _, rest = entry.partition(":")
        selector, _, path = rest.partition(":")
        try:
            signer = Signer.from_pem(domain, selector, Path(path).read_bytes())
        except (OSError, ValueError) as error:
            raise SettingInvalid("POSTROOM_DKIM_KEYS", f"{domain}:{selector}: {_file_trouble(path, error)}") from error
        signers.setdefault(domain.lower(), []).append(signer)
    return signers


def _file_trouble(path: str, error: OSError | ValueError) -> str:
    return f"{path} cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)
