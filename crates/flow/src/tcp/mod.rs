// SPDX-License-Identifier: Apache-2.0
//! TCP tracking of a flow.
