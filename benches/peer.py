# SPDX-License-Identifier: Apache-2.0
"""What benches over captures share: the data, the programs, and Suricata as the peer where it is installed.

Suricata is `suricata` of this system, or of the root in SURICATA_ROOT (a Debian 13 made by debootstrap, for example, with proc, sys and dev
mounted). Without one a bench says so and measures the rest.
"""

import gzip
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = pathlib.Path(os.environ.get("BARTIZAN_DATA", ROOT / "../shared/data")).resolve()
MIX = DATA / "captures/mix.pcap.gz"
RULES = pathlib.Path(os.environ.get("ETOPEN", DATA / "rules/etopen.rules.gz"))
ALERTS_ONLY = DATA / "alert-only.yaml"
# Suricata inspects chunks of random sizes unless told otherwise, which moves some alerts from run to run.
STEADY = [
    "stream.reassembly.randomize-chunk-size=no",
    "app-layer.protocols.http.libhtp.default-config.randomize-inspection-sizes=no",
]


def need(*files):
    """Ends the bench with what is missing and where it would be looked for."""
    missing = [str(file) for file in files if not file.exists()]
    if missing:
        sys.exit(f"not there: {', '.join(missing)}. BARTIZAN_DATA names the folder with captures/ and rules/, ETOPEN the rule file")


def program():
    """Bartizan: the program that PROGRAM names, or a release build."""
    if "PROGRAM" in os.environ:
        return os.environ["PROGRAM"]
    subprocess.run(["cargo", "build", "--release", "--locked", "--quiet", "-p", "bartizan"], cwd=ROOT, check=True)
    return str(pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/bartizan")


def unpack(source, target):
    """A plain copy of a file that is compressed or not."""
    with open(source, "rb") as head:
        packed = head.read(2) == b"\x1f\x8b"
    with (gzip.open if packed else open)(source, "rb") as data, open(target, "wb") as out:
        shutil.copyfileobj(data, out)
    return target


class Capture:
    """A pcap file in memory: little-endian, microseconds."""

    def __init__(self, path):
        data = pathlib.Path(path).read_bytes()
        if data[:4] != b"\xd4\xc3\xb2\xa1":
            sys.exit(f"{path}: not a pcap file of this machine's order with microseconds; convert it with `editcap -F pcap`")
        self.head, self.records, at = data[:24], [], 24
        while at < len(data):
            length = struct.unpack_from("<I", data, at + 8)[0]
            self.records.append(data[at : at + 16 + length])
            at += 16 + length

    def write(self, path, records):
        with open(path, "wb") as out:
            out.write(self.head)
            out.writelines(records)

    def repeat(self, path, times, apart):
        """The capture so many times, the copies so many seconds apart."""
        with open(path, "wb") as out:
            out.write(self.head)
            for copy in range(times):
                for record in self.records:
                    second = struct.unpack_from("<I", record)[0] + copy * apart
                    out.write(struct.pack("<I", second) + record[4:])


class Suricata:
    """The peer, with a folder that it can read and write."""

    @staticmethod
    def find():
        """The peer, or `None` with a word about it."""
        root = pathlib.Path(os.environ.get("SURICATA_ROOT", "/"))
        enter = [] if root == pathlib.Path("/") else ["chroot", str(root)]
        try:
            said = subprocess.run([*enter, "suricata", "-V"], capture_output=True, text=True)
            version = said.stdout.split()[-2] if said.returncode == 0 else None
        except OSError:
            version = None
        if version is None:
            print("the peer, Suricata, is not installed (SURICATA_ROOT names a system that has it): not measured", file=sys.stderr)
            return None
        return Suricata(root, enter, version)

    def __init__(self, root, enter, version):
        self.root, self.enter, self.version = root, enter, version
        (root / "tmp").mkdir(exist_ok=True)
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=root / "tmp", prefix="bartizan-bench-"))
        (self.folder / "patterns").mkdir()

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def inside(self, path):
        """A path as the peer sees it."""
        return "/" + str(pathlib.Path(path).relative_to(self.root))

    def command(self, settings, rules, capture, log):
        """Of a run over a capture; all files lie in `self.folder`, `settings` is one of these or a path of the peer's own."""
        return self.start(settings, rules, log, ["--runmode", "single", "-k", "none", "-r", self.inside(capture)])

    def live(self, settings, rules, interface, log):
        """Of a run that watches an interface of the namespace that it is started in."""
        return self.start(settings, rules, log, ["-k", "none", f"--af-packet={interface}"])

    def start(self, settings, rules, log, source):
        log.mkdir(exist_ok=True)
        settings = self.inside(settings) if isinstance(settings, pathlib.Path) else settings
        words = [*self.enter, "suricata", "-c", settings, *source, "-S", self.inside(rules), "-l", self.inside(log)]
        patterns = ["detect.sgh-mpm-caching=yes", f"detect.sgh-mpm-caching-path={self.inside(self.folder / 'patterns')}"]
        for setting in [*STEADY, *patterns, "security.limit-noproc=false"]:
            words += ["--set", setting]
        return words
