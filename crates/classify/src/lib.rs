// SPDX-License-Identifier: Apache-2.0
//! Headers of several rule sets, one lookup.
