// SPDX-License-Identifier: Apache-2.0
//! Hand-made sessions.
