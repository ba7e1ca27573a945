"""Invented people. Their addresses are at domains that RFC 2606 and RFC 6761 reserve, so no mail can reach anybody."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product

SHARES = {
    "example.org": 8,
    "example.com": 5,
    "harbour.test": 3,
    "mail.example.com": 2,
    "meadow.test": 1,
    "quarry.test": 1,
}
"""Domains of the addresses; of 20 people, this many are at each."""
ZONES = ("Europe/London", "America/New_York", "Asia/Tokyo", "Europe/Berlin", "Australia/Sydney", "America/Sao_Paulo")
BOUNCES_EVERY = 29  # one recipient in 29 has no mailbox: the capture transport refuses `bounce+…` with 550 5.1.1

_FIRST = """
    Ada Alan Amara Anouk Arjun Astrid Bea Bram Carmen Chiara Chidi Dara Dmitri Edith Elif Emmy Farid Femke Grace Hana
    Hugo Ines Ivan Jana Joao Kaya Kenji Lars Leila Lena Lise Luca Maja Malik Marta Mei Mira Nadia Nikos Noor Olga Oscar
    Priya Rosa Sami Sofia Tariq Tove Uma Yara
"""
_LAST = """
    Abara Almeida Andersen Baker Banerjee Berg Castillo Clarke Costa Dogan Duarte Eriksen Fischer Fontaine Garcia Haddad
    Hansen Hopper Ito Jansen Kaplan Keller Kovacs Lange Larsen Lovelace Maes Marino Meitner Mori Nilsson Noether Novak
    Okafor Oliveira Patel Petrov Quist Rossi Sato Silva Singh Tanaka Turing Varga Visser Weber Yilmaz Zhang Zielinski
"""


@dataclass(frozen=True, slots=True)
class Invented:
    """A person of the story."""

    number: int
    first_name: str
    last_name: str
    time_zone: str
    domain: str

    @property
    def name(self) -> str:
        return f"{self.first_name} {self.last_name}"

    def address(self, run: str) -> str:
        """The address in one run; a run's own part keeps suppressions of earlier runs from applying."""
        local = f"{self.first_name}.{self.last_name}.{run}".lower()
        return f"bounce+{local}@{self.domain}" if self.number % BOUNCES_EVERY == 0 else f"{local}@{self.domain}"


def invent(count: int) -> list[Invented]:
    """The first people of an endless row, all with different names up to 2,500."""
    return list(islice(_everybody(), count))


def _everybody() -> Iterator[Invented]:
    firsts, lasts = _FIRST.split(), _LAST.split()
    domains = [domain for domain, share in SHARES.items() for _person in range(share)]
    for number, (shift, start) in enumerate(product(range(len(lasts)), range(len(firsts))), start=1):
        last = lasts[(start + shift) % len(lasts)]
        yield Invented(number, firsts[start], last, ZONES[number % len(ZONES)], domains[number * 7 % len(domains)])
