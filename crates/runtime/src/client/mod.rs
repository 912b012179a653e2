// SPDX-License-Identifier: Apache-2.0
//! The client of a controller: its REST API with the operator's own files and terms, without a command line.
//!
//! * [`access`]: address of the controller, and the token;
//! * [`actions`]: the operations of the API by resource and verb, with the options of their bodies;
//! * [`request`]: requests, and refusals with the place in the document;
//! * [`document`], [`yaml`], [`diff`]: documents of files, and their differences as text;
//! * [`apply`]: documents put in an order that satisfies their references;
//! * [`candidate`]: the policy file of a device, of a generation or with documents that are not put yet.

pub mod access;
pub mod actions;
pub mod apply;
pub mod candidate;
pub mod diff;
pub mod document;
pub mod request;
pub mod yaml;
