// SPDX-License-Identifier: Apache-2.0
//! Workers, owners, chain runner, normaliser and generations.
