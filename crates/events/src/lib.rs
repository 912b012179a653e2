// SPDX-License-Identifier: Apache-2.0
//! Event types to EVE JSON, schema, sinks and metrics declarations.
