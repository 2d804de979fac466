"""Which kind of container this runs in: it decides what a person can type to get more rights."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum


class Place(str, Enum):
    """Where the caller runs."""

    HOST = "host"
    DOCKER = "docker"
    PODMAN = "podman"
    KUBERNETES = "kubernetes"
    OTHER_CONTAINER = "other-container"


_DOCKER_MARK, _PODMAN_MARK = "/.dockerenv", "/run/.containerenv"
_KUBERNETES_MARK = "/var/run/secrets/kubernetes.io"
MARKS = (_DOCKER_MARK, _PODMAN_MARK, _KUBERNETES_MARK)


def place_of(
    environment: Mapping[str, str], marks: Collection[str], cgroup: str, manager: str
) -> Place:
    """Tell which kind of container this is, if any.

    `marks` are the marker files that exist, `cgroup` is the text of /proc/self/cgroup, `manager`
    that of /run/systemd/container.
    """
    if (
        "KUBERNETES_SERVICE_HOST" in environment
        or _KUBERNETES_MARK in marks
        or "kubepods" in cgroup
    ):
        return Place.KUBERNETES
    if _PODMAN_MARK in marks or manager == "podman" or "libpod" in cgroup:
        return Place.PODMAN
    if _DOCKER_MARK in marks or manager == "docker" or "/docker" in cgroup:
        return Place.DOCKER
    if manager or {"APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"} & environment.keys():
        return Place.OTHER_CONTAINER
    return Place.HOST
