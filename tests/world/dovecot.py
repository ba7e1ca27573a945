"""Debian's Dovecot on loopback with one mailbox, over plain IMAP and over TLS."""

import os
import pwd
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import pytest
from tests.support.ports import free_port
from tests.support.smtp_channels import authority
from tests.world.packages import program
from tests.world.process import running

USER, PASSWORD = "bounces", "open/sesame"
CONFIGURATION = """\
base_dir = {folder}/run
log_path = {folder}/log
protocols = imap
listen = 127.0.0.1
mail_location = maildir:{folder}/mail
auth_mechanisms = plain login
disable_plaintext_auth = no
ssl = yes
ssl_cert = <{folder}/server.pem
ssl_key = <{folder}/server.key
passdb {{
  driver = static
  args = password={password}
}}
userdb {{
  driver = static
  args = uid={account} gid={account} home={folder}/home
}}
first_valid_uid = 1
service anvil {{
  chroot =
}}
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = {tls_port}
    ssl = yes
  }}
}}
namespace inbox {{
  inbox = yes
  separator = /
  mailbox Done {{
    auto = create
  }}
}}
"""


@dataclass(frozen=True)
class Mailbox:
    """The mailbox of the running server."""

    folder: Path
    account: int
    port: int
    tls_port: int

    def put(self, name: str, message: bytes) -> None:
        """Deliver a message, as a server on this machine does."""
        path = self.folder / "mail" / "new" / name
        path.write_bytes(message)
        os.chown(path, self.account, self.account)

    def url(self, *, tls: bool) -> str:
        password = quote(PASSWORD, safe="")
        scheme, port = ("imaps", self.tls_port) if tls else ("imap", self.port)
        return f"{scheme}://{USER}:{password}@127.0.0.1:{port}/INBOX?move=Done"

    def moved(self) -> int:
        """How many messages are in the folder Done."""
        return sum(path.is_file() for part in ("new", "cur") for path in (self.folder / "mail/.Done" / part).glob("*"))


@asynccontextmanager
async def dovecot() -> AsyncIterator[Mailbox]:
    """Dovecot with an empty mailbox."""
    server = program("dovecot", "dovecot-imapd")
    accounts = {entry.pw_name: entry.pw_uid for entry in pwd.getpwall()}
    if os.geteuid() != 0 or "dovecot" not in accounts:
        pytest.skip("NOT TESTED: Dovecot is started by root and needs the account that its package makes")
    with TemporaryDirectory(prefix="postroom-dovecot-") as made:
        box = Mailbox(Path(made), accounts["mail"], free_port(), free_port())
        box.folder.chmod(0o755)
        for name in ("mail", "mail/new", "mail/cur", "mail/tmp", "home"):
            (box.folder / name).mkdir()
            os.chown(box.folder / name, box.account, box.account)
        certificate = authority().authority.issue_cert("127.0.0.1")
        certificate.private_key_pem.write_to_path(str(box.folder / "server.key"))
        certificate.cert_chain_pems[0].write_to_path(str(box.folder / "server.pem"))
        names = {"folder": box.folder, "password": PASSWORD, "account": box.account}
        configuration = box.folder / "dovecot.conf"
        configuration.write_text(CONFIGURATION.format(port=box.port, tls_port=box.tls_port, **names))
        async with running([server, "-F", "-c", configuration], [box.port, box.tls_port]):
            yield box
