// SPDX-License-Identifier: Apache-2.0
//! L2-L4 decoding, tunnels, checksums, defragmentation, capture formats and packet metadata.
