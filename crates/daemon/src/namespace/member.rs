//! Directories whose entries are spread over shards.
//!
//! A directory's home has its inode. Every other shard that may hold entries of it is a *member*,
//! and keeps a record of its own. That record is made before the member's first entry, and after
//! the home has noted the member durably. So a name is made with what is at hand (does the
//! directory exist, what is inherited), a listing asks members only, and a removal asks each of
//! them to be empty. Number of entries, link count and time of change of the directory are the sums
//! and the latest over home and members.

use mayfly_meta::{
    key,
    record::{DirectoryNode, Inode, Member},
};
use mayfly_types::{Errno, FileId, Times};

use crate::{
    fault::Outcome,
    leases::state::delegation::Executing,
    message::{Answer, DirectoryFacts, MemberFacts, Question},
    namespace::state::member::{Parent, unexpected},
    shard::Shard,
};

impl Shard {
    /// A directory in which a name may be made. This shard becomes a member if it is none yet.
    pub(crate) fn load_parent(&mut self, directory: FileId) -> Outcome<Parent> {
        if self.is_home(directory) {
            let located = self.load_own(directory)?;
            located.directory()?;
            if located.inode.links == 0 {
                return Err(Errno::ENOENT.into());
            }
            return Ok(Parent::Home(located));
        }
        if let Some(member) = self.member(directory)? {
            return Ok(Parent::Member(directory, member));
        }
        let home = self.place.slots.home(directory);
        match self.fact(home, Question::Join(directory))? {
            Answer::Directory(facts) if facts.layout.is_possible() => {
                let DirectoryFacts { mode, gid, layout, .. } = facts;
                Ok(Parent::Member(directory, Member { mode, gid, layout, ..Member::default() }))
            }
            answer => Err(unexpected(&answer)),
        }
    }

    /// A directory that has a name here which is to be removed.
    pub(crate) fn load_holder(&mut self, directory: FileId) -> Outcome<Parent> {
        if self.is_home(directory) {
            return Ok(Parent::Home(self.load_own(directory)?));
        }
        let member = self.member(directory)?.ok_or(Errno::EIO)?;
        Ok(Parent::Member(directory, member))
    }

    pub(crate) fn member(&mut self, directory: FileId) -> Outcome<Option<Member>> {
        let record = self.store.get(&key::numbered(key::MEMBER, directory))?;
        Ok(record.map(Member::decode).transpose()?)
    }

    pub(crate) fn save_member(&mut self, directory: FileId, member: &Member) -> Outcome<()> {
        Ok(self.store.put(&key::numbered(key::MEMBER, directory), &member.encode())?)
    }

    /// Names were added to (`entries` = 1) or removed from (-1) a directory, `links` of them
    /// directories.
    pub(crate) fn touch_directory(
        &mut self,
        parent: Parent,
        entries: i64,
        links: i32,
    ) -> Outcome<()> {
        let now = self.now;
        match parent {
            Parent::Home(located)
                if self.leases.delegations.gather(located.inode.id, (entries, links), now) =>
            {
                // As it was loaded, for the next one.
                self.namespace.touched = Some(located.inode);
                Ok(())
            }
            Parent::Home(mut located) => {
                located.inode.links = located.inode.links.saturating_add_signed(links);
                let node = located.directory_mut()?;
                node.entries = node.entries.saturating_add_signed(entries);
                if node.entries == 0 {
                    self.leases.delegations.emptied(located.inode.id);
                }
                self.changed(&mut located.inode, now);
                self.save_touched(located.inode)
            }
            Parent::Member(directory, mut member) => {
                member.entries = member.entries.saturating_add_signed(entries);
                member.subdirectories = member.subdirectories.saturating_add_signed(links);
                if self.config.times != Times::None {
                    member.mtime = now;
                }
                self.save_member(directory, &member)
            }
        }
    }

    /// What was submitted in a directory was executed: writes what was gathered of its changes.
    pub(crate) fn end_executing(&mut self) -> Outcome<()> {
        let executing = self.leases.delegations.executing.take();
        let Some(Executing { directory, entries, links, last: Some(last), .. }) = executing else {
            return Ok(());
        };
        self.now = last;
        let parent = self.load_holder(directory)?;
        self.touch_directory(parent, entries, links)
    }

    /// Link count and time of change of a directory with members.
    pub(super) fn gather_members(&mut self, inode: &Inode) -> Outcome<MemberFacts> {
        let mut sum = MemberFacts::default();
        let mayfly_meta::record::Content::Directory(DirectoryNode { members, .. }) = &inode.content
        else {
            return Ok(sum);
        };
        if members.is_empty() || inode.links == 0 {
            return Ok(sum);
        }
        for answer in self.facts(members, &Question::Member(inode.id))? {
            match answer {
                Answer::Member(facts) => {
                    sum.entries += facts.entries;
                    sum.subdirectories += facts.subdirectories;
                    sum.mtime = sum.mtime.max(facts.mtime);
                }
                answer => return Err(unexpected(&answer)),
            }
        }
        Ok(sum)
    }

    /// What this shard, as a member, adds to a directory.
    pub(crate) fn member_facts(&mut self, directory: FileId) -> Outcome<MemberFacts> {
        let Some(member) = self.member(directory)? else { return Ok(MemberFacts::default()) };
        let Member { entries, subdirectories, mtime, .. } = member;
        Ok(MemberFacts { entries, subdirectories, mtime })
    }

    /// Notes another member, at the directory's home.
    pub(crate) fn join(&mut self, directory: FileId, shard: u32) -> Outcome<DirectoryFacts> {
        let mut located = self.load_own(directory)?;
        if located.inode.links == 0 {
            return Err(Errno::ENOENT.into());
        }
        let node = located.directory_mut()?;
        if !node.members.contains(&shard) {
            node.members.push(shard);
            self.save(&located)?;
        }
        self.facts_of(&located.inode)
    }

    /// A directory, wherever its home is.
    pub(crate) fn directory_facts(&mut self, directory: FileId) -> Outcome<DirectoryFacts> {
        if self.is_home(directory) {
            let located = self.load_directory(directory)?;
            return self.facts_of(&located.inode);
        }
        let home = self.place.slots.home(directory);
        match self.fact(home, Question::Directory(directory))? {
            Answer::Directory(facts) => Ok(facts),
            answer => Err(unexpected(&answer)),
        }
    }

    fn facts_of(&self, inode: &Inode) -> Outcome<DirectoryFacts> {
        let mayfly_meta::record::Content::Directory(node) = &inode.content else {
            return Err(Errno::ENOTDIR.into());
        };
        Ok(DirectoryFacts {
            parent: node.parent,
            name: node.name.clone(),
            links: inode.links,
            mode: inode.mode,
            gid: inode.gid,
            entries: node.entries,
            members: node.members.clone(),
            layout: inode.layout,
            source: inode.origin.map(|origin| origin.source),
            linked: self.tier.roots.is_linked(inode.id),
        })
    }
}
