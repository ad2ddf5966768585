//! Removing a key, and pages that have become too empty.
//!
//! A page that is less than a third full is put together with a neighbour below the same branch if
//! both fit into nine tenths of a page: so a page is not split again by the next insertion. An
//! empty page goes in any case. Nothing here needs a new page: a removal works on a full disk.

use super::{
    Tree,
    insert::fill,
    page::ROOM_BYTES,
    space::Space,
    walk::{Step, Way},
};
use crate::StoreError;

/// A page with less in it looks for a neighbour, bytes.
const FEW_BYTES: usize = ROOM_BYTES / 3;
/// What two pages that become one may have in it, bytes.
const TOGETHER_BYTES_MAX: usize = ROOM_BYTES / 10 * 9;

impl<S: Space> Tree<S> {
    /// As [`crate::Store::delete`].
    pub(super) fn remove(&mut self, key: &[u8]) -> Result<bool, StoreError> {
        let found = self.find(key)?;
        let Ok(index) = found.index else { return Ok(false) };
        self.take_out(found.leaf, index)?;
        let node = self.pages.node(found.leaf)?;
        if node.used() < FEW_BYTES || node.count == 0 {
            let mut way = self.last.way();
            self.tidy(&mut way, found.leaf)?;
        }
        Ok(true)
    }

    /// Looks after a page that has lost an entry, and after those above it that do so in turn.
    fn tidy(&mut self, way: &mut Way, mut page: u32) -> Result<(), StoreError> {
        loop {
            let node = self.pages.node(page)?;
            let Some(above) = way.last() else { return self.tidy_root(page) };
            if node.used() >= FEW_BYTES && node.count > 0 {
                return Ok(());
            }
            let (empty, at) = (node.count == 0, usize::from(above.index));
            self.often.forget();
            let neighbours = self.pages.node(above.page)?.count;
            if empty {
                self.pages.give_up(page);
                self.take_out(above.page, at)?;
            } else if at + 1 < neighbours && self.join(above, at)?
                || at > 0 && self.join(above, at - 1)?
            {
            } else {
                return Ok(());
            }
            way.pop();
            page = above.page;
        }
    }

    /// Puts the pages below entries `left` and `left + 1` of a branch together, if they fit.
    fn join(&mut self, above: Step, left: usize) -> Result<bool, StoreError> {
        let branch = self.pages.node(above.page)?;
        let (one, other) = (branch.child(left)?, branch.child(left + 1)?);
        if one == other {
            return Err(StoreError::Corrupt("a branch has the same page twice"));
        }
        let (first, second) = (self.pages.node(one)?, self.pages.node(other)?);
        let separator = branch.key(left + 1)?;
        if first.level() != second.level()
            || u16::from(first.level()) + 1 != u16::from(branch.level())
        {
            return Err(StoreError::Corrupt("neighbours on different levels"));
        }
        let more = if first.level() > 0 { separator.len() } else { 0 };
        if first.used() + second.used() + more > TOGETHER_BYTES_MAX {
            return Ok(false);
        }
        self.builder.clear(first.level());
        fill(&mut self.builder, &first, 0, first.count)?;
        // The first key of a branch counts for nothing in its page; here it begins to.
        let behind = usize::from(second.level() > 0 && second.count > 0);
        if behind > 0 {
            self.builder.push_child(separator, second.cell(0)?.stored)?;
        }
        fill(&mut self.builder, &second, behind, second.count)?;
        self.pages.replace(one, self.builder.finish()?)?;
        self.pages.give_up(other);
        self.take_out(above.page, left + 1)?;
        Ok(true)
    }

    /// A root with one page below it is needless, and one with none is an empty leaf.
    fn tidy_root(&mut self, mut root: u32) -> Result<(), StoreError> {
        loop {
            let node = self.pages.node(root)?;
            if node.level() == 0 || node.count > 1 {
                return Ok(());
            }
            self.often.forget();
            if node.count == 0 {
                self.builder.clear(0);
                return self.pages.replace(root, self.builder.finish()?);
            }
            let child = node.child(0)?;
            if u16::from(self.pages.node(child)?.level()) + 1 != u16::from(node.level()) {
                return Err(StoreError::Corrupt("a page on another level than its parent says"));
            }
            self.pages.give_up(root);
            self.pages.set_root(child)?;
            root = child;
        }
    }
}
