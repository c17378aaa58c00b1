//! The queue of the engine that skips: requests in the order in which they are admitted.

use std::collections::{BTreeSet, VecDeque};

use crate::memory::Order;

/// A request in its order: the key of the order, when it came, and its position.
pub(crate) type Place = (i64, u64, u32);

/// Who waits, the next one first.
pub(crate) enum Queue {
    /// Who comes later goes behind, so that a list will do.
    Fcfs(VecDeque<Place>),
    /// By a key.
    Keyed(BTreeSet<Place>),
}

impl Queue {
    pub fn new(order: Order) -> Self {
        match order {
            Order::Fcfs => Self::Fcfs(VecDeque::new()),
            Order::ShortestJob | Order::Priority => Self::Keyed(BTreeSet::new()),
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::Fcfs(list) => list.len(),
            Self::Keyed(set) => set.len(),
        }
    }

    #[inline]
    pub fn first(&self) -> Option<u32> {
        let place = match self {
            Self::Fcfs(list) => list.front(),
            Self::Keyed(set) => set.first(),
        };
        place.map(|place| place.2)
    }

    #[inline]
    pub fn take_first(&mut self) -> Option<u32> {
        let place = match self {
            Self::Fcfs(list) => list.pop_front(),
            Self::Keyed(set) => set.pop_first(),
        };
        place.map(|place| place.2)
    }

    #[inline]
    pub fn insert(&mut self, place: Place) {
        match self {
            // A preempted request came before those that wait.
            Self::Fcfs(list) if list.back().is_some_and(|last| place < *last) => {
                let at = list.partition_point(|other| *other < place);
                list.insert(at, place);
            }
            Self::Fcfs(list) => list.push_back(place),
            Self::Keyed(set) => {
                set.insert(place);
            }
        }
    }

    #[inline]
    pub fn remove(&mut self, place: Place) {
        match self {
            Self::Fcfs(list) => {
                if let Ok(at) = list.binary_search(&place) {
                    list.remove(at);
                }
            }
            Self::Keyed(set) => {
                set.remove(&place);
            }
        }
    }
}
