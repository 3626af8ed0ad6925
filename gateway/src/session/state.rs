//! What is known of a connection's client, and how that changes what it is served.

use std::rc::Rc;
use std::sync::Arc;

use fusee::Watched;

use super::Place;
use crate::acl::User;
use crate::client::Client;
use crate::command::multi::Queue;
use crate::command::pubsub::Subscriptions;
use crate::reply::Protocol;

/// What a client has told of itself that changes how it is served.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) client: Arc<Client>,
    pub(crate) database: u8,
    pub(crate) protocol: Protocol,
    pub(crate) authenticated: bool,
    pub(crate) user: Arc<User>,
    /// As of which change of users.
    user_version: u64,
    pub(crate) replies: Replies,
    pub(crate) subscriptions: Subscriptions,
    pub(crate) is_monitor: bool,
    /// What MULTI keeps until EXEC.
    pub(crate) queue: Option<Box<Queue>>,
    pub(crate) watched: Vec<Rc<Watched>>,
    /// Whether any of these keeps requests from running as they come.
    pub(super) is_guarded: bool,
}

/// On whose behalf commands run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct By<'a> {
    pub(crate) client: &'a Arc<Client>,
    pub(crate) user: &'a Arc<User>,
}

/// Which replies a client wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Replies {
    All,
    /// None until it asks for them again.
    Off,
    /// Not the next one.
    SkipNext,
}

impl State {
    /// What the state of a connection is at first.
    pub(crate) fn new(client: Arc<Client>, user: Arc<User>, user_version: u64) -> Self {
        let mut state = Self {
            client,
            database: 0,
            protocol: Protocol::default(),
            authenticated: user.is_open(),
            user,
            user_version,
            replies: Replies::All,
            subscriptions: Subscriptions::default(),
            is_monitor: false,
            queue: None,
            watched: Vec::new(),
            is_guarded: false,
        };
        state.guard();
        state
    }

    pub(crate) fn by(&self) -> By<'_> {
        By { client: &self.client, user: &self.user }
    }

    /// Makes the connection a user's.
    pub(crate) fn becomes(&mut self, user: Arc<User>) {
        self.client.names().user.clone_from(&user.name);
        self.user = user;
        self.guard();
    }

    /// Looks what its user may do, if users have changed since.
    #[inline]
    pub(crate) fn look_up_user(&mut self, place: &Place) {
        if self.user_version != place.shared.acl.version() {
            self.look_up_user_anew(place);
        }
    }

    #[cold]
    fn look_up_user_anew(&mut self, place: &Place) {
        self.user_version = place.shared.acl.version();
        match place.shared.acl.user(&self.user.name) {
            Some(user) => self.user = user,
            // The connection is about to be ended.
            None => self.authenticated = false,
        }
        self.guard();
    }

    /// To be called when something has changed.
    pub(crate) fn guard(&mut self) {
        self.is_guarded = !self.authenticated
            || self.replies != Replies::All
            || self.queue.is_some()
            || self.is_listening_in_resp2();
    }

    /// Ends what MULTI and WATCH have begun; returns what was kept.
    pub(crate) fn forget_transaction(&mut self) -> Option<Box<Queue>> {
        self.watched.clear();
        let queue = self.queue.take();
        self.guard();
        queue
    }

    /// Whether only messages may come, as RESP2 cannot tell them from replies.
    pub(crate) fn is_listening_in_resp2(&self) -> bool {
        self.protocol == Protocol::Resp2 && !self.subscriptions.is_empty()
    }
}
