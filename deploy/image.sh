#!/usr/bin/env bash
# Builds the image and tries it against a PostgreSQL of this machine: tests/docs/test_image.py.
#   deploy/image.sh             on the base image of deploy/Containerfile; BASE=… for another one, such as one by digest
#   deploy/image.sh --debian    on a base that debootstrap makes, for a machine without a registry, as root; needs
#                               buildah, podman, runc and debootstrap. Works in a container that may not raise limits
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
image=localhost/postroom

if [[ ${1:-} != --debian ]]; then
    podman build --format docker ${BASE:+--build-arg "BASE=$BASE"} -f deploy/Containerfile -t "$image" .
    TEST_IMAGE=$image exec ./dev test --quick tests/docs/test_image.py
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
release=${DEBIAN:-bookworm}
packages=python3,python3-venv,python-is-python3,ca-certificates
debootstrap --variant=minbase --include="$packages" "$release" "$folder/base"
# The certificates that this machine trusts, such as that of a proxy between it and PyPI.
cp /etc/ssl/certs/ca-certificates.crt "$folder/base/etc/ssl/certs/ca-certificates.crt"
printf '[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n' >"$folder/base/etc/pip.conf"
tar -C "$folder/base" -c . | podman --storage-driver vfs import - localhost/base
buildah --storage-driver vfs bud --isolation=chroot --network=host --format docker \
    --build-arg BASE=localhost/base -f deploy/Containerfile -t "$image" .
printf '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n' >"$folder/containers.conf"
export CONTAINERS_CONF="$folder/containers.conf" TEST_IMAGE=$image
export TEST_ENGINE='podman --storage-driver vfs --runtime runc --cgroup-manager cgroupfs --events-backend file'
./dev test --quick tests/docs/test_image.py
