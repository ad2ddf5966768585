//! Files that go on at other nodes, since their home has no more room.
//!
//! A file that is all at its home and is refused space there gets a *tail*
//! (`mayfly_types::Tail`): its object becomes part 0, with what its home has room for besides, and
//! what comes behind is dealt out to other servers, to each by the room that it has. From then on
//! it is a striped file as any other, and what `striping` does for those is done for it. It stays
//! so until it is emptied while nobody has it open.
//!
//! What may be mapped stays in one object, and so ends where its node is full: a mapping shows one
//! object.
//!
//! Leave to write the object ends when the tail begins, and who has used it meanwhile writes again.
//! The same bytes at the same place do no harm, but what is appended would be there twice. So
//! nobody has leave to append to a file that may get a tail, from its open on.

use mayfly_meta::record::{Inode, Layout, Policy};
use mayfly_types::{
    Errno, FileKind, Tail,
    limits::{CHUNK_BYTES_DEFAULT, CHUNK_BYTES_MIN},
};

use crate::{
    fault::{Fault, Outcome},
    message::{Answer, PartPlace, Question},
    namespace::state::inode::Located,
    shard::Shard,
    striping::arithmetic::Stripes,
};

/// Servers beside the home that a file can go on at.
const SERVERS_MAX: u32 = Tail::PART_MAX as u32;
/// Sets of so many servers that are asked for room, one after the other.
const SETS_MAX: u32 = 4;
/// A tail has this many chunks at least in the room that there is, unless they would be too small.
const CHUNKS_MIN: u64 = 512;

/// How often each part is in a row, and what fits in all of them before one is full, bytes.
fn best_counts(rooms: &[u64]) -> Option<(Vec<u64>, u64)> {
    let total: u64 = rooms.iter().sum();
    let counts_of = |length: u64| -> Vec<u64> {
        let share = |room: &u64| u128::from(*room) * u128::from(length) / u128::from(total.max(1));
        let mut counts: Vec<u64> = rooms.iter().map(|room| share(room) as u64).collect();
        while counts.iter().sum::<u64>() < length {
            // To whom has most room for each chunk that it would have then.
            let each = |at: &usize| rooms[*at] / (counts[*at] + 1);
            let Some(most) = (0..rooms.len()).max_by_key(each) else { break };
            counts[most] += 1;
        }
        counts
    };
    let fits = |counts: &[u64]| {
        let used = rooms.iter().zip(counts).filter(|(_, count)| **count > 0);
        let rows = used.map(|(room, count)| room / count).min().unwrap_or(0);
        rows.saturating_mul(counts.iter().sum())
    };
    let rows = (1..=Tail::ROW_MAX as u64).map(|length| {
        let counts = counts_of(length);
        let bytes = fits(&counts);
        (counts, bytes)
    });
    rows.max_by_key(|(_, bytes)| *bytes).filter(|(_, bytes)| *bytes > 0)
}

/// The tail for parts 1, 2, … with so much room, bytes, in chunks of so many bytes at most; `None`
/// when there is no room for a chunk, or for so many bytes at least.
fn tail_of(rooms: &[u64], chunk_bytes_max: u64, bytes_min: u64) -> Option<Tail> {
    // What is smaller than a chunk counts for nothing.
    let rooms: Vec<u64> =
        rooms.iter().map(|room| if *room < CHUNK_BYTES_MIN { 0 } else { *room }).collect();
    let (mut counts, bytes) = best_counts(&rooms).filter(|(_, bytes)| *bytes >= bytes_min)?;
    let mut row = Vec::new();
    while counts.iter().any(|count| *count > 0) {
        for (at, count) in counts.iter_mut().enumerate().filter(|(_, count)| **count > 0) {
            *count -= 1;
            row.push(at as u16 + 1);
        }
    }
    let chunk = (bytes / CHUNKS_MIN).clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_DEFAULT);
    let chunk = chunk.min(chunk_bytes_max);
    Some(Tail { start_bytes: 0, row: Tail::row_of(&row)?, chunk_log2: chunk.ilog2() as u8 })
}

/// The layout of a file that had a tail and is empty now.
pub(crate) fn undo_tail(layout: &mut Layout) {
    if layout.tail.is_there() {
        (layout.width, layout.tail) = (1, Tail::default());
    }
}

impl Shard {
    /// Whether a file may go on at other nodes some day.
    pub(super) fn may_outgrow_home(&self, inode: &Inode) -> bool {
        let Layout { width, striped, policy, .. } = inode.layout;
        let alone = self.place.numbering.nodes == 1;
        !alone
            && width == 1
            && !striped
            && policy != Policy::Hash
            // Its bytes are fetched and written back by one node.
            && inode.origin.is_none()
            && inode.kind() == FileKind::Regular
    }

    /// A file that is made longer than its home has room for goes on at other nodes at once, if
    /// they have room for the rest: who does that first may write its end before its middle. One
    /// that is longer than all have room for is not going to be filled, and stays at home.
    pub(super) fn outgrow_by_length(
        &mut self,
        located: &mut Located,
        size_bytes: u64,
    ) -> Outcome<()> {
        if !self.may_outgrow_home(&located.inode) {
            return Ok(());
        }
        let more = size_bytes.saturating_sub(self.size_of(&located.inode)?);
        match self.check_free(more) {
            Err(Fault::Errno(Errno::ENOSPC)) => {
                let here = self.free_bytes().saturating_sub(self.kept_for_names());
                self.outgrow_home_with(located, more.saturating_sub(here)).map(drop)
            }
            free => free,
        }
    }

    /// A file that was refused space at its home goes on at other nodes. False when it stays where
    /// it is, or no server has room.
    pub(crate) fn outgrow_home(&mut self, located: &mut Located) -> Outcome<bool> {
        self.outgrow_home_with(located, 0)
    }

    /// The same when others have room for so many bytes at least.
    fn outgrow_home_with(&mut self, located: &mut Located, bytes_min: u64) -> Outcome<bool> {
        let inode = &located.inode;
        // The bytes of a small file move to an object at home first, and that takes a page.
        if !self.may_outgrow_home(inode) || !self.find_room(CHUNK_BYTES_MIN)? {
            return Ok(false);
        }
        if self.files.background.is_in_flight(inode.id) {
            return Err(Fault::Busy);
        }
        self.check_at_rest(inode.id)?;
        let Some(layout) = self.layout_with_tail(inode, bytes_min)? else { return Ok(false) };
        let object = self.object_to_change(located)?;
        if self.look(object)?.mapped {
            return Ok(false);
        }
        self.deal_out(located, object, layout)?;
        Ok(true)
    }

    /// The file's layout with a tail where there is room.
    fn layout_with_tail(&mut self, inode: &Inode, bytes_min: u64) -> Outcome<Option<Layout>> {
        let numbering = self.place.numbering;
        let pool = self.pool_of(&inode.layout).map(|pool| pool.nodes.len() as u32);
        let servers = pool.unwrap_or_else(|| self.config.roles.server_count(numbering));
        for set in 0..SETS_MAX {
            let skipped = set * SERVERS_MAX;
            let parts = servers.saturating_sub(1 + skipped).min(SERVERS_MAX);
            if parts == 0 || set > 0 && pool.is_some() {
                break;
            }
            let mut layout = inode.layout;
            if pool.is_none() {
                let roles = &self.config.roles;
                layout.first_server = roles.server_after(numbering, numbering.node, skipped);
            }
            let node_of = |part| self.node_of_part(inode.id, &layout, part);
            let nodes: Vec<u32> = (1..=parts as u16).map(node_of).collect();
            let fronts: Vec<u32> = nodes.iter().map(|node| numbering.front_of(*node).0).collect();
            let answers = self.facts(&fronts, &Question::Space)?;
            let room = |answer| match answer {
                Answer::Space(space) => space.room_bytes(),
                _ => 0,
            };
            let mut rooms: Vec<u64> = answers.into_iter().map(room).collect();
            for (room, node) in rooms.iter_mut().zip(&nodes) {
                // A home that is in no pool, or no server, is among none.
                if *node == numbering.node {
                    *room = 0;
                }
            }
            if let Some(tail) = tail_of(&rooms, inode.layout.chunk_bytes(), bytes_min) {
                let width = parts as u16 + 1;
                return Ok(Some(Layout { width, tail, ..layout }));
            }
        }
        Ok(None)
    }

    /// Where the tail of a file begins that has so many bytes in its object: behind what its home
    /// still has room for. That is at a border at which a read goes on (`mayfly-client`).
    pub(super) fn tail_start(&self, layout: &Layout, size_bytes: u64) -> u64 {
        let border = layout.chunk_bytes().min(CHUNK_BYTES_MIN);
        let taken = self.kept_for_names() + self.files.background.growing_bytes;
        let room = self.free_bytes().saturating_sub(taken);
        let end = size_bytes.saturating_add(room).min(self.config.home_bytes_max);
        size_bytes.next_multiple_of(border).max(end - end % border)
    }

    /// Refuses what a part has no room for, up to `end` in its object. What a file has before its
    /// tail may end within a chunk of the smallest size, for which names leave room.
    pub(super) fn check_part_free(
        &mut self,
        place: &PartPlace,
        end: u64,
        bytes: u64,
    ) -> Outcome<()> {
        let PartPlace { part, .. } = place;
        let tail = &part.layout.tail;
        let is_last = part.index == 0 && end.saturating_add(CHUNK_BYTES_MIN) > tail.start_bytes;
        if !tail.is_there() || !is_last || bytes > CHUNK_BYTES_MIN {
            return self.check_free(bytes);
        }
        if self.find_room(bytes)? { Ok(()) } else { Err(Errno::ENOSPC.into()) }
    }
}

#[cfg(test)]
mod tests {
    use mayfly_types::FileId;

    use super::*;

    #[test]
    fn equal_rooms_get_equal_shares_and_none_gets_nothing() {
        let tail = tail_of(&[62 << 20, 62 << 20, 0, 62 << 20], u64::MAX, 186 << 20).expect("room");
        let layout = Layout { width: 5, tail, striped: true, ..Layout::default() };
        assert!(layout.is_possible());
        let lengths: Vec<u64> =
            (1..5).map(|part| layout.length_of_part(FileId(1), part, 186 << 20).0).collect();
        assert_eq!(lengths, [62 << 20, 62 << 20, 0, 62 << 20]);
        assert_eq!(tail_of(&[CHUNK_BYTES_MIN - 1, 0], u64::MAX, 0), None);
        assert_eq!(tail_of(&[62 << 20; 3], u64::MAX, 187 << 20), None);
    }

    #[test]
    fn of_unequal_rooms_nearly_all_is_used() {
        for rooms in [vec![60, 20, 7], vec![1, 2, 3, 4, 5], vec![50, 1, 50], vec![9; 15]] {
            let rooms: Vec<u64> = rooms.iter().map(|room| room << 20).collect();
            let (_, bytes) = best_counts(&rooms).expect("room");
            let total: u64 = rooms.iter().sum();
            assert!(bytes * 100 >= total * 90, "{bytes} of {total} in {rooms:?}");
        }
    }
}
