//! Object stores that speak S3.
//!
//! Credentials and the endpoint come from the usual environment (`AWS_ACCESS_KEY_ID`,
//! `AWS_SECRET_ACCESS_KEY`, `AWS_ENDPOINT_URL`, `AWS_REGION` and so on), never from a command line.
//! What an object has no place for stands in its metadata as other tools have it: `mtime`, seconds
//! and nanoseconds since 1970, and `mode`, permission bits in octal digits.
//!
//! [`download`] copies from a store into directories, and [`upload`] the other way.

pub(crate) mod download;
pub(crate) mod files;
pub(crate) mod sink;
pub(crate) mod upload;

use std::{
    collections::HashMap,
    ffi::OsStr,
    fs::File,
    io::Read,
    os::unix::{ffi::OsStrExt, fs::FileExt},
    path::Path,
    sync::Mutex,
    time::{SystemTime, UNIX_EPOCH},
};

use futures_util::StreamExt;
use nix::errno::Errno;
use object_store::{
    Attribute, Attributes, Error, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions,
    PutPayload, WriteMultipart, aws::AmazonS3Builder, path::Path as Key,
};
use tokio::runtime::{Builder, Runtime};

use crate::{
    Problem,
    copy::{
        settle::{Moment, Stat},
        whole::failed,
    },
    report::by_heart,
};

/// What an address begins with.
const SCHEME: &str = "s3://";
/// A larger file is sent in parts of so many bytes, of which a store takes 10,000.
pub(crate) const PART_BYTES: u64 = 16 << 20;
const PARTS_MAX: u64 = 10_000;
/// So many parts of a file are on their way at a time.
const PARTS_AT_ONCE: usize = 4;
/// Threads of the library beside those of the stage, which wait for them.
const THREADS: usize = 2;
const TIME: &str = "mtime";
const MODE: &str = "mode";

/// A prefix in a bucket.
#[derive(Debug)]
pub struct Bucket {
    store: Box<dyn ObjectStore>,
    /// What all names here begin with.
    prefix: Key,
    runtime: Runtime,
}

/// An address that is none, or of which nothing can be reached.
#[derive(Debug, thiserror::Error)]
#[error("{0}: {1}")]
pub struct BadBucket(String, String);

/// An object, as a listing has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) bytes: u64,
    /// When it was put there.
    pub(crate) put: Moment,
}

impl Listed {
    /// Is it the object that another look has seen? A listing may tell its time more exactly.
    pub(crate) fn is_still(&self, later: &Listed) -> bool {
        (self.bytes, self.put.0) == (later.bytes, later.put.0)
    }
}

impl Bucket {
    /// Is it the address of one?
    #[must_use]
    pub fn is_address(text: &OsStr) -> bool {
        text.as_bytes().starts_with(SCHEME.as_bytes())
    }

    /// The prefix at an address: `s3://BUCKET/PREFIX`.
    ///
    /// # Errors
    /// It is no such address, or the environment makes no sense.
    pub fn open(address: &OsStr) -> Result<Bucket, BadBucket> {
        let bad = |why: String| BadBucket(address.to_string_lossy().into_owned(), why);
        let text = address.to_str().and_then(|text| text.strip_prefix(SCHEME));
        let text = text.ok_or_else(|| bad("this is no s3://BUCKET/PREFIX".to_owned()))?;
        let (bucket, prefix) = text.split_once('/').unwrap_or((text, ""));
        if bucket.is_empty() {
            return Err(bad("it names no bucket".to_owned()));
        }
        let prefix = Key::parse(prefix).map_err(|error| bad(error.to_string()))?;
        let store = AmazonS3Builder::from_env().with_bucket_name(bucket).build();
        let store = Box::new(store.map_err(|error| bad(error.to_string()))?);
        Bucket::of(store, prefix).map_err(|error| bad(error.to_string()))
    }

    fn of(store: Box<dyn ObjectStore>, prefix: Key) -> std::io::Result<Bucket> {
        let runtime = Builder::new_multi_thread().worker_threads(THREADS).enable_all().build()?;
        Ok(Bucket { store, prefix, runtime })
    }

    /// The object that a path below the tree's own name becomes.
    pub(crate) fn key(&self, inner: &Path) -> Result<Key, Problem> {
        let text = inner.to_str().ok_or(Problem::NoKey)?;
        let key = match (self.prefix.as_ref(), text) {
            ("", text) => text.to_owned(),
            (prefix, "") => prefix.to_owned(),
            (prefix, text) => format!("{prefix}/{text}"),
        };
        Key::parse(key).map_err(|_| Problem::NoKey)
    }

    /// The path below the prefix that an object has.
    pub(crate) fn inner<'a>(&self, key: &'a Key) -> Option<&'a str> {
        below(&self.prefix, key)
    }

    /// What all names here begin with, for people.
    pub(crate) fn prefix(&self) -> &str {
        self.prefix.as_ref()
    }

    /// The object that has the prefix itself as its name.
    pub(crate) fn itself(&self) -> Option<(Key, Listed)> {
        if self.prefix.as_ref().is_empty() {
            return None;
        }
        let (_, listed) = self.metadata(&self.prefix).ok()?;
        Some((self.prefix.clone(), listed))
    }

    /// Hands each object to `take`, until that has had enough.
    pub(crate) fn list(&self, mut take: impl FnMut(Key, Listed) -> bool) -> Result<(), Problem> {
        self.runtime.block_on(async {
            let prefix = Some(&self.prefix).filter(|prefix| !prefix.as_ref().is_empty());
            let mut all = self.store.list(prefix);
            while let Some(object) = all.next().await {
                let object = object.map_err(|error| problem("list the bucket", &error))?;
                let listed = Listed { bytes: object.size, put: put_at(&object) };
                if !take(object.location, listed) {
                    break;
                }
            }
            Ok(())
        })
    }

    /// All of them.
    pub(crate) fn list_all(&self) -> Result<Listing, Problem> {
        let mut all = HashMap::new();
        self.list(|key, listed| {
            all.insert(key, listed);
            true
        })?;
        Ok(Listing(Mutex::new(all)))
    }

    pub(crate) fn put(&self, key: &Key, stat: &Stat, content: &[u8]) -> Result<(), Problem> {
        let options = PutOptions { attributes: attributes(stat), ..PutOptions::default() };
        let payload = PutPayload::from(content.to_vec());
        let put = self.runtime.block_on(self.store.put_opts(key, payload, options));
        put.map(drop).map_err(|error| problem("put the object", &error))
    }

    /// Puts a large file, of which `turn` is told before each part; `is_still` says at the end
    /// whether it has changed meanwhile.
    pub(crate) fn put_large(
        &self,
        key: &Key,
        stat: &Stat,
        mut source: &File,
        mut turn: impl FnMut(u64) -> Result<(), Problem>,
        is_still: impl Fn() -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        let read = |bytes: u64| {
            turn(bytes)?;
            let mut content = vec![0; bytes as usize];
            source.read_exact(&mut content).map_err(|error| match error.kind() {
                std::io::ErrorKind::UnexpectedEof => Problem::Changing,
                _ => failed("read the file", &error),
            })?;
            Ok(content)
        };
        let sent = |error: &Error| problem("send a part", error);
        let what = (key, attributes(stat), stat.bytes);
        self.runtime.block_on(self.send_parts(what, read, async || is_still(), sent))
    }

    /// Puts an object of so many bytes, which `read` hands out, by parts. It is there when `check`
    /// has been content with what was sent.
    async fn send_parts<E>(
        &self,
        (key, attributes, bytes): (&Key, Attributes, u64),
        mut read: impl FnMut(u64) -> Result<Vec<u8>, E>,
        check: impl AsyncFnOnce() -> Result<(), E>,
        refused: impl Fn(&Error) -> E,
    ) -> Result<(), E> {
        let part = PART_BYTES.max(bytes.div_ceil(PARTS_MAX));
        let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
        let upload = self.store.put_multipart_opts(key, options).await;
        let upload = upload.map_err(|error| refused(&error))?;
        let mut upload = WriteMultipart::new_with_chunk_size(upload, part as usize);
        let sent = async {
            let mut left = bytes;
            while left > 0 {
                let ready = upload.wait_for_capacity(PARTS_AT_ONCE).await;
                ready.map_err(|error| refused(&error))?;
                let count = left.min(part);
                upload.put(read(count)?.into());
                left -= count;
            }
            check().await
        };
        match sent.await {
            Ok(()) => upload.finish().await.map(drop).map_err(|error| refused(&error)),
            Err(error) => {
                let _ = upload.abort().await;
                Err(error)
            }
        }
    }

    pub(crate) fn delete(&self, key: &Key) -> Result<(), Problem> {
        let deleted = self.runtime.block_on(self.store.delete(key));
        deleted.map_err(|error| problem("remove the object", &error))
    }

    /// Bytes of an object.
    pub(crate) fn range(&self, key: &Key, from: u64, to: u64) -> Result<Vec<u8>, Problem> {
        let range = self.store.get_range(key, from..to);
        let range = self.runtime.block_on(range);
        range.map(Into::into).map_err(|error| problem("get the object", &error))
    }

    /// Reads both an object and a file of so many bytes again.
    pub(crate) fn compare(&self, key: &Key, bytes: u64, file: &File) -> Result<(), Problem> {
        let mut at = 0;
        while at < bytes {
            let end = (at + PART_BYTES).min(bytes);
            let mut content = vec![0; (end - at) as usize];
            let read = file.read_exact_at(&mut content, at);
            read.map_err(|error| failed("read the file again", &error))?;
            if self.range(key, at, end)? != content {
                return Err(Problem::Differs);
            }
            at = end;
        }
        Ok(())
    }

    /// The content of an object that is not longer than a part, unless it has changed since it was
    /// listed; and what its metadata says of the file that it was.
    pub(crate) fn get(&self, key: &Key, bytes: u64) -> Result<(Vec<u8>, ObjectMetadata), Problem> {
        self.runtime.block_on(async {
            let of = |error: Error| problem("get the object", &error);
            let got = self.store.get(key).await.map_err(of)?;
            if got.meta.size != bytes {
                return Err(Problem::Changing);
            }
            let metadata = ObjectMetadata::of(&got.attributes);
            Ok((got.bytes().await.map_err(of)?.into(), metadata))
        })
    }

    /// What the metadata of an object says of the file that it was, and when it was put there.
    pub(crate) fn metadata(&self, key: &Key) -> Result<(ObjectMetadata, Listed), Problem> {
        let options = object_store::GetOptions { head: true, ..Default::default() };
        let got = self.runtime.block_on(self.store.get_opts(key, options));
        let got = got.map_err(|error| problem("look at the object", &error))?;
        let listed = Listed { bytes: got.meta.size, put: put_at(&got.meta) };
        Ok((ObjectMetadata::of(&got.attributes), listed))
    }
}

/// The path that an object has below a key.
fn below<'a>(key: &Key, object: &'a Key) -> Option<&'a str> {
    let rest = object.as_ref().strip_prefix(key.as_ref())?;
    match key.as_ref().is_empty() {
        true => Some(rest),
        false => rest.strip_prefix('/').or_else(|| rest.is_empty().then_some(rest)),
    }
}

/// What a bucket had when it was listed.
#[derive(Debug)]
pub(crate) struct Listing(Mutex<HashMap<Key, Listed>>);

impl Listing {
    /// What there is of this name. It is no stray from here on.
    pub(crate) fn take(&self, key: &Key) -> Option<Listed> {
        self.0.lock().ok()?.remove(key)
    }

    /// Those of which nobody has asked.
    pub(crate) fn strays(&self) -> Vec<Key> {
        let all = self.0.lock();
        all.map(|all| all.keys().cloned().collect()).unwrap_or_default()
    }
}

/// What is kept of a file in the metadata of its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ObjectMetadata {
    pub(crate) modified: Option<Moment>,
    pub(crate) mode: Option<u32>,
}

impl ObjectMetadata {
    fn of(attributes: &Attributes) -> ObjectMetadata {
        let text = |name: &'static str| {
            attributes.get(&Attribute::Metadata(name.into())).map(|value| value.as_ref().to_owned())
        };
        let modified = text(TIME).and_then(|text| {
            let (seconds, rest) = text.split_once('.').unwrap_or((&text, ""));
            let digits: String = rest.chars().chain("000000000".chars()).take(9).collect();
            Some((seconds.parse().ok()?, digits.parse().ok().filter(|part| *part >= 0)?))
        });
        let mode = text(MODE).and_then(|digits| u32::from_str_radix(&digits, 8).ok());
        ObjectMetadata { modified, mode: mode.map(|mode| mode & 0o777) }
    }
}

fn attributes(stat: &Stat) -> Attributes {
    attributes_of(stat.modified, stat.permissions())
}

fn attributes_of((seconds, nanoseconds): Moment, mode: u32) -> Attributes {
    let pairs =
        [(TIME, format!("{seconds}.{nanoseconds:09}")), (MODE, format!("{:o}", mode & 0o777))];
    pairs.into_iter().map(|(name, value)| (Attribute::Metadata(name.into()), value)).collect()
}

fn put_at(object: &ObjectMeta) -> Moment {
    let time = SystemTime::from(object.last_modified);
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    (since.as_secs() as i64, i64::from(since.subsec_nanos()))
}

/// As an errno where there is one.
fn problem(doing: &'static str, error: &Error) -> Problem {
    let errno = match error {
        Error::NotFound { .. } => Errno::ENOENT,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => Errno::EACCES,
        other => return Problem::Store { doing, why: by_heart(&reasons(other)) },
    };
    Problem::Failed { doing, errno }
}

/// The innermost reason is what helps; those around it say where it was met.
fn reasons(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    #[test]
    fn names_are_objects_below_the_prefix_and_what_s3_refuses_is_told() {
        let bucket = Bucket::of(Box::new(InMemory::new()), Key::from("run/17")).expect("a bucket");
        let key = bucket.key(Path::new("a/b c~*%")).expect("a name");
        assert_eq!(key.as_ref(), "run/17/a/b c~*%");
        assert_eq!(bucket.inner(&key), Some("a/b c~*%"));
        assert_eq!(bucket.inner(&Key::from("run/170")), None);
        assert_eq!(bucket.key(Path::new("")).expect("itself").as_ref(), "run/17");
        for bad in [&b"a\nb"[..], b"\xff"] {
            assert_eq!(bucket.key(Path::new(OsStr::from_bytes(bad))), Err(Problem::NoKey));
        }
    }

    #[test]
    fn what_is_kept_of_a_file_is_read_again() {
        let stat = Stat { mode: 0o640, modified: (12, 34), ..Stat::unseen() };
        let metadata = ObjectMetadata::of(&attributes(&stat));
        assert_eq!(metadata, ObjectMetadata { modified: Some((12, 34)), mode: Some(0o640) });
        let other = |text: &'static str| {
            let pair = (Attribute::Metadata(TIME.into()), text);
            ObjectMetadata::of(&[pair].into_iter().collect()).modified
        };
        assert_eq!(other("7.5"), Some((7, 500_000_000)));
        assert_eq!(other("7"), Some((7, 0)));
        assert_eq!(other("yesterday"), None);
        assert_eq!(other("1.-5"), None);
    }

    #[test]
    fn an_address_names_a_bucket() {
        assert!(Bucket::is_address(OsStr::new("s3://b/x")));
        assert!(!Bucket::is_address(OsStr::new("s3:/b")));
        assert!(Bucket::open(OsStr::new("s3:///x")).is_err());
        assert!(Bucket::open(OsStr::new("s3://b/../x")).is_err());
    }
}
