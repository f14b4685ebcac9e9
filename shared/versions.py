"""Capabilities with a version, as the store has them: `thumbnails~1.2.0` asks for 1.2.0 or a later 1.x (R27). Pure.

The rules are those of `store/lua/_version.lua`: the major number decides where an item stands, minor and patch are at least.
"""

from __future__ import annotations

import re

from .model import Capability

_VERSIONED = re.compile(r"([^~]+)~(\d+)\.(\d+)\.(\d+)")
VERSION = re.compile(r"(?:0|[1-9]\d{0,8})(?:\.(?:0|[1-9]\d{0,8})){2}")


def versioned(name: str, version: str) -> Capability:
    """The capability with a version; a pre-release counts as the release that it comes before."""
    return Capability(f"{name}~{version.partition('-')[0]}" if version else name)


def parted(capability: str) -> tuple[Capability, str]:
    """The name, and the version ('' for any)."""
    name, _, version = capability.partition("~")
    return Capability(name), version


def shelf(capability: str) -> Capability:
    """The name under which the store keeps what asks for a capability: with the major number, where a version is asked for."""
    name, version = parted(capability)
    return Capability(f"{name}~{version.partition('.')[0]}" if version else name)


def does(registered: str, asked: str) -> bool:
    """Whether a session that registered the one will do for the other."""
    want, have = _VERSIONED.fullmatch(asked), _VERSIONED.fullmatch(registered)
    if want is None or have is None:
        return registered == asked
    least, most = ([int(number) for number in found.groups()[1:]] for found in (want, have))
    return want[1] == have[1] and least[0] == most[0] and least[1:] <= most[1:]


def spoken(capability: str) -> str:
    """The capability as people are told of it."""
    name, version = parted(capability)
    if not version:
        return name
    return f"{name} {version} or a later {version.partition('.')[0]}.x"
