//! The blocks and the list of those that nobody uses.

/// The id of a block. Block 0 is never handed out: its links close the list into a ring, and in
/// other places it stands for no block.
pub(super) type BlockId = u32;

/// In [`Block::branch`]: not in the prefix cache.
pub(super) const UNREGISTERED: u32 = u32::MAX;

/// One block of the pool.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// Neighbours in the free list, while `users` is 0.
    prev: BlockId,
    pub next: BlockId,
    /// Requests whose table holds it.
    pub users: u32,
    /// The key under which it is registered: a branch of the prefix tree and a place in it.
    pub branch: u32,
    pub place: u32,
    /// Ring of the blocks registered under the same key, in order of registration.
    pub twin_prev: BlockId,
    pub twin_next: BlockId,
}

impl Block {
    pub fn registered(&self) -> bool {
        self.branch != UNREGISTERED
    }
}

/// All blocks, and the free list through them.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    pub blocks: Vec<Block>,
    idle: u64,
}

impl Pool {
    /// `total` blocks, the null block included; the free list is 1, 2, 3, … at first.
    pub fn new(total: u32) -> Self {
        let blocks = (0..total)
            .map(|id| Block {
                prev: id.checked_sub(1).unwrap_or(total - 1),
                next: if id + 1 < total { id + 1 } else { 0 },
                users: 0,
                branch: UNREGISTERED,
                place: 0,
                twin_prev: id,
                twin_next: id,
            })
            .collect();
        Self { blocks, idle: u64::from(total - 1) }
    }

    /// Blocks without a user.
    pub fn idle(&self) -> u64 {
        self.idle
    }

    pub fn block(&mut self, id: BlockId) -> &mut Block {
        &mut self.blocks[id as usize]
    }

    /// The front of the free list; 0 if it is empty.
    pub fn front(&self) -> BlockId {
        self.blocks[0].next
    }

    /// Takes a block out of the free list, wherever it is.
    pub fn unlink(&mut self, id: BlockId) {
        let Block { prev, next, .. } = *self.block(id);
        self.block(prev).next = next;
        self.block(next).prev = prev;
        self.idle -= 1;
    }

    /// Takes the first `taken` blocks out of the free list, of which `next` follows the last.
    pub fn cut_front(&mut self, next: BlockId, taken: u64) {
        self.blocks[0].next = next;
        self.block(next).prev = 0;
        self.idle -= taken;
    }

    /// Puts a row of blocks at the front of the free list.
    pub fn prepend(&mut self, row: &Row) {
        self.splice(0, row, self.blocks[0].next);
    }

    /// Puts a row of blocks at the end of the free list.
    pub fn append(&mut self, row: &Row) {
        self.splice(self.blocks[0].prev, row, 0);
    }

    fn splice(&mut self, prev: BlockId, row: &Row, next: BlockId) {
        if row.blocks == 0 {
            return;
        }
        self.block(prev).next = row.first;
        self.block(row.first).prev = prev;
        self.block(row.last).next = next;
        self.block(next).prev = row.last;
        self.idle += row.blocks;
    }

    /// The free list from its front.
    pub fn free_list(&self) -> impl Iterator<Item = BlockId> + '_ {
        std::iter::successors(Some(self.front()), |&id| Some(self.blocks[id as usize].next))
            .take_while(|&id| id != 0)
    }
}

/// Blocks that are linked to each other, to be put into the free list at once.
#[derive(Debug, Default)]
pub(super) struct Row {
    first: BlockId,
    last: BlockId,
    blocks: u64,
}

impl Row {
    /// Links a block without a user to the end of the row.
    #[inline]
    pub fn push(&mut self, pool: &mut Pool, id: BlockId) {
        if self.blocks == 0 {
            self.first = id;
        } else {
            pool.block(self.last).next = id;
            pool.block(id).prev = self.last;
        }
        self.last = id;
        self.blocks += 1;
    }
}
