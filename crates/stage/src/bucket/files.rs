//! Single objects, looked at and changed as files are: what a caching tier does with a bucket.
//!
//! A path is that below the bucket's prefix, without a slash at either end. Several threads may
//! call at a time.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    io::Read,
    ops::Range,
    path::Path,
};

use futures_util::{StreamExt, TryStreamExt};
use nix::errno::Errno;
use object_store::{
    Attribute, Attributes, Error, GetOptions, GetRange, GetResult, ObjectMeta, PutMode, PutOptions,
    PutPayload, UpdateVersion, path::Path as Key,
};

use super::{Bucket, ObjectMetadata, PART_BYTES, attributes_of, below, put_at};
use crate::copy::settle::Moment;

/// Objects that are looked at at a time.
const LOOKS_AT_ONCE: usize = 32;
/// Who wrote an object, in its metadata.
const MARK: &str = "mayfly-mark";

/// What was refused, and why.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{doing}: {why}")]
pub struct Refused {
    doing: &'static str,
    why: String,
    /// The errno that says it best.
    pub errno: i32,
}

impl Refused {
    fn new(doing: &'static str, error: &Error) -> Refused {
        let errno = match error {
            Error::NotFound { .. } => Errno::ENOENT,
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => Errno::EACCES,
            Error::AlreadyExists { .. } => Errno::EEXIST,
            Error::Precondition { .. } => Errno::ESTALE,
            Error::NotSupported { .. } | Error::NotImplemented => Errno::EOPNOTSUPP,
            _ => Errno::EIO,
        };
        Refused { doing, why: super::reasons(error), errno: errno as i32 }
    }

    fn of(doing: &'static str, errno: Errno) -> Refused {
        Refused { doing, why: errno.desc().to_owned(), errno: errno as i32 }
    }
}

/// An object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Its length.
    pub bytes: u64,
    /// When it was put there.
    pub put: Moment,
    /// A number of its ETag: another one after each change. 0 where the store tells none.
    pub tag: u64,
    etag: Option<String>,
    /// The time of the file that it was, if its metadata were looked at and tell.
    pub modified: Option<Moment>,
    /// Its permission bits.
    pub mode: Option<u32>,
    /// Who wrote it, as [`About::mark`] said.
    pub mark: Option<u64>,
}

impl Object {
    fn of(meta: &ObjectMeta, attributes: &Attributes) -> Object {
        let ObjectMetadata { modified, mode } = ObjectMetadata::of(attributes);
        let mark = attributes.get(&Attribute::Metadata(MARK.into()));
        let mut hasher = DefaultHasher::new();
        meta.e_tag.hash(&mut hasher);
        Object {
            bytes: meta.size,
            put: put_at(meta),
            tag: if meta.e_tag.is_some() { hasher.finish() } else { 0 },
            etag: meta.e_tag.clone(),
            modified,
            mode,
            mark: mark.and_then(|text| u64::from_str_radix(text, 16).ok()),
        }
    }

    /// Is it the object that another look has seen? A listing may tell its time more exactly, and
    /// some stores do not tell the ETag each time.
    #[must_use]
    pub fn is_still(&self, later: &Object) -> bool {
        let tagged = self.tag == later.tag || self.tag == 0 || later.tag == 0;
        tagged && (self.bytes, self.put.0) == (later.bytes, later.put.0)
    }
}

/// What is kept of a file in the metadata of its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    /// Its time.
    pub modified: Moment,
    /// Its permission bits.
    pub mode: u32,
    /// Who writes it.
    pub mark: u64,
}

impl About {
    fn attributes(&self) -> Attributes {
        let mut attributes = attributes_of(self.modified, self.mode);
        let mark = format!("{:016x}", self.mark);
        attributes.insert(Attribute::Metadata(MARK.into()), mark.into());
        attributes
    }
}

/// What must be there for an object to be put.
#[derive(Debug, Clone, Copy)]
pub enum Expected<'a> {
    /// Nothing.
    Nothing,
    /// This one.
    Object(&'a Object),
}

/// A name below a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Child {
    /// An object, of which only the listing was looked at.
    Object(Object),
    /// There are objects below it.
    Directory,
}

impl Bucket {
    fn key_of(&self, path: &str) -> Result<Key, Refused> {
        self.key(Path::new(path)).map_err(|_| Refused::of("name an object", Errno::EINVAL))
    }

    /// The names right below a path, in no order.
    ///
    /// # Errors
    /// The store refuses.
    pub fn children(&self, path: &str) -> Result<Vec<(String, Child)>, Refused> {
        let key = self.key_of(path)?;
        let doing = "list the bucket";
        let prefix = Some(&key).filter(|key| !key.as_ref().is_empty());
        let listed = self.runtime.block_on(self.store.list_with_delimiter(prefix));
        let listed = listed.map_err(|error| Refused::new(doing, &error))?;
        let (mut children, mut objects) = (HashMap::new(), Vec::new());
        for below in &listed.common_prefixes {
            if let Some((name, _)) = first_part(&key, below) {
                children.insert(name.to_owned(), Child::Directory);
            }
        }
        for object in &listed.objects {
            match first_part(&key, &object.location) {
                // Some stores list all that is below.
                Some((name, true)) => {
                    children.insert(name.to_owned(), Child::Directory);
                }
                Some((name, false)) => {
                    let object = Object::of(object, &Attributes::new());
                    objects.push((name.to_owned(), Child::Object(object)));
                }
                None => {}
            }
        }
        // An object hides what is below its name.
        children.extend(objects);
        Ok(children.into_iter().collect())
    }

    /// Whether there is an object below a path.
    ///
    /// # Errors
    /// The store refuses.
    pub fn has_below(&self, path: &str) -> Result<bool, Refused> {
        let key = self.key_of(path)?;
        let prefix = Some(&key).filter(|key| !key.as_ref().is_empty());
        self.runtime.block_on(async {
            let mut all = self.store.list(prefix);
            while let Some(object) = all.next().await {
                let object = object.map_err(|error| Refused::new("list the bucket", &error))?;
                if first_part(&key, &object.location).is_some() {
                    return Ok(true);
                }
            }
            Ok(false)
        })
    }

    /// The object of a path, with its metadata; nothing when there is none.
    ///
    /// # Errors
    /// The store refuses.
    pub fn look(&self, path: &str) -> Result<Option<Object>, Refused> {
        let key = self.key_of(path)?;
        self.runtime.block_on(self.look_at(&key))
    }

    /// The same of several, in their order.
    ///
    /// # Errors
    /// The store refuses.
    pub fn look_at_all(&self, paths: &[String]) -> Result<Vec<Option<Object>>, Refused> {
        let keys = paths.iter().map(|path| self.key_of(path)).collect::<Result<Vec<_>, _>>()?;
        self.runtime.block_on(async {
            let looks = futures_util::stream::iter(&keys).map(|key| self.look_at(key));
            looks.buffered(LOOKS_AT_ONCE).try_collect().await
        })
    }

    async fn look_at(&self, key: &Key) -> Result<Option<Object>, Refused> {
        let options = GetOptions { head: true, ..GetOptions::default() };
        match self.store.get_opts(key, options).await {
            Ok(got) => Ok(Some(Object::of(&got.meta, &got.attributes))),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(Refused::new("look at the object", &error)),
        }
    }

    /// Bytes of an object, and which object that was; fewer where it ends.
    ///
    /// # Errors
    /// The store refuses.
    pub fn read(&self, path: &str, range: Range<u64>) -> Result<(Object, Vec<u8>), Refused> {
        let key = self.key_of(path)?;
        let doing = "get the object";
        let options = match range.is_empty() {
            true => GetOptions { head: true, ..GetOptions::default() },
            false => {
                GetOptions { range: Some(GetRange::Bounded(range.clone())), ..Default::default() }
            }
        };
        self.runtime.block_on(async {
            let got = self.store.get_opts(&key, options).await;
            let got: GetResult = got.map_err(|error| Refused::new(doing, &error))?;
            let object = Object::of(&got.meta, &got.attributes);
            if range.is_empty() {
                return Ok((object, Vec::new()));
            }
            let bytes = got.bytes().await.map_err(|error| Refused::new(doing, &error))?;
            Ok((object, bytes.into()))
        })
    }

    /// Puts an object of so many bytes. ESTALE or EEXIST when what is there is not as expected; of
    /// one that is longer than a part that is looked for before its end, since a store that takes
    /// parts has no condition for them.
    ///
    /// # Errors
    /// The store refuses, or the source cannot be read.
    pub fn put_file(
        &self,
        path: &str,
        about: &About,
        (source, bytes): (&mut dyn Read, u64),
        expected: Expected<'_>,
    ) -> Result<(), Refused> {
        let key = self.key_of(path)?;
        let mut read = |count: u64| -> Result<Vec<u8>, Refused> {
            let mut content = vec![0; count as usize];
            let done = source.read_exact(&mut content);
            done.map_err(|error| {
                let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
                Refused::of("read what is to be put", errno)
            })?;
            Ok(content)
        };
        if bytes <= PART_BYTES {
            let content = read(bytes)?;
            return self.runtime.block_on(self.put_if(&key, about, content, expected));
        }
        let check = async || self.check_expected(&key, expected).await;
        let refused = |error: &Error| Refused::new("send a part", error);
        let what = (&key, about.attributes(), bytes);
        self.runtime.block_on(self.send_parts(what, read, check, refused))
    }

    async fn check_expected(&self, key: &Key, expected: Expected<'_>) -> Result<(), Refused> {
        let doing = "put the object";
        match (self.look_at(key).await?, expected) {
            (None, Expected::Nothing) => Ok(()),
            (Some(_), Expected::Nothing) => Err(Refused::of(doing, Errno::EEXIST)),
            (Some(there), Expected::Object(object)) if there.is_still(object) => Ok(()),
            (_, Expected::Object(_)) => Err(Refused::of(doing, Errno::ESTALE)),
        }
    }

    async fn put_if(
        &self,
        key: &Key,
        about: &About,
        content: Vec<u8>,
        expected: Expected<'_>,
    ) -> Result<(), Refused> {
        // Not all stores keep to the condition that goes with it.
        self.check_expected(key, expected).await?;
        let mode = match expected {
            Expected::Nothing => PutMode::Create,
            Expected::Object(Object { etag: Some(etag), .. }) => {
                PutMode::Update(UpdateVersion { e_tag: Some(etag.clone()), version: None })
            }
            Expected::Object(_) => PutMode::Overwrite,
        };
        let payload = PutPayload::from(content);
        let put = async |mode| {
            let options = PutOptions { mode, attributes: about.attributes(), ..Default::default() };
            self.store.put_opts(key, payload.clone(), options).await
        };
        let done = match put(mode).await {
            Err(Error::NotImplemented | Error::NotSupported { .. }) => {
                put(PutMode::Overwrite).await
            }
            done => done,
        };
        done.map(drop).map_err(|error| Refused::new("put the object", &error))
    }

    /// Gives an object other metadata: it is read and put again.
    ///
    /// # Errors
    /// The store refuses; EFBIG where the object is longer than a part; ESTALE when it is changed
    /// meanwhile.
    pub fn put_about(&self, path: &str, object: &Object, about: &About) -> Result<(), Refused> {
        if object.bytes > PART_BYTES {
            return Err(Refused::of("change the object's metadata", Errno::EFBIG));
        }
        let (there, content) = self.read(path, 0..object.bytes)?;
        if !there.is_still(object) || content.len() as u64 != object.bytes {
            return Err(Refused::of("change the object's metadata", Errno::ESTALE));
        }
        self.put_file(path, about, (&mut &*content, object.bytes), Expected::Object(object))
    }

    /// Makes another object of it, in the store.
    ///
    /// # Errors
    /// The store refuses.
    pub fn copy_to(&self, from: &str, to: &str) -> Result<(), Refused> {
        let (from, to) = (self.key_of(from)?, self.key_of(to)?);
        let copied = self.runtime.block_on(self.store.copy(&from, &to));
        copied.map_err(|error| Refused::new("copy the object", &error))
    }

    /// Removes an object.
    ///
    /// # Errors
    /// The store refuses.
    pub fn remove(&self, path: &str) -> Result<(), Refused> {
        let key = self.key_of(path)?;
        let removed = self.runtime.block_on(self.store.delete(&key));
        removed.map_err(|error| Refused::new("remove the object", &error))
    }
}

/// The first part of the path that an object has below a key, and whether that goes on.
fn first_part<'a>(key: &Key, object: &'a Key) -> Option<(&'a str, bool)> {
    let below = below(key, object)?;
    match below.split_once('/') {
        Some((name, _)) => Some((name, true)),
        None => Some((below, false)).filter(|(name, _)| !name.is_empty()),
    }
}
