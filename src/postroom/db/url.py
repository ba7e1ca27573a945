"""The database's URL for other programs: what everybody may see of it, and the password apart."""

from urllib.parse import SplitResult, unquote, unquote_plus, urlsplit


def joined(parts: SplitResult) -> str:
    """As it was split: the standard library leaves `//` out where no host is named, and PostgreSQL needs it."""
    return f"{parts.scheme}://{parts.netloc}{parts.path}" + (f"?{parts.query}" if parts.query else "")


def without_password(url: str) -> tuple[str, str | None]:
    """The address for a command line, which everybody sees, and the password for the environment; None without one.

    It may stand before the host or among the parameters; if in both, our own driver takes the first, and so do we.
    """
    parts = urlsplit(url)
    user, separator, host = parts.netloc.rpartition("@")
    parameters = [parameter for parameter in parts.query.split("&") if parameter]
    secret = [parameter for parameter in parameters if _name(parameter) == "password"]
    open_ones = "&".join(parameter for parameter in parameters if parameter not in secret)
    address = joined(parts._replace(netloc=f"{user.partition(':')[0]}{separator}{host}", query=open_ones))
    if parts.password:
        return address, unquote(parts.password)
    return address, unquote_plus(secret[-1].partition("=")[2]) if secret else None


def _name(parameter: str) -> str:
    return unquote_plus(parameter.partition("=")[0])
