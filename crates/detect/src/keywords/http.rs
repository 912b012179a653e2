// SPDX-License-Identifier: Apache-2.0
//! HTTP's older modifiers, which follow the content that they move to a buffer (`content:"x"; http_uri;`),
//! and `uricontent`. The sticky buffers (`http.uri`) come from the table of the protocol.

use crate::compile::builder::SignatureBuilder;
use crate::compile::keyword::{Argument, Keyword, KeywordError, Role};
use crate::model::content::{Item, Literal};

macro_rules! modifiers {
    ($($name:literal => $buffer:literal, $value:literal, $what:literal $(, $also:literal)?;)+) => {
        /// The keywords.
        pub const KEYWORDS: &[Keyword] = &[
            $(Keyword {
                name: $name,
                aliases: &[],
                summary: concat!("The content before this keyword inspects ", $what, " (sticky: `", $buffer, "`)."),
                argument: Argument::None,
                role: Role::Modifier,
                syntax: $name,
                example: concat!("alert http any any -> any any (msg:\"older form\"; ", $($also,)? "content:\"", $value, "\"; ", $name, "; sid:1;)"),
                note: "",
                parse: |builder, _| modify(builder, $name, $buffer),
            },)+
            Keyword {
                name: "uricontent",
                aliases: &[],
                summary: "A content that inspects the normalised URI (sticky: `http.uri`).",
                argument: Argument::Required,
                role: Role::Condition,
                syntax: r#"uricontent:[!]"BYTES""#,
                example: r#"alert http any any -> any any (msg:"uricontent"; uricontent:"/admin"; sid:1;)"#,
                note: "",
                parse: uricontent,
            },
        ];
    };
}

modifiers! {
    "http_uri" => "http.uri", "/x", "the normalised URI";
    "http_raw_uri" => "http.uri.raw", "/x", "the URI as sent";
    "http_method" => "http.method", "GET", "the method";
    "http_header" => "http.header", "x", "the normalised header";
    "http_raw_header" => "http.header.raw", "x", "the header as sent", "flow:to_server; ";
    "http_cookie" => "http.cookie", "x", "the cookie";
    "http_user_agent" => "http.user_agent", "x", "the header User-Agent";
    "http_host" => "http.host", "x", "the normalised host name";
    "http_raw_host" => "http.host.raw", "x", "the host name as sent";
    "http_client_body" => "http.request_body", "x", "the body of the request";
    "http_server_body" => "file.data", "x", "the body of the response";
    "http_stat_code" => "http.stat_code", "404", "the status code";
    "http_stat_msg" => "http.stat_msg", "x", "the status message";
}

fn modify(builder: &mut SignatureBuilder<'_>, name: &str, buffer: &str) -> Result<(), KeywordError> {
    builder.move_last_to(buffer, name)
}

fn uricontent(builder: &mut SignatureBuilder<'_>, argument: &[u8]) -> Result<(), KeywordError> {
    let pattern = bartizan_rules::parse_content(argument)?;
    builder.push_named("http.uri", Item::Literal(Literal::new(&pattern.bytes, pattern.negated)))
}

#[cfg(test)]
mod tests {
    use crate::compile::keyword::RefusalCode;
    use crate::keywords::testing::refused_all;

    #[test]
    fn what_is_refused() {
        assert_eq!(refused_all(&[("http_uri", "")]), Some(RefusalCode::BadContext));
        assert_eq!(refused_all(&[("uricontent", "x")]), Some(RefusalCode::BadArgument));
        assert_eq!(refused_all(&[("uricontent", "\"\"")]), Some(RefusalCode::BadArgument));
    }
}
