// SPDX-License-Identifier: Apache-2.0
//! Where packets come from and go to: capture files, AF_PACKET, the test port.
