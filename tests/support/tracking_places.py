"""A tiny database of places in MaxMind's format: a binary tree over the bits of IPv4 addresses."""

from ipaddress import IPv4Network
from typing import Any


def encode(value: Any) -> bytes:
    """Encode a value; a number has its width in bytes."""
    if isinstance(value, dict):
        return bytes([7 << 5 | len(value)]) + b"".join(encode(k) + encode(v) for k, v in value.items())
    if isinstance(value, list):
        return bytes([len(value), 11 - 7]) + b"".join(map(encode, value))
    if isinstance(value, str):
        raw = value.encode()
        return bytes([2 << 5 | len(raw)]) + raw if len(raw) < 29 else bytes([2 << 5 | 29, len(raw) - 29]) + raw
    if isinstance(value, tuple):
        number, width = value
        raw = int(number).to_bytes(width, "big")
        return {2: bytes([5 << 5 | 2]), 4: bytes([6 << 5 | 4]), 8: bytes([8, 9 - 7])}[width] + raw
    raise TypeError(value)


def write_places(places: dict[str, Any]) -> bytes:
    """The bytes of the file for networks and their data."""
    nodes: list[list[Any]] = [[None, None]]
    for network, value in places.items():
        parsed = IPv4Network(network)
        bits = f"{int(parsed.network_address):032b}"[: parsed.prefixlen]
        node = 0
        for bit in bits[:-1]:
            if nodes[node][int(bit)] is None:
                nodes.append([None, None])
                nodes[node][int(bit)] = len(nodes) - 1
            node = nodes[node][int(bit)]
        nodes[node][int(bits[-1])] = encode(value)
    return _tree(nodes) + b"\xab\xcd\xefMaxMind.com" + _about(len(nodes))


def _tree(nodes: list[list[Any]]) -> bytes:
    data, tree = b"", b""
    for node in nodes:
        for record in node:
            number = len(nodes) if record is None else record
            if isinstance(record, bytes):
                number = len(nodes) + 16 + len(data)
                data += record
            tree += number.to_bytes(3, "big")
    return tree + bytes(16) + data


def _about(node_count: int) -> bytes:
    return encode(
        {
            "binary_format_major_version": (2, 2),
            "binary_format_minor_version": (0, 2),
            "build_epoch": (1, 8),
            "database_type": "Test-City",
            "description": {"en": "places for tests"},
            "ip_version": (4, 2),
            "languages": ["en"],
            "node_count": (node_count, 4),
            "record_size": (24, 2),
        }
    )
