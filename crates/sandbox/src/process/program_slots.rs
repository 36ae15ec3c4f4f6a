//! Slots for running programs, of which the limit on open files allows a certain number, and their
//! division among owners.
//!
//! A server runs programs of several users. An owner may take a slot only while more slots are free
//! than the owner holds: the first one gets half of the slots, the next one half of the rest, and so
//! on. The waiting owners that may take a slot get it in turn. So an owner without a running program
//! gets a slot at once, or when its turn comes among such owners. Every other process has one user,
//! who gets all slots.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use tokio::sync::oneshot;

use base::lock::lock;
use base::open_files;

/// The owner of programs: a user of this process, or adjutant itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProgramOwner(u64);

impl ProgramOwner {
    /// The owner of programs that are not run for a certain user.
    pub const ADJUTANT: Self = Self(0);

    /// Creates an owner for a user, who differs from all others.
    pub fn of_user() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The slot of a program among those that run at the same time. Dropping it frees it.
#[derive(Debug)]
pub struct ProgramSlot {
    owner: ProgramOwner,
    slots: Arc<ProgramSlots>,
}

impl Drop for ProgramSlot {
    fn drop(&mut self) {
        lock(&self.slots.state).free(self.owner);
        self.slots.assign();
    }
}

/// Waits until another program of an owner may run. Programs that live as long as a session have no
/// slot: they would keep all others waiting.
///
/// # Errors
/// An internal error: the request was lost.
pub async fn slot(owner: ProgramOwner) -> io::Result<ProgramSlot> {
    static SLOTS: OnceLock<Arc<ProgramSlots>> = OnceLock::new();
    let slots = SLOTS.get_or_init(|| {
        let budget = open_files::budget();
        let is_server = budget.sockets > 0;
        ProgramSlots::new(budget.programs, is_server)
    });
    slots.request(owner).await.map_err(io::Error::other)
}

/// The sender of a slot to a program that waits for it.
type Waiter = oneshot::Sender<ProgramSlot>;

/// The slots of a process.
#[derive(Debug)]
struct ProgramSlots {
    // A leaf lock: no slot is sent or dropped while it is held.
    state: Mutex<SlotState>,
}

impl ProgramSlots {
    fn new(free: usize, is_server: bool) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(SlotState {
                free,
                is_server,
                held: HashMap::new(),
                waiting: VecDeque::new(),
            }),
        })
    }

    /// Returns the receiver of a slot, which may already have it. Dropping it ends the wait.
    fn request(self: &Arc<Self>, owner: ProgramOwner) -> oneshot::Receiver<ProgramSlot> {
        let (waiter, receiver) = oneshot::channel();
        lock(&self.state).wait(owner, waiter);
        self.assign();
        receiver
    }

    /// Assigns the free slots to the programs that wait for them.
    fn assign(self: &Arc<Self>) {
        loop {
            let taken = lock(&self.state).take();
            let Some((owner, waiter)) = taken else {
                return;
            };
            let slot = ProgramSlot {
                owner,
                slots: self.clone(),
            };
            // If the wait has just ended, the slot comes back, and is freed again.
            drop(waiter.send(slot));
        }
    }
}

/// The division of the slots.
#[derive(Debug)]
struct SlotState {
    /// The number of free slots.
    free: usize,
    /// True if the process has several users, among whom the slots are divided.
    is_server: bool,
    /// The number of slots that each owner holds.
    held: HashMap<ProgramOwner, usize>,
    /// The owners with waiting programs. The first one that may take a slot is next.
    waiting: VecDeque<(ProgramOwner, VecDeque<Waiter>)>,
}

impl SlotState {
    /// Adds a waiting program.
    fn wait(&mut self, owner: ProgramOwner, waiter: Waiter) {
        self.remove_ended_waits();
        match self.waiting.iter_mut().find(|(of, _)| *of == owner) {
            Some((_, waiters)) => waiters.push_back(waiter),
            None => self.waiting.push_back((owner, VecDeque::from([waiter]))),
        }
    }

    /// Removes the programs that do not wait any more.
    fn remove_ended_waits(&mut self) {
        self.waiting.retain_mut(|(_, waiters)| {
            waiters.retain(|waiter| !waiter.is_closed());
            !waiters.is_empty()
        });
    }

    /// Takes a slot for the next waiting program. Returns `None` if there is no slot for any of
    /// them.
    fn take(&mut self) -> Option<(ProgramOwner, Waiter)> {
        self.remove_ended_waits();
        let next = self
            .waiting
            .iter()
            .position(|(owner, _)| self.may_take(*owner))?;
        let (owner, mut waiters) = self.waiting.remove(next)?;
        let waiter = waiters.pop_front()?;
        if !waiters.is_empty() {
            self.waiting.push_back((owner, waiters));
        }
        self.free -= 1;
        *self.held.entry(owner).or_default() += 1;
        Some((owner, waiter))
    }

    /// Returns whether an owner may take a free slot.
    fn may_take(&self, owner: ProgramOwner) -> bool {
        let held = self.held.get(&owner).copied().unwrap_or_default();
        self.free > if self.is_server { held } else { 0 }
    }

    /// Frees a slot of an owner.
    fn free(&mut self, owner: ProgramOwner) {
        self.free += 1;
        if let Some(held) = self.held.get_mut(&owner) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADA: ProgramOwner = ProgramOwner(1);
    const BOB: ProgramOwner = ProgramOwner(2);
    const EVE: ProgramOwner = ProgramOwner(3);

    /// Requests slots, and returns those that are assigned at once, and the other requests.
    fn requested(
        slots: &Arc<ProgramSlots>,
        owner: ProgramOwner,
        requests: usize,
    ) -> (Vec<ProgramSlot>, Vec<oneshot::Receiver<ProgramSlot>>) {
        let mut assigned = Vec::new();
        let mut waiting = Vec::new();
        for _ in 0..requests {
            let mut request = slots.request(owner);
            match request.try_recv() {
                Ok(slot) => assigned.push(slot),
                Err(_) => waiting.push(request),
            }
        }
        (assigned, waiting)
    }

    #[test]
    fn each_owner_gets_half_of_the_free_slots() {
        for (slots, is_server, expected) in [
            (1, true, [1, 0, 0]),
            (2, true, [1, 1, 0]),
            (3, true, [2, 1, 0]),
            (8, true, [4, 2, 1]),
            (56, true, [28, 14, 7]),
            (1, false, [1, 0, 0]),
            (3, false, [3, 0, 0]),
        ] {
            let all = ProgramSlots::new(slots, is_server);
            let requests = [ADA, BOB, EVE].map(|owner| requested(&all, owner, 100));
            let assigned = requests.each_ref().map(|(assigned, _)| assigned.len());
            assert_eq!(assigned, expected, "{slots} {is_server}");
            // Everything is free again at the end.
            drop(requests);
            assert_eq!(lock(&all.state).free, slots);
            assert!(lock(&all.state).held.is_empty());
        }
    }

    #[test]
    fn next_free_slots_go_to_owners_without_any() {
        for is_server in [true, false] {
            let all = ProgramSlots::new(2, is_server);
            let (mut hers, _waiting) = requested(&all, ADA, 100);
            let (mut his, mut waiting) = requested(&all, BOB, 3);
            let (_, mut other) = requested(&all, EVE, 1);
            let freed = his.pop().or_else(|| hers.pop());
            drop(freed);
            if !is_server {
                // Ada, who has waited first, got that one.
                drop(hers.pop());
            }
            // Eve's turn comes before Bob's second one.
            assert!(other[0].try_recv().is_err());
            drop(waiting[0].try_recv().unwrap());
            let slot = other[0].try_recv();
            assert!(slot.is_ok());
            assert!(waiting[1].try_recv().is_err());
        }
    }

    #[test]
    fn owners_are_served_in_turn() {
        let all = ProgramSlots::new(1, true);
        let (mut first, mut hers) = requested(&all, ADA, 4);
        let (_, mut his) = requested(&all, BOB, 3);
        let mut slot = first.pop();
        for is_hers in [true, false, true, false] {
            drop(slot);
            let waiting = if is_hers { &mut hers } else { &mut his };
            slot = waiting.remove(0).try_recv().ok();
            assert!(slot.is_some());
        }
    }

    #[test]
    fn ended_wait_takes_no_slot() {
        let all = ProgramSlots::new(1, false);
        let (first, hers) = requested(&all, ADA, 1_000);
        let (_, mut his) = requested(&all, BOB, 1);
        drop(hers);
        drop(first);
        let slot = his.remove(0).try_recv().unwrap();
        // A slot that is assigned and never received is freed too.
        let assigned = all.request(ADA);
        drop(slot);
        drop(assigned);
        assert!(all.request(EVE).try_recv().is_ok());
        assert_eq!(lock(&all.state).waiting.len(), 0);
    }
}
