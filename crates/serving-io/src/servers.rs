//! The servers of a simulated run, as its series and traces name them.

use sched_sim::RunResult;
use sched_sim::fleet::RouterKind;
use sched_sim::simulation::RequestDetail;
use serde_json::{Map, Value, json};

/// The servers of a run, in the order in which the simulator counts them: one, several behind a
/// router, or those of two pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Servers {
    pools: Vec<Pool>,
}

/// Servers behind one router.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pool {
    /// What it is called, where there are two.
    name: Option<&'static str>,
    servers: usize,
    /// Whether its router keeps who waits.
    queues: bool,
}

/// Where a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Behind the router of a pool, counted from 0, which gives nobody to a server without a slot;
    /// whoever then waits there for blocks counts too.
    Pool(usize),
    /// At a server, counted from 0 over all pools.
    Server(usize),
}

impl Servers {
    /// A single server, which needs no name.
    #[must_use]
    pub fn one() -> Self {
        Self::fleet(1, RouterKind::LeastRequests)
    }

    /// So many behind a router.
    #[must_use]
    pub fn fleet(servers: usize, router: RouterKind) -> Self {
        Self { pools: vec![Pool { name: None, servers, queues: queues(servers, router) }] }
    }

    /// A pool for prompts and one for answers, each behind a router of this kind.
    #[must_use]
    pub fn pools(prefill: usize, decode: usize, router: RouterKind) -> Self {
        let pool =
            |name, servers| Pool { name: Some(name), servers, queues: queues(servers, router) };
        Self { pools: vec![pool("prefill", prefill), pool("decode", decode)] }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.pools.iter().map(|pool| pool.servers).sum()
    }

    /// Whether there is but one, so that nothing has to be named.
    #[must_use]
    pub fn is_one(&self) -> bool {
        self.count() == 1
    }

    /// The pool of a server, and its number there.
    fn of(&self, server: usize) -> (usize, usize) {
        let mut number = server;
        for (i, pool) in self.pools.iter().enumerate() {
            if number < pool.servers {
                return (i, number);
            }
            number -= pool.servers;
        }
        (0, server)
    }

    /// The name of a server for a reader: `server 0`, `prefill 1`; empty if it is the only one.
    #[must_use]
    pub fn name(&self, server: usize) -> String {
        if self.is_one() {
            return String::new();
        }
        let (pool, number) = self.of(server);
        let pool = self.pools.get(pool).and_then(|pool| pool.name).unwrap_or("server");
        format!("{pool} {number}")
    }

    /// Puts `pool` and `server` into the object of a line, as far as it needs them.
    pub(crate) fn put(&self, place: Place, line: &mut Map<String, Value>) {
        if self.is_one() {
            return;
        }
        let (pool, number) = match place {
            Place::Pool(pool) => (pool, None),
            Place::Server(server) => {
                let (pool, number) = self.of(server);
                (pool, Some(number))
            }
        };
        if let Some(name) = self.pools.get(pool).and_then(|pool| pool.name) {
            line.insert("pool".to_owned(), json!(name));
        }
        if let Some(number) = number {
            line.insert("server".to_owned(), json!(number));
        }
    }

    /// Where whoever is given to a server, or to none yet, waits in a pool.
    pub(crate) fn waits_at(&self, pool: usize, server: Option<usize>) -> Place {
        let queues = self.pools.get(pool).is_some_and(|pool| pool.queues);
        server.filter(|_| !queues).map_or(Place::Pool(pool), Place::Server)
    }

    /// The servers that had the request at a position: that of its prompt, and that of its answer if
    /// its KV reached another pool.
    pub(crate) fn that_had(
        result: &RunResult<'_>,
        position: usize,
        detail: Option<&RequestDetail>,
    ) -> (Option<usize>, Option<usize>) {
        let last = result.server(position);
        match detail.and_then(|d| d.transfer) {
            Some(transfer) => (Some(transfer.from_server), transfer.to.and(last)),
            None => (last, None),
        }
    }
}

/// Whether such a router keeps a queue.
fn queues(servers: usize, router: RouterKind) -> bool {
    1 < servers && router == RouterKind::CentralQueue
}
