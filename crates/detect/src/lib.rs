// SPDX-License-Identifier: Apache-2.0
//! The detection engine: keywords, groups, prefilter, inspection.
