//! Every bound of the system, with its unit, checked against each other when compiled.

/// Longest name of a directory entry, bytes (NAME_MAX).
pub const NAME_BYTES_MAX: usize = 255;
/// Longest path, bytes, with its terminating zero (PATH_MAX).
pub const PATH_BYTES_MAX: usize = 4096;
/// Longest target of a symbolic link, bytes.
pub const SYMLINK_BYTES_MAX: usize = 4095;
/// Longest path of the kernel's pipe or socket that stands for one in an instance, bytes.
pub const PLACE_BYTES_MAX: usize = 1024;
/// Symbolic links followed in one walk.
pub const SYMLINK_FOLLOWS_MAX: u32 = 40;
/// Longest name of an extended attribute, bytes (XATTR_NAME_MAX).
pub const XATTR_NAME_BYTES_MAX: usize = 255;
/// Longest value of an extended attribute, bytes.
pub const XATTR_VALUE_BYTES_MAX: usize = 4096;
/// Names and values of the extended attributes of one file together, bytes.
pub const XATTRS_BYTES_MAX: usize = 16 * 1024;
/// Links to one file.
pub const LINKS_MAX: u32 = 65_000;
/// Directories in one directory, for each shard: what a link count can say.
pub const SUBDIRECTORIES_MAX: u32 = u32::MAX / 64;
/// Largest file, bytes: what fits a signed 64-bit offset, less a chunk so that sums cannot
/// overflow.
pub const FILE_BYTES_MAX: u64 = (i64::MAX as u64) - (1 << 40);
/// Contents up to this many bytes live in the inode record.
pub const INLINE_BYTES_MAX: usize = 4096;
/// Default size of a chunk, bytes.
pub const CHUNK_BYTES_DEFAULT: u64 = 512 * 1024;
/// Smallest size of a chunk, bytes. One request moves bytes of one chunk.
pub const CHUNK_BYTES_MIN: u64 = 64 * 1024;
/// Largest size of a chunk, bytes.
pub const CHUNK_BYTES_MAX: u64 = 1 << 30;
/// Slots that names and files hash to.
pub const SLOTS: usize = 65_536;

/// Shards of one daemon, a thread each.
pub const SHARDS_MAX: u32 = 16;
/// Daemons on one host that its programs choose from by their local ranks.
pub const DAEMONS_MAX: u32 = 64;
/// Threads of a daemon that talk to other nodes.
pub const NETWORK_THREADS_MAX: u32 = 16;
/// Open file descriptions on one node.
pub const OPEN_FILES_MAX: u32 = 65_536;
/// Different files open at a time on one node.
pub const FILES_OPEN_MAX: u32 = 65_536;
/// Attached processes on one node.
pub const SESSIONS_MAX: u32 = 4096;
/// Requests under way at once for one session (threads beyond that wait for a lane).
pub const LANES: usize = 16;
/// Requests of one session that its threads have given up and that are still being executed; of
/// more, each keeps its lane until it is answered.
pub const GIVEN_UP_MAX: usize = 256;
/// Body and header of a request, bytes.
pub const REQUEST_BYTES_MAX: usize = TRANSFER_BYTES_MAX + 4096;
/// Body and header of a reply, bytes.
pub const REPLY_BYTES_MAX: usize = TRANSFER_BYTES_MAX + 4096;
/// Writes to objects of one shard that its next daemon hears of: those under way, and the last one
/// of each lane of another node. Of more, one that dies may make some twice, and what others did in
/// between is lost.
pub const STARTED_WRITES_MAX: usize = 1024;
/// File data in one request or reply, bytes: as much as a chunk has by default. To wake all threads
/// that it goes by costs as much as to copy a quarter of it.
pub const TRANSFER_BYTES_MAX: usize = 512 * 1024;
/// What one description of another node's file may have written and its node not sent on yet, under
/// session consistency, bytes: enough for several transfers under way.
pub const BEHIND_BYTES_MAX: usize = 8 * TRANSFER_BYTES_MAX;
/// The same of all descriptions of a node together, bytes. What is beyond goes through at once.
pub const BEHIND_NODE_BYTES_MAX: usize = 16 * BEHIND_BYTES_MAX;
/// What a write that is kept so counts at least, bytes: there is more to keep than its bytes.
pub const BEHIND_WRITE_BYTES_MIN: usize = 4096;
/// A longer write, or read, of another node's file is a request to there whatever the consistency,
/// bytes: to copy it once more costs more than it saves.
pub const SESSION_CALL_BYTES_MAX: usize = TRANSFER_BYTES_MAX / 4;
/// Transfers of one description under way that nobody waits for, of what was written as of what
/// will be read.
pub const SESSION_TRANSFERS_MAX: usize = 4;
/// What is read ahead for all descriptions of a node together, bytes; for each of them it is
/// [`SESSION_TRANSFERS_MAX`] transfers.
pub const AHEAD_NODE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// For how long what was read ahead is given to who reads on, milliseconds.
pub const AHEAD_MS: i64 = 1000;
/// Names of a directory that move to another shard in one transaction.
pub const NAMES_MOVED_MAX: usize = 64;
/// Members of a directory that are asked for entries at the same time.
pub const LISTED_MEMBERS_MAX: usize = 128;
/// Records of a shard that are looked at for one page of an inspection.
pub const INSPECTED_RECORDS_MAX: usize = 2048;
/// Objects of a node in such a page.
pub const INSPECTED_OBJECTS_MAX: usize = 4096;
/// Byte-range locks of one file.
pub const LOCKS_PER_FILE_MAX: usize = 4096;
/// Waits of processes for locks, and places where they may wait, that are looked at to find out
/// whether one wait can ever end. A circle that is not found among so many waits until somebody is
/// interrupted.
pub const DEADLOCK_LOOKS_MAX: usize = 4096;
/// How often that is begun anew because something moved meanwhile.
pub const DEADLOCK_ATTEMPTS_MAX: u32 = 16;
/// How long what was lost on the way to another node has to have taken before it is asked again,
/// seconds.
pub const DEADLOCK_PAUSE_SECONDS: u64 = 1;
/// How long a change of a file waits for mounts whose kernel may keep pages of it, milliseconds.
/// One that has not dealt with it by then is told later that anything may have changed.
pub const NOTICE_MS: u32 = 1_000;
/// Changes that a mount is told of at once; of more it is told that anything may have changed.
pub const NOTICES_MAX: usize = 1024;
/// Names that the kernels of a node's mounts may believe at a time. Of more they are told for no
/// time.
pub const MOUNT_NAMES_MAX: usize = 65_536;
/// Names that a mount asks for at once, and is told of at once.
pub const LEASED_NAMES_MAX: usize = 512;
/// Default deadline of a request, milliseconds. A restarted daemon must fit in it.
pub const DEADLINE_MS_DEFAULT: u64 = 8_000;
/// The shortest deadline that can be chosen, seconds: a lease has half of it, in whole ones.
pub const DEADLINE_SECONDS_MIN: u64 = 2;
/// The longest, seconds.
pub const DEADLINE_SECONDS_MAX: u64 = 3600;
/// How long a daemon believes what another node has told it about a directory's or a symbolic
/// link's name at most, seconds.
pub const LEASE_SECONDS: i64 = 4;

/// A file that has not changed for so long, in a directory that has not either, is taken to stay as
/// it is, milliseconds: other nodes may keep its attributes.
pub const AT_REST_MS: i64 = 1000;

/// Bytes of small files that one answer tells another node to keep.
pub const CONTENTS_TOLD_BYTES_MAX: usize = 256 << 10;
/// Bytes that what a node remembers of other nodes' names and files takes in its records. When
/// there is more, all of it is forgotten.
pub const REMEMBERED_BYTES_MAX: usize = 64 << 20;
/// How long it believes that where requests have this deadline: the owner of a name waits for a
/// node that does not answer for a deadline, and by half of it the node believes nothing any more.
#[must_use]
pub const fn lease_seconds(deadline_ms: u64) -> i64 {
    let half = deadline_ms / 2000;
    if half < LEASE_SECONDS as u64 { half as i64 } else { LEASE_SECONDS }
}

const _: () = assert!(lease_seconds(DEADLINE_SECONDS_MIN * 1000) == 1);
const _: () = assert!(lease_seconds(DEADLINE_MS_DEFAULT) == LEASE_SECONDS);
/// Work for the keeper of a caching tier at a time; of more, each fails with EAGAIN.
pub const TIER_ITEMS_MAX: usize = 65_536;
/// How long an operation waits for something outside, seconds. The deadline of requests in an
/// instance with an origin is longer, unless somebody has chosen another one.
pub const TIER_ITEM_SECONDS: u64 = 240;
/// The deadline of requests in an instance with an origin, seconds. An origin may stand still for
/// minutes, and what is started, or goes back by itself, is fetched as a whole before.
pub const TIER_DEADLINE_SECONDS: u64 = 300;
/// A share of an instance's capacity: it is kept free by taking away what can be fetched again.
pub const TIER_RESERVE_SHARE: u64 = 16;
/// Longest file of an origin that is fetched as a whole, bytes. Others are fetched by chunks.
pub const TIER_WHOLE_BYTES_MAX: u64 = 1 << 20;
/// Shortest chunk, bytes: a power of two. A file has as many chunks as are allowed, at most.
pub const TIER_CHUNK_BYTES_MIN: u64 = 128 << 10;
/// Most chunks of a file; a bit for each is in a record.
pub const TIER_CHUNKS_MAX: u64 = 32_768;
/// Chunks that are fetched at once for one item, at most.
pub const TIER_RUN_CHUNKS_MAX: u64 = 16;
/// Items that are under way for one file to be read from ahead.
pub const TIER_AHEAD_ITEMS_MAX: usize = 4;
/// How far ahead of a reader chunks are fetched, at most.
pub const TIER_AHEAD_CHUNKS_MAX: u64 = TIER_RUN_CHUNKS_MAX * TIER_AHEAD_ITEMS_MAX as u64;
/// Files of which is kept in mind how they are read.
pub const TIER_STREAMS_MAX: usize = 4096;
/// Directories, and files, of which is kept in mind when they were last seen outside.
pub const TIER_KNOWN_MAX: usize = 1 << 20;
/// Files of which is kept in mind what extended attributes they have outside, of
/// [`XATTRS_BYTES_MAX`] each.
pub const TIER_XATTRS_KNOWN_MAX: usize = 1024;
/// So many times as long as a listing took it is believed, if that is longer than other things are.
pub const TIER_LISTING_KEPT: u64 = 8;
/// What each name adds to that time, at most, milliseconds.
pub const TIER_NAME_LISTED_MS: u64 = 2;
/// A listing of so many names, or fewer, is believed as long as other things, however long it took.
pub const TIER_SHORT_LISTING: usize = 64;
/// Who wants one name of a directory that is being listed for longer than this has it looked at
/// alone, milliseconds.
pub const TIER_LONG_LOOK_MS: u64 = 1000;
/// Longest listing of a directory outside, packed, bytes.
pub const TIER_LISTING_BYTES_MAX: usize = 256 << 20;
/// Conflicts and errors that are told.
pub const TIER_NOTES_MAX: usize = 256;
/// Files that are flushed at a time for one request.
pub const TIER_FLUSHES_MAX: usize = 64;
/// Directories of an origin that a node is asked to have at a time.
pub const TIER_SEATS_AT_ONCE: usize = 256;
/// Changes of names that are made here and not yet at the origin, of a shard. When there are more,
/// operations wait as if each were made there first.
pub const TIER_JOURNAL_MAX: usize = 65_536;
/// Of these so many are given to the keeper at a time.
pub const TIER_JOURNAL_AT_ONCE: usize = 16;
/// Directories above a name of a journal: a deeper one is changed outside first.
pub const TIER_JOURNAL_DEPTH_MAX: usize = 256;
/// Files that are pinned.
pub const TIER_PINS_MAX: usize = 1 << 20;
/// Dirty files that are looked at for what is to go back by itself, at a time.
pub const TIER_DUE_SCAN_MAX: usize = 1024;
/// Origins of an instance.
pub const TIER_SOURCES_MAX: usize = 16;

/// How long a starting program waits for the image of a library that has none, milliseconds. Making
/// that of a C library takes tens of them.
pub const IMAGE_WAIT_MS: u32 = 2_000;
/// Images that one instance has made at a time.
pub const IMAGES_MADE_MAX: usize = 4;
/// Processes that may wait for images at a time.
pub const IMAGE_WAITERS_MAX: usize = 512;

const _: () = assert!(TIER_ITEM_SECONDS < TIER_DEADLINE_SECONDS);
const _: () = assert!(TRANSFER_BYTES_MAX as u64 <= CHUNK_BYTES_DEFAULT);
const _: () = assert!(2 * PATH_BYTES_MAX + 4096 <= REQUEST_BYTES_MAX);
const _: () = assert!(INLINE_BYTES_MAX <= TRANSFER_BYTES_MAX);
const _: () = assert!(SESSION_CALL_BYTES_MAX + TRANSFER_BYTES_MAX <= BEHIND_BYTES_MAX);
const _: () = assert!(XATTR_NAME_BYTES_MAX + XATTR_VALUE_BYTES_MAX <= XATTRS_BYTES_MAX);
const _: () = assert!(2 * XATTRS_BYTES_MAX <= TRANSFER_BYTES_MAX);
const _: () = assert!(SESSIONS_MAX.is_multiple_of(64));
