//! Bytes of a file: unpacked, without byte order mark, looked at before they are read.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use crate::error::{IoError, Place, Result};
use crate::json;

/// How much of a file's text is looked at to tell its format.
const HEAD: usize = 1 << 16;

/// How much is read at once where the first JSON object is longer than that.
const PIECE: u64 = 1 << 20;

/// The first bytes of a Parquet file.
const PARQUET: &[u8] = b"PAR1";

/// A file's content, unpacked, with its beginning looked at.
pub struct Input {
    /// The file's name as the user gave it.
    pub name: String,
    /// How it was packed, if it was: `gzip` or `zstd`.
    pub compression: Option<&'static str>,
    /// Its beginning.
    pub head: Head,
    /// What was read to look at it.
    ahead: Vec<u8>,
    /// What follows.
    rest: Box<dyn BufRead>,
}

/// The beginning of a file: 64 KiB of text, and the keys of the first JSON object however long
/// that is, since a tool's own keys may stand behind its arrays.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// The text, cut at a character.
    pub text: String,
    /// Whether it is the whole file.
    pub whole: bool,
    /// The keys of the first JSON object's outermost level, if the file begins with an object.
    pub keys: Vec<String>,
    /// The keys one level below, as `metadata.version`.
    pub inner_keys: Vec<String>,
    /// The keys of a list's first element, if the file begins with a list of objects.
    pub element_keys: Vec<String>,
    /// The line in which the file ends before that object does, if it does.
    pub ends_early: Option<u64>,
    /// Whether it is that of a Parquet file; there is no text then.
    pub parquet: bool,
}

impl Head {
    /// Whether the file begins with a JSON object.
    #[must_use]
    pub fn is_json_object(&self) -> bool {
        self.text.trim_start().starts_with('{')
    }

    /// Whether the first JSON object has that key.
    #[must_use]
    pub fn has_key(&self, key: &str) -> bool {
        self.keys.iter().any(|k| k == key)
    }

    /// Whether an object right below has that key: `metadata.version`.
    #[must_use]
    pub fn has_inner_key(&self, key: &str) -> bool {
        self.inner_keys.iter().any(|k| k == key)
    }

    /// Whether the file is a list whose first element has that key.
    #[must_use]
    pub fn has_element_key(&self, key: &str) -> bool {
        self.element_keys.iter().any(|k| k == key)
    }

    /// The first line that is not blank.
    #[must_use]
    pub fn first_line(&self) -> &str {
        self.text.lines().find(|l| !l.trim().is_empty()).unwrap_or("")
    }
}

impl Input {
    /// Unpacks `reader` if its first bytes say so, and looks at the beginning.
    ///
    /// # Errors
    ///
    /// [`IoError::Unreadable`], [`IoError::Compression`], [`IoError::Empty`] or
    /// [`IoError::Encoding`] for content that is no UTF-8 text.
    pub fn new(name: &str, reader: impl Read + 'static) -> Result<Self> {
        let mut packed: Box<dyn BufRead> = Box::new(BufReader::new(reader));
        let magic = peek(name, &mut packed, 4)?;
        let (compression, mut reader): (_, Box<dyn BufRead>) = if magic.starts_with(&[0x1f, 0x8b]) {
            let unpacked = flate2::bufread::MultiGzDecoder::new(packed);
            (Some("gzip"), Box::new(BufReader::new(unpacked)))
        } else if magic.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
            (Some("zstd"), unpack_zstd(name, packed)?)
        } else {
            (None, packed)
        };
        let mut ahead = Vec::new();
        read_some(name, &mut reader, HEAD as u64, &mut ahead)?;
        let whole = ahead.len() < HEAD;
        if ahead.is_empty() {
            return Err(IoError::Empty {
                at: Box::new(Place::file(name)),
                expected: "benchmark results or a request log".to_owned(),
            });
        }
        let mut input =
            Self { name: name.to_owned(), compression, head: Head::default(), ahead, rest: reader };
        input.head.whole = whole;
        if input.ahead.starts_with(PARQUET) {
            input.head.parquet = true;
            return Ok(input);
        }
        if input.ahead.starts_with(&[0xef, 0xbb, 0xbf]) {
            input.ahead.drain(..3);
        }
        input.head.text = text_of(name, input.ahead.clone(), whole)?;
        input.look_for_keys()?;
        Ok(input)
    }

    /// Finds the keys of the first JSON object, reading on until it ends: who reads the file needs
    /// it as a whole anyway.
    fn look_for_keys(&mut self) -> Result<()> {
        let begin = self.ahead.trim_ascii_start();
        let (list, begin) = match begin.strip_prefix(b"[") {
            Some(elements) => (true, elements.trim_ascii_start()),
            None => (false, begin),
        };
        if !begin.starts_with(b"{") {
            return Ok(());
        }
        let mut scan = json::Scan::default();
        scan.push(begin);
        let mut more = !self.head.whole;
        while scan.documents == 0 && more {
            let before = self.ahead.len();
            read_some(&self.name, &mut self.rest, PIECE, &mut self.ahead)?;
            let piece = self.ahead.get(before..).unwrap_or_default();
            more = !piece.is_empty();
            scan.push(piece);
        }
        if scan.documents == 0 {
            let lines = memchr::memchr_iter(b'\n', self.ahead.trim_ascii_end()).count();
            self.head.ends_early = Some(lines as u64 + 1);
        }
        if list {
            self.head.element_keys = scan.keys;
        } else {
            (self.head.keys, self.head.inner_keys) = (scan.keys, scan.inner_keys);
        }
        Ok(())
    }

    /// All bytes.
    ///
    /// # Errors
    ///
    /// [`IoError::Unreadable`] or [`IoError::Encoding`].
    pub fn into_text(self) -> Result<String> {
        let name = self.name.clone();
        text_of(&name, self.into_bytes()?, true)
    }

    /// All bytes, whatever they are.
    pub(crate) fn into_bytes(mut self) -> Result<Vec<u8>> {
        self.rest.read_to_end(&mut self.ahead).map_err(|e| unreadable(&self.name, &e))?;
        Ok(self.ahead)
    }

    /// The content line by line.
    #[must_use]
    pub fn into_lines(self) -> Lines {
        let name = self.name.clone();
        Lines { name, reader: self.into_reader(), buffer: Vec::new(), line: 0 }
    }

    /// The content as a stream.
    #[must_use]
    pub fn into_reader(self) -> Box<dyn BufRead> {
        Box::new(io::Cursor::new(self.ahead).chain(self.rest))
    }
}

#[cfg(feature = "zstd")]
fn unpack_zstd(name: &str, packed: Box<dyn BufRead>) -> Result<Box<dyn BufRead>> {
    let unpacked =
        zstd::stream::read::Decoder::with_buffer(packed).map_err(|e| unreadable(name, &e))?;
    Ok(Box::new(BufReader::new(unpacked)))
}

#[cfg(not(feature = "zstd"))]
fn unpack_zstd(name: &str, _: Box<dyn BufRead>) -> Result<Box<dyn BufRead>> {
    Err(IoError::Compression {
        at: Box::new(Place::file(name)),
        found: "is compressed with zstd, which this build cannot unpack".to_owned(),
        expected: "a plain or gzip file, or a build with the feature `zstd`".to_owned(),
    })
}

/// Opens a file and looks at its beginning; says its name for messages.
pub(crate) fn open(path: &Path) -> Result<(String, Input)> {
    let name = path.display().to_string();
    let input = Input::new(&name, open_file(path)?)?;
    Ok((name, input))
}

/// Opens a file that is no directory, for [`read`](crate::read()) or [`stream`](crate::stream()).
///
/// # Errors
///
/// [`IoError`]: a file that cannot be opened.
pub fn open_file(path: &Path) -> Result<File> {
    File::open(path).map_err(|e| unreadable(&path.display().to_string(), &e))
}

/// What the system says about a read that failed.
pub(crate) fn unreadable(name: &str, e: &io::Error) -> IoError {
    IoError::Unreadable {
        at: Box::new(Place::file(name)),
        reason: match e.kind() {
            io::ErrorKind::UnexpectedEof => {
                "the compressed data end too early, or other bytes follow them: is the file whole?"
                    .to_owned()
            }
            _ => e.to_string(),
        },
    }
}

/// Up to `n` first bytes of a stream, which stay in it.
fn peek(name: &str, reader: &mut Box<dyn BufRead>, n: u64) -> Result<Vec<u8>> {
    let mut head = Vec::new();
    read_some(name, reader, n, &mut head)?;
    let rest = std::mem::replace(reader, Box::new(io::empty()));
    *reader = Box::new(io::Cursor::new(head.clone()).chain(rest));
    Ok(head)
}

/// Up to `n` more bytes of a stream.
fn read_some(name: &str, reader: &mut Box<dyn BufRead>, n: u64, to: &mut Vec<u8>) -> Result<usize> {
    reader.by_ref().take(n).read_to_end(to).map_err(|e| unreadable(name, &e))
}

/// The bytes as text; what is cut in the middle of a character at the end is left out.
fn text_of(name: &str, bytes: Vec<u8>, whole: bool) -> Result<String> {
    let wrong = |offset: usize, found: &str| {
        Err(IoError::Encoding {
            at: Box::new(Place::file(name)),
            offset: offset as u64,
            found: found.to_owned(),
        })
    };
    for (magic, found) in [
        (&[0xff, 0xfe][..], "a UTF-16 byte order mark"),
        (&[0xfe, 0xff], "a UTF-16 byte order mark"),
        (PARQUET, "a Parquet file"),
        (b"PK\x03\x04", "a zip archive"),
    ] {
        if bytes.starts_with(magic) {
            return wrong(0, found);
        }
    }
    if let Some(at) = memchr::memchr(0, &bytes) {
        return wrong(at, "a zero byte, as in a binary file");
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(e) => {
            let error = e.utf8_error();
            let good = error.valid_up_to();
            let mut bytes = e.into_bytes();
            if error.error_len().is_none() && !whole {
                bytes.truncate(good);
                return Ok(String::from_utf8(bytes).unwrap_or_default());
            }
            wrong(good, &format!("byte 0x{:02x}", bytes.get(good).copied().unwrap_or(0)))
        }
    }
}

/// The lines of a file, with their numbers.
pub struct Lines {
    name: String,
    reader: Box<dyn BufRead>,
    buffer: Vec<u8>,
    line: u64,
}

impl Lines {
    /// The file's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The next line that is not blank, without its end, and its number from 1.
    ///
    /// # Errors
    ///
    /// [`IoError::Unreadable`] or [`IoError::Encoding`].
    pub fn next_line(&mut self) -> Result<Option<(u64, &str)>> {
        Ok(self.next_named()?.1)
    }

    /// The same with the file's name, so that both can be borrowed together.
    pub(crate) fn next_named(&mut self) -> Result<(&str, Option<(u64, &str)>)> {
        loop {
            self.buffer.clear();
            let n = self
                .reader
                .read_until(b'\n', &mut self.buffer)
                .map_err(|e| unreadable(&self.name, &e))?;
            if n == 0 {
                return Ok((&self.name, None));
            }
            self.line += 1;
            if !self.buffer.iter().all(u8::is_ascii_whitespace) {
                break;
            }
        }
        if self.buffer.last() == Some(&b'\n') {
            self.buffer.pop();
        }
        if self.buffer.last() == Some(&b'\r') {
            self.buffer.pop();
        }
        match std::str::from_utf8(&self.buffer) {
            Ok(text) => Ok((&self.name, Some((self.line, text)))),
            Err(e) => {
                let offset = e.valid_up_to();
                Err(IoError::Encoding {
                    at: Box::new(Place::line(&self.name, self.line)),
                    offset: offset as u64,
                    found: format!("byte 0x{:02x}", self.buffer.get(offset).copied().unwrap_or(0)),
                })
            }
        }
    }
}
