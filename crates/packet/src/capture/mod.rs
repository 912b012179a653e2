// SPDX-License-Identifier: Apache-2.0
//! Capture formats: filled by its own change.
