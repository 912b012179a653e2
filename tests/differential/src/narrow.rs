// SPDX-License-Identifier: Apache-2.0
//! Planted differences that look like those of a cause and are none of it: what a cause must not swallow.

use crate::explained::left_of;

#[test]
fn headers_are_matched_again_behind_a_chunked_body_only() {
    // Rule 1 counts to two, and is about `http.header`; rule 3 is about names. The last chunk is packet 94, the headers end with packet 78.
    let left = |want: &[&str]| left_of(164, 2060, false, &[], want);
    assert!(left(&["1@97<1.0:allowed"]).is_empty());
    assert_eq!(left(&["1@80<1.0:allowed"]), ["-1@80<1.0:allowed"], "the body goes on");
    assert_eq!(left(&["1@52>1.0:allowed"]), ["-1@52>1.0:allowed"], "the client has no body");
    assert_eq!(left(&["3@97<1.0:allowed"]), ["-3@97<1.0:allowed"], "not on headers");
}
