#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The API documentation (cargo doc) and the book (mdbook, where it is installed). Drawings that differ from
# their sources end it (scripts/drawings.py makes them again), and so do links of the book that lead nowhere.
set -euo pipefail
cd "$(dirname "$0")/.."

RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked
echo "API documentation: ${CARGO_TARGET_DIR:-target}/doc/bartizan/index.html"
if command -v python3 >/dev/null 2>&1; then
    python3 scripts/drawings.py --check
fi
if command -v mdbook >/dev/null 2>&1; then
    mdbook build docs
    python3 scripts/book-links.py docs docs/book
    echo "book: docs/book/index.html"
else
    echo "book: not built, mdbook is not installed (it takes minutes: cargo install mdbook --locked); docs/SUMMARY.md leads to the same pages"
fi
