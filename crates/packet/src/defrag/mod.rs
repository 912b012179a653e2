// SPDX-License-Identifier: Apache-2.0
//! Defragmentation: filled by its own change.
