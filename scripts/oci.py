#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a container image in OCI layout from a Debian package, without a daemon.

The first layer has the Debian packages that this one depends on or recommends, as far as they are libraries; the second has
this package's files. Same packages, same bytes: names are sorted, times are SOURCE_DATE_EPOCH, owners are numbers.
Source: OCI image specification 1.1 (layout, manifest, configuration).
"""
import argparse
import gzip
import hashlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import time

# What the program is linked with, and loads when it is installed.
LIBRARIES = ["libc6", "libgcc-s1", "libhyperscan5", "libpcap0.8", "libmagic1"]
# Not needed by libraries in a container.
LEFT_OUT = {"debconf", "debconf-2.0", "cdebconf", "dpkg", "tar", "perl-base"}
# The folders that Debian's base-files makes links of.
MERGED = ("bin", "sbin", "lib", "lib64")
USER = 990


def closure():
    """The libraries with all that they depend on, as Debian's archive names them here."""
    found, waiting = set(), list(LIBRARIES)
    while waiting:
        name = waiting.pop()
        if name in found or name in LEFT_OUT:
            continue
        found.add(name)
        text = subprocess.check_output(
            ["apt-cache", "depends", "--no-recommends", "--no-suggests", "--no-conflicts", "--no-breaks",
             "--no-replaces", "--no-enhances", name], text=True)
        for line in text.splitlines():
            kind, _, what = line.strip().partition(": ")
            if kind in ("Depends", "PreDepends") and not what.startswith("<"):
                waiting.append(what)
    return sorted(found)


def unpack(package, folder):
    subprocess.run(["dpkg-deb", "-x", package, folder], check=True)


def merged(path):
    """The path in a file system whose /bin, /lib and so on are links."""
    first, _, rest = path.partition("/")
    return f"usr/{first}/{rest}" if first in MERGED and rest else path


def members(folder, epoch):
    """Files of a folder as members of an archive, sorted."""
    found = {}
    for path in sorted(pathlib.Path(folder).rglob("*")):
        name = merged(str(path.relative_to(folder)))
        if name in MERGED or name.startswith(("usr/share/doc/lib", "usr/share/doc/gcc", "usr/share/man/", "usr/share/lintian")):
            continue
        member = tarfile.TarInfo(name)
        status = path.lstat()
        member.mtime, member.mode = epoch, status.st_mode & 0o7777
        if path.is_symlink():
            member.type, member.linkname = tarfile.SYMTYPE, os.readlink(path)
        elif path.is_dir():
            member.type = tarfile.DIRTYPE
        elif path.is_file():
            member.size = status.st_size
        else:
            continue
        found[name] = (member, path if member.isreg() else None)
    return found


def links(epoch):
    for name in MERGED:
        member = tarfile.TarInfo(name)
        member.type, member.linkname, member.mtime, member.mode = tarfile.SYMTYPE, f"usr/{name}", epoch, 0o777
        yield member


def folder_of_user(name, epoch):
    member = tarfile.TarInfo(name)
    member.type, member.mode, member.mtime, member.uid, member.gid = tarfile.DIRTYPE, 0o750, epoch, USER, USER
    return member


def text_file(name, text, epoch):
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = len(text), 0o644, epoch
    return member, io.BytesIO(text.encode())


class Layout:
    """An image in OCI layout."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "blobs/sha256").mkdir(parents=True)

    def blob(self, kind, data):
        digest = hashlib.sha256(data).hexdigest()
        (self.folder / "blobs/sha256" / digest).write_bytes(data)
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}

    def json(self, kind, value):
        return self.blob(kind, json.dumps(value, sort_keys=True).encode())

    def layer(self, fill):
        """A layer, and the digest of its archive before compression."""
        plain = io.BytesIO()
        with tarfile.open(fileobj=plain, mode="w", format=tarfile.GNU_FORMAT) as archive:
            fill(archive)
        data = plain.getvalue()
        packed = gzip.compress(data, 9, mtime=0)
        descriptor = self.blob("application/vnd.oci.image.layer.v1.tar+gzip", packed)
        return descriptor, "sha256:" + hashlib.sha256(data).hexdigest()


def add_all(archive, found):
    for name in sorted(found):
        member, path = found[name]
        if path is None:
            archive.addfile(member)
        else:
            with path.open("rb") as file:
                archive.addfile(member, file)


def write(package, out, epoch, work):
    base, own = work / "base", work / "own"
    names = closure()
    fetched = work / "fetched"
    fetched.mkdir()
    # The client that fetches has no rights of its own to the folder.
    fetched.chmod(0o777)
    subprocess.run(["apt-get", "download", "-qq", *names], cwd=fetched, check=True)
    archives = sorted(fetched.glob("*.deb"))
    if len(archives) < len(LIBRARIES):
        sys.exit(f"oci: {len(archives)} packages were fetched of {len(names)}")
    for archive in archives:
        unpack(archive, base)
    unpack(package, own)
    layout = Layout(out)

    def fill_base(archive):
        for member in links(epoch):
            archive.addfile(member)
        add_all(archive, members(base, epoch))
        archive.addfile(*text_file("etc/passwd", "root:x:0:0::/:/bin/false\nbartizan:x:990:990::/var/lib/bartizan:/bin/false\n", epoch))
        archive.addfile(*text_file("etc/group", "root:x:0:\nbartizan:x:990:\n", epoch))
        # The names of what is inside, for scanners.
        listed = "\n".join(archive_name.name for archive_name in archives) + "\n"
        archive.addfile(*text_file("usr/share/doc/bartizan-image/packages", listed, epoch))

    def fill_own(archive):
        add_all(archive, members(own, epoch))
        for name in ("run/bartizan", "var/log/bartizan", "var/cache/bartizan", "var/lib/bartizan"):
            archive.addfile(folder_of_user(name, epoch))

    layers = [layout.layer(fill_base), layout.layer(fill_own)]
    version = subprocess.check_output(["dpkg-deb", "-f", package, "Version"], text=True).strip()
    architecture = subprocess.check_output(["dpkg-deb", "-f", package, "Architecture"], text=True).strip()
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch))
    labels = {"org.opencontainers.image.title": "bartizan", "org.opencontainers.image.version": version,
              "org.opencontainers.image.licenses": "Apache-2.0"}
    config = layout.json("application/vnd.oci.image.config.v1+json", {
        "architecture": architecture, "os": "linux", "created": created,
        "config": {"User": f"{USER}:{USER}", "Env": ["PATH=/usr/bin:/bin"], "Entrypoint": ["/usr/bin/bartizan"],
                   "Cmd": ["run", "-c", "/etc/bartizan/bartizan.yaml"], "WorkingDir": "/var/lib/bartizan",
                   "StopSignal": "SIGTERM", "Labels": labels},
        "rootfs": {"type": "layers", "diff_ids": [digest for _, digest in layers]},
        "history": [{"created": created, "created_by": "libraries of Debian"},
                    {"created": created, "created_by": f"bartizan {version}"}],
    })
    manifest = layout.json("application/vnd.oci.image.manifest.v1+json", {
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config,
        "layers": [layer for layer, _ in layers], "annotations": labels})
    manifest["annotations"] = {"org.opencontainers.image.ref.name": version}
    (out / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    (out / "index.json").write_text(json.dumps(
        {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [manifest]},
        sort_keys=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--package", required=True, type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        os.chmod(work, 0o755)
        write(arguments.package.resolve(), arguments.out, int(os.environ["SOURCE_DATE_EPOCH"]), pathlib.Path(work))


main()
