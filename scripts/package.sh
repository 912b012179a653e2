#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the release: Debian packages of the program and of its symbols, a container image (OCI layout), the
# list of what is linked (CycloneDX), licence texts, checksums. All from packaging/ and the program; nothing
# of this machine or time goes in:
# with one toolchain, two runs make the same bytes.
#
#   PROGRAM=FILE   a program that is built already; else a release is built (13 minutes on two cores)
#   VERSION=V      the packages' version; else that of Cargo.toml
#   OUT=DIR        default: target/package
#   FAST=yes       larger packages in less time, to try them
#   IMAGE=no       without the container image, whose libraries come from the network
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/needs.sh package
tool=$(command -v cargo-deb || echo "${CARGO_TARGET_DIR:-target}/tools/bin/cargo-deb")
if [ ! -x "$tool" ]; then
    echo "package: installs cargo-deb, which makes the Debian packages (once, minutes)"
    cargo install cargo-deb --version 3.8.0 --locked --root "${CARGO_TARGET_DIR:-target}/tools"
fi

program=${PROGRAM:-}
if [ -z "$program" ]; then
    cargo build --release --locked --package bartizan
    program=${CARGO_TARGET_DIR:-target}/release/bartizan
fi
release=$("$program" --version | cut -d' ' -f2)
manifest=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
[ "$release" = "$manifest" ] || {
    echo "package: $program says $release, and Cargo.toml $manifest: build the program anew" >&2
    exit 1
}
version=${VERSION:-$release}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC

out=${OUT:-${CARGO_TARGET_DIR:-target}/package}
stage=packaging/stage
rm -rf "$stage" "$out"
mkdir -p "$stage/man" "$stage/symbols" "$out"

# The program without symbols, and these by its build id, where debuggers look for them.
id=$(readelf -n "$program" | sed -n 's/.*Build ID: \([0-9a-f]*\).*/\1/p')
[ -n "$id" ] || { echo "package: $program has no build id; link it with --build-id" >&2; exit 1; }
objcopy --only-keep-debug --compress-debug-sections "$program" "$stage/bartizan.debug"
cp "$program" "$stage/bartizan"
strip --strip-all --remove-section=.comment --remove-section=.note "$stage/bartizan"

"$program" man "$stage/man"
gzip -9n "$stage"/man/*
"$program" completions bash > "$stage/bartizan.bash"
"$program" completions zsh > "$stage/_bartizan"
"$program" completions fish > "$stage/bartizan.fish"
gzip -9n < CHANGELOG.md > "$stage/changelog.gz"
cat > "$stage/changelog.Debian" <<CHANGES
bartizan ($version-1) stable; urgency=medium

  * Release $release: changelog.gz says what users see of it.

 -- The Bartizan authors <maintainers@bartizan.invalid>  $(date -R -d "@$SOURCE_DATE_EPOCH")
CHANGES
/usr/bin/python3 scripts/sbom.py --version "$version" --sbom "$out/sbom.cdx.json" --notices "$out/THIRD-PARTY.txt"
gzip -9n < "$out/sbom.cdx.json" > "$stage/sbom.cdx.json.gz"
gzip -9n < "$out/THIRD-PARTY.txt" > "$stage/THIRD-PARTY.gz"
gzip -9n < NOTICE > "$stage/NOTICE.gz"
mkdir -p "$stage/debug/.build-id/${id:0:2}"
mv "$stage/bartizan.debug" "$stage/debug/.build-id/${id:0:2}/${id:2}.debug"

# Modes of what is packed are those of the manifest; times are those of the commit.
pack=("$tool" --package bartizan --no-build --no-strip --deb-version "$version-1" --output "$out/")
[ "${FAST:-no}" = no ] || pack+=(--fast --compress-type gzip --compress-system)
"${pack[@]}"
"${pack[@]}" --variant symbols
if [ "${IMAGE:-yes}" = yes ]; then
    /usr/bin/python3 scripts/oci.py --package "$out/bartizan_${version}-1_"*.deb --out "$out/image"
    tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -C "$out/image" \
        -cf "$out/bartizan-${version}-oci.tar" blobs index.json oci-layout
    rm -r "$out/image"
fi
rm -r "$stage"
(cd "$out" && sha256sum -- * > SHA256SUMS)
ls -l "$out"
