// SPDX-License-Identifier: Apache-2.0
//! Policy to fid, path and rules; rule library; function life cycle; statistics upward.
