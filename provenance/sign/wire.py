"""The encoding of SSH (RFC 4251, 5): lengths before bytes, integers big-endian, nothing lenient."""

from __future__ import annotations

from ...errors import Unusable


def string(data: bytes) -> bytes:
    """Encode bytes with their length."""
    return len(data).to_bytes(4, "big") + data


def mpint(value: int) -> bytes:
    """Encode an integer that is not negative; a zero byte keeps the top bit clear."""
    return string(value.to_bytes(value.bit_length() // 8 + 1, "big") if value else b"")


class WireReader:
    """Read values one after the other. Each method raises Unusable where the bytes do not fit."""

    def __init__(self, data: bytes, label: str) -> None:
        self._data = data
        self._label = label
        self._at = 0

    def take(self, count: int) -> bytes:
        """Read so many bytes."""
        taken = self._data[self._at : self._at + count]
        if len(taken) != count:
            raise self.refused("ends too early")
        self._at += count
        return taken

    def byte(self) -> int:
        """Read one byte."""
        return self.take(1)[0]

    def uint32(self) -> int:
        """Read an unsigned integer of four bytes."""
        return int.from_bytes(self.take(4), "big")

    def string(self) -> bytes:
        """Read bytes with their length before them."""
        return self.take(self.uint32())

    def text(self) -> str:
        """Read a string of printable ASCII without spaces, as names of algorithms are."""
        data = self.string()
        if not data.isascii() or any(byte <= 0x20 or byte == 0x7F for byte in data):
            raise self.refused("holds a name that is none")
        return data.decode("ascii")

    def mpint(self) -> int:
        """Read an integer that is not negative, in its shortest form."""
        data = self.string()
        value = int.from_bytes(data, "big")
        if string(data) != mpint(value):
            raise self.refused("holds a number that is negative or not in its shortest form")
        return value

    def end(self) -> None:
        """Refuse bytes that follow."""
        if self._at != len(self._data):
            raise self.refused("holds bytes after its end")

    def refused(self, fault: str) -> Unusable:
        """Make the error for a fault that the caller found."""
        return Unusable(f"{self._label} {fault}.", remedy="Get the file from its source again.")
