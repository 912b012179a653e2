// SPDX-License-Identifier: Apache-2.0
//! The security functions: pfw, sfw, ids.
