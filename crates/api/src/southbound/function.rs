// SPDX-License-Identifier: Apache-2.0
//! Sub-protocol 4: the life cycle of functions. Head: operation u8, three reserved bytes, request u32.

use super::body;
use super::error::{DecodeError, EncodeError};
use super::limits;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The kind of order to a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum FunctionOrder {
    /// Start the function.
    Start = 1,
    /// Stop the function: chains run without it.
    Stop = 2,
    /// Stop the function and start it again.
    Restart = 3,
    /// Give the function settings.
    Configure = 4,
    /// Report the function's health.
    Health = 5,
}

/// The answer to an order: the state of the function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionState {
    /// The function.
    pub function: String,
    /// Whether the order was carried out.
    pub done: bool,
    /// `running`, `stopped` or `failed`.
    pub state: String,
    /// Reason of the state, or of the failure of the order.
    pub reason: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FunctionOrderBody {
    function: String,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    settings: Map<String, Value>,
}

/// A message of the sub-protocol, without the number of its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FunctionMessage {
    /// Controller: operations 1 to 5.
    Order {
        /// The kind of order.
        order: FunctionOrder,
        /// Name of the function.
        function: String,
        /// Settings by name; only for [`FunctionOrder::Configure`].
        settings: Map<String, Value>,
    },
    /// Agent: operation 6, with the request number of the order.
    State(FunctionState),
}

impl FunctionMessage {
    /// Bytes of the head.
    const HEAD: usize = 8;

    pub(super) fn encode(&self, request: u32) -> Result<(Vec<u8>, Vec<u8>), EncodeError> {
        let (op, body) = match self {
            FunctionMessage::Order { order, function, settings } => {
                let body = FunctionOrderBody { function: function.clone(), settings: settings.clone() };
                (*order as u8, body::write(&body)?)
            }
            FunctionMessage::State(state) => (6, body::write(state)?),
        };
        let mut head = vec![op, 0, 0, 0];
        head.extend(request.to_be_bytes());
        Ok((head, body))
    }

    pub(super) fn split(bytes: &[u8]) -> Result<([u8; Self::HEAD], &[u8]), DecodeError> {
        let (head, rest) =
            bytes.split_first_chunk::<{ Self::HEAD }>().ok_or(DecodeError::Short("function"))?;
        match head {
            [_, 0, 0, 0, ..] => Ok((*head, rest)),
            _ => Err(DecodeError::Reserved("function")),
        }
    }

    pub(super) fn decode(head: [u8; Self::HEAD], bytes: &[u8]) -> Result<(u32, Self), DecodeError> {
        let [op, _, _, _, request @ ..] = head;
        let request = u32::from_be_bytes(request);
        let order = match op {
            1 => FunctionOrder::Start,
            2 => FunctionOrder::Stop,
            3 => FunctionOrder::Restart,
            4 => FunctionOrder::Configure,
            5 => FunctionOrder::Health,
            6 => return Ok((request, FunctionMessage::State(body::read("state", bytes)?))),
            op => return Err(DecodeError::Op { sub: "function", op }),
        };
        let FunctionOrderBody { function, settings } = body::read("order", bytes)?;
        body::bound("order", "letters of the function's name", function.len(), limits::NAME_LETTERS)?;
        if !settings.is_empty() && order != FunctionOrder::Configure {
            let what = "only `configure` has settings".to_owned();
            return Err(DecodeError::Body { message: "order", what });
        }
        Ok((request, FunctionMessage::Order { order, function, settings }))
    }
}
