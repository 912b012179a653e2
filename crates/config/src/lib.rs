// SPDX-License-Identifier: Apache-2.0
//! Host file, policy file and suricata.yaml: types, schema, validation.

pub mod host;
pub mod kind;
pub mod limits;
pub mod policy;
pub mod suricata;
pub mod yaml;
