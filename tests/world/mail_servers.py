"""Debian's Postfix, Exim and OpenSMTPD on loopback, each with a folder and accounts of its own.

    async with POSTFIX(folder, next_hop=port) as server: ...       # server.relay("starttls")

Each takes mail for any address over plain SMTP, STARTTLS and implicit TLS, and hands it to the next hop. They give up
root for accounts that this machine does not have, and have paths of their own compiled in: a mount namespace gives them
both, and leaves the machine as it is.
"""

import os
import shlex
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import trustme
from tests.support.ports import free_port
from tests.support.smtp_channels import authority
from tests.world.packages import fetched, libraries
from tests.world.process import running

from postroom.transports.smtp import SmtpRelay
from postroom.transports.smtp.relay import TlsMode

FIRST_ACCOUNT = 64_001
SIZE_LIMIT = 40_000_000


@dataclass(frozen=True)
class MailServer:
    """A running server."""

    name: str
    port: int  # plain, and STARTTLS
    tls_port: int
    folder: Path

    def relay(self, tls: TlsMode, port: int | None = None) -> SmtpRelay:
        """How Postroom reaches it, perhaps through a proxy on another port."""
        there = port or (self.tls_port if tls == "implicit" else self.port)
        return SmtpRelay("127.0.0.1", there, tls=tls, ca_file=None if tls == "none" else authority().file)

    def log(self) -> str:
        """The last lines of its log."""
        files = [path for path in self.folder.glob("**/*log") if path.is_file()]
        return "\n".join(path.read_text(errors="replace")[-4000:] for path in files)


Opening = Callable[..., AbstractAsyncContextManager[MailServer]]


@dataclass(frozen=True)
class _Place:
    """The folder of one server and what its configuration names."""

    folder: Path
    root: Path  # the unpacked package
    port: int
    tls_port: int
    next_hop: int

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def make(self, name: str, owner: int = 0, mode: int = 0o755, group: int | None = None) -> Path:
        path = self.folder / name
        path.mkdir(parents=True)
        os.chown(path, owner, owner if group is None else group)
        path.chmod(mode)
        return path


@contextmanager
def _place(package: str, next_hop: int, backport_on: str = "") -> Iterator[_Place]:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip(f"NOT TESTED: {package} gives up root for its own account, so it is started by root and unshare")
    root = fetched(package, backport_on=backport_on)
    with TemporaryDirectory(prefix=f"postroom-{package}-") as made:
        folder = Path(made)
        folder.chmod(0o755)
        certificate = authority().authority.issue_cert("127.0.0.1", key_type=trustme.KeyType.RSA)
        key = folder / "server.key"
        certificate.private_key_pem.write_to_path(str(key))
        for pem in certificate.cert_chain_pems:
            pem.write_to_path(str(folder / "server.pem"), append=True)
        key.chmod(0o600)
        (folder / "root").mkdir()
        yield _Place(folder, root, free_port(), free_port(), next_hop)


def _namespaced(
    place: _Place, accounts: Sequence[str], command: Sequence[str | Path], binds: Mapping[Path, str] | None = None
) -> list[str]:
    """The command in a mount namespace with these accounts.

    Other accounts than root's do not reach our cache folder, so the package is mounted at `root`.
    """
    numbers = {name: FIRST_ACCOUNT + index for index, name in enumerate(accounts)}
    users = "".join(f"{name}:x:{number}:{number}::/nonexistent:/bin/false\n" for name, number in numbers.items())
    groups = "".join(f"{name}:x:{number}:\n" for name, number in numbers.items())
    passwd = place.write("passwd", Path("/etc/passwd").read_text() + users)
    group = place.write("group", Path("/etc/group").read_text() + groups)
    mounts = {passwd: "/etc/passwd", group: "/etc/group", place.root: str(place.folder / "root"), **(binds or {})}
    script = " && ".join(f"mount --bind {shlex.quote(str(a))} {shlex.quote(b)}" for a, b in mounts.items())
    return ["unshare", "--mount", "sh", "-c", f'{script} && exec "$@"', "sh", *map(str, command)]


POSTFIX_QUEUES = "incoming active deferred bounce defer flush hold corrupt saved trace private"
POSTFIX_MAIN = """\
compatibility_level = 3.6
queue_directory = {folder}/queue
data_directory = {folder}/data
daemon_directory = {folder}/root/usr/lib/postfix/sbin
command_directory = {folder}/root/usr/sbin
shlib_directory = {folder}/root/usr/lib/postfix
import_environment = MAIL_CONFIG LD_LIBRARY_PATH
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
myhostname = postfix.example.net
mydestination =
local_recipient_maps =
mynetworks = 127.0.0.0/8
smtpd_relay_restrictions = permit_mynetworks, reject
relayhost = [127.0.0.1]:{next_hop}
smtp_tls_security_level = none
smtpd_tls_security_level = may
smtpd_tls_cert_file = {folder}/server.pem
smtpd_tls_key_file = {folder}/server.key
message_size_limit = {size}
mailbox_size_limit = 0
in_flow_delay = 0
smtpd_client_connection_count_limit = 0
maillog_file_prefixes = {folder}
maillog_file = {folder}/log
{more}
"""
POSTFIX_MASTER = """\
127.0.0.1:{port} inet n - n - - smtpd
127.0.0.1:{tls_port} inet n - n - - smtpd -o smtpd_tls_wrappermode=yes
cleanup unix n - n - 0 cleanup
qmgr unix n - n 1 1 qmgr
tlsmgr unix - - n 1000? 1 tlsmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
verify unix - - n - 1 verify
flush unix n - n 1000? 0 flush
proxymap unix - - n - - proxymap
smtp unix - - n - - smtp
relay unix - - n - - smtp
error unix - - n - - error
retry unix - - n - - error
anvil unix - - n - 1 anvil
scache unix - - n - 1 scache
postlog unix-dgram n - n - 1 postlogd
"""


@asynccontextmanager
async def postfix(
    next_hop: int, *, size: int = SIZE_LIMIT, refused: Mapping[str, str] | None = None, more: str = ""
) -> AsyncIterator[MailServer]:
    """Postfix; `refused` are its replies to recipients, `more` lines of main.cf."""
    with _place("postfix", next_hop) as place:
        owner = FIRST_ACCOUNT
        place.make("configuration")
        table = ", ".join(f"{{{recipient} = {reply}}}" for recipient, reply in (refused or {}).items())
        rules = f"smtpd_recipient_restrictions = check_recipient_access inline:{{{table}}}, permit" if table else ""
        names = {"folder": place.folder, "size": size, "more": f"{rules}\n{more}", "next_hop": next_hop}
        place.write("configuration/main.cf", POSTFIX_MAIN.format(**names))
        place.write("configuration/master.cf", POSTFIX_MASTER.format(port=place.port, tls_port=place.tls_port))
        place.make("data", owner, 0o700)
        place.make("queue")
        place.make("queue/pid")
        for name in POSTFIX_QUEUES.split():
            place.make(f"queue/{name}", owner, 0o700)
        for name, mode in {"public": 0o710, "maildrop": 0o730}.items():
            place.make(f"queue/{name}", owner, mode)
        master = place.folder / "root/usr/lib/postfix/sbin/master"
        command = _namespaced(place, ["postfix", "postdrop"], [master, "-c", place.folder / "configuration", "-s"])
        environment = {**libraries(place.root), "MAIL_CONFIG": str(place.folder / "configuration")}
        async with _listening("postfix", place, command, environment) as server:
            yield server


EXIM = """\
primary_hostname = exim.example.net
exim_path = {folder}/root/usr/sbin/exim4
exim_user = Debian-exim
exim_group = Debian-exim
never_users =
spool_directory = {folder}/spool
log_file_path = {folder}/spool/%slog
pid_file_path = {folder}/spool/pid
daemon_smtp_ports = {port} : {tls_port}
tls_on_connect_ports = {tls_port}
local_interfaces = 127.0.0.1
tls_advertise_hosts = *
tls_certificate = {folder}/server.pem
tls_privatekey = {folder}/exim.key
smtputf8_advertise_hosts = *
dsn_advertise_hosts = *
accept_8bitmime = yes
message_size_limit = {size}
smtp_accept_max = 100
smtp_accept_queue_per_connection = 0
acl_smtp_rcpt = acl_rcpt
acl_smtp_data = acl_data
{more}

begin acl
acl_rcpt:
{rules}
  accept
acl_data:
  accept

begin routers
next:
  driver = manualroute
  route_list = * 127.0.0.1::{next_hop}
  self = send
  transport = smtp

begin transports
smtp:
  driver = smtp
  hosts_avoid_tls = *
  allow_localhost

begin retry
* * F,1h,1s
"""


@asynccontextmanager
async def exim(
    next_hop: int, *, size: int = SIZE_LIMIT, refused: Mapping[str, str] | None = None, more: str = ""
) -> AsyncIterator[MailServer]:
    """Exim; `refused` are its replies to recipients, `more` main options. It has no 421 for a recipient."""
    with _place("exim4-daemon-light", next_hop) as place:
        owner = FIRST_ACCOUNT
        place.make("spool", owner, 0o750)
        shutil.copy(place.folder / "server.key", place.folder / "exim.key")
        os.chown(place.folder / "exim.key", owner, owner)
        rules = "".join(
            f"  {'deny' if reply.startswith('5') else 'defer'}\n    recipients = {recipient}\n    message = {reply}\n"
            for recipient, reply in (refused or {}).items()
        )
        names = {"folder": place.folder, "size": size, "more": more, "rules": rules, "next_hop": next_hop}
        text = EXIM.format(port=place.port, tls_port=place.tls_port, **names)
        configuration = place.write("exim.conf", text)
        configuration.chmod(0o644)
        program = place.folder / "root/usr/sbin/exim4"
        command = _namespaced(place, ["Debian-exim"], [program, "-C", configuration, "-bdf", "-q1s"])
        async with _listening("exim", place, command, libraries(place.root)) as server:
            yield server


OPENSMTPD = """\
pki server cert "{folder}/server.pem"
pki server key "{folder}/server.key"
smtp max-message-size {size}
{more}
listen on lo port {port} tls pki server hostname opensmtpd.example.net {filter}
listen on lo port {tls_port} smtps pki server hostname opensmtpd.example.net {filter}
action "next" relay host "smtp+notls://127.0.0.1:{next_hop}"
match from any for any action "next"
"""


@asynccontextmanager
async def opensmtpd(
    next_hop: int, *, size: int = SIZE_LIMIT, refused: Mapping[str, str] | None = None, more: str = ""
) -> AsyncIterator[MailServer]:
    """OpenSMTPD; `refused` are its replies to recipients. Its spool is compiled in, so /var and /run are its own."""
    # The package of Debian 12 fails at every TLS handshake: its version does not work with OpenSSL 3.
    with _place("opensmtpd", next_hop, backport_on="bookworm") as place:
        queue = FIRST_ACCOUNT + 1
        for name in ("var/lib/opensmtpd/empty", "run", "var/tmp", "var/mail"):
            place.make(name)
        (place.folder / "var/run").symlink_to("/run")
        place.make("var/spool/smtpd", 0, 0o711)
        for name in ("queue", "corrupt", "incoming", "purge", "temporary"):
            place.make(f"var/spool/smtpd/{name}", queue, 0o700, group=0)
        place.make("var/spool/smtpd/offline", 0, 0o770, group=queue)
        filters = "".join(
            f'filter "f{n}" phase rcpt-to match rcpt-to {{ "{recipient}" }} '
            f'{"disconnect" if reply.startswith("421") else "reject"} "{reply}"\n'
            for n, (recipient, reply) in enumerate((refused or {}).items())
        )
        chain = ", ".join(f'"f{n}"' for n in range(len(refused or {})))
        chosen = f"filter {{ {chain} }}" if chain else ""
        names = {
            "folder": place.folder,
            "size": size,
            "more": f"{filters}{more}",
            "filter": chosen,
            "next_hop": next_hop,
        }
        configuration = place.write("smtpd.conf", OPENSMTPD.format(port=place.port, tls_port=place.tls_port, **names))
        binds = {place.folder / "var": "/var", place.folder / "run": "/run"}
        program = place.folder / "root/usr/sbin/smtpd"
        command = _namespaced(place, ["opensmtpd", "opensmtpq"], [program, "-d", "-f", configuration], binds)
        async with _listening("opensmtpd", place, command, libraries(place.root)) as server:
            yield server


@asynccontextmanager
async def _listening(
    name: str, place: _Place, command: Sequence[str], environment: Mapping[str, str]
) -> AsyncIterator[MailServer]:
    async with running(command, [place.port, place.tls_port], environment=environment):
        yield MailServer(name, place.port, place.tls_port, place.folder)


MAIL_SERVERS: dict[str, Opening] = {"postfix": postfix, "exim": exim, "opensmtpd": opensmtpd}
