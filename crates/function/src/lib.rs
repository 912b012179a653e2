// SPDX-License-Identifier: Apache-2.0
//! The function API: three callbacks, verdicts, host services, function specifications.
