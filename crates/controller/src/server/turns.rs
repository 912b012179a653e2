// SPDX-License-Identifier: Apache-2.0
//! Turns: the bound of running requests. Each token has a share, and some turns are reserved for
//! administrators, so that no token's queries delay an administrator's change.

use crate::access::{Principal, Scope};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bounds of running requests.
#[derive(Clone, Copy, Debug)]
pub struct TurnBounds {
    /// Limit for the requests of all tokens.
    pub all: usize,
    /// Requests kept for administrators.
    pub reserved: usize,
    /// Requests of one token that is not an administrator's.
    pub by_token: usize,
}

/// The turns.
#[derive(Debug)]
pub struct Turns {
    all: Arc<Semaphore>,
    others: Arc<Semaphore>,
    by_token: usize,
    tokens: Mutex<HashMap<String, Weak<Semaphore>>>,
}

/// A slot for one running request; released when it is dropped.
#[derive(Debug)]
pub struct Turn {
    _permits: [Option<OwnedSemaphorePermit>; 3],
}

/// Whether a request counts as an administrator's.
pub fn administers(who: &Principal) -> bool {
    matches!(who.scope, Scope::Admin | Scope::Bootstrap)
}

impl Turns {
    /// Turns with these bounds.
    pub fn new(bounds: TurnBounds) -> Self {
        let semaphore = |permits: usize| Arc::new(Semaphore::new(permits.max(1)));
        Turns {
            all: semaphore(bounds.all),
            others: semaphore(bounds.all.saturating_sub(bounds.reserved)),
            by_token: bounds.by_token.max(1),
            tokens: Mutex::default(),
        }
    }

    /// Waits until it is the caller's turn.
    pub async fn take(&self, who: Option<&Principal>) -> Turn {
        // The semaphores are never closed.
        let permit = async |semaphore: &Arc<Semaphore>| Arc::clone(semaphore).acquire_owned().await.ok();
        let (mut own, mut other) = (None, None);
        if !who.is_some_and(administers) {
            // The token's share first: a request that waits for it takes no turn from others.
            own = permit(&self.of_token(who.map_or("", |who| who.id.as_str()))).await;
            other = permit(&self.others).await;
        }
        Turn { _permits: [own, other, permit(&self.all).await] }
    }

    fn of_token(&self, token: &str) -> Arc<Semaphore> {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(semaphore) = tokens.get(token).and_then(Weak::upgrade) {
            return semaphore;
        }
        // Only tokens with running requests stay in the map.
        tokens.retain(|_, semaphore| semaphore.strong_count() > 0);
        let semaphore = Arc::new(Semaphore::new(self.by_token));
        tokens.insert(token.to_owned(), Arc::downgrade(&semaphore));
        semaphore
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn principal(id: &str, scope: Scope) -> Principal {
        Principal { id: id.to_owned(), scope, tenant: None, device: None }
    }

    #[test]
    fn a_token_gets_its_share_and_administrators_always_get_a_turn() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let turns = Turns::new(TurnBounds { all: 4, reserved: 1, by_token: 2 });
            let (a, b) = (principal("a", Scope::Reader), principal("b", Scope::Operator));
            let admin = principal("c", Scope::Admin);
            let take =
                async |who| tokio::time::timeout(Duration::from_millis(20), turns.take(Some(who))).await;
            let first = take(&a).await.expect("a turn");
            let _second = take(&a).await.expect("a turn");
            assert!(take(&a).await.is_err(), "its share");
            let _third = take(&b).await.expect("another token");
            assert!(take(&b).await.is_err(), "the rest is kept");
            let own = take(&admin).await.expect("for administrators");
            assert!(take(&admin).await.is_err(), "all are taken");
            drop(first);
            assert!(take(&a).await.is_ok(), "given back");
            drop(own);
            let _all = [take(&admin).await.expect("one"), take(&admin).await.expect("and another")];
            assert!(take(&a).await.is_err());
        });
    }
}
