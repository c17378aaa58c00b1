//! A CSV table as rows of cells: what every reader of CSV shares.

use std::io::{self, BufRead, Read};

use crate::error::{IoError, Place, Result, Spot, columns_shown, shown};
use crate::input::{Input, unreadable};

/// Whichever of comma, semicolon and tab stands most often in the header, outside quotes.
fn delimiter_of(header: &str) -> u8 {
    let count = |delimiter: u8| {
        let mut quoted = false;
        let outside = header.bytes().filter(|&b| {
            quoted ^= b == b'"';
            b == delimiter && !quoted
        });
        outside.count()
    };
    [b',', b';', b'\t'].into_iter().rev().max_by_key(|&d| count(d)).unwrap_or(b',')
}

/// The cells of a header line.
pub(crate) fn header_cells(line: &str) -> Vec<String> {
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .delimiter(delimiter_of(line))
        .from_reader(line.as_bytes());
    let record = reader.records().next().and_then(std::result::Result::ok).unwrap_or_default();
    record.iter().map(|c| c.trim().to_owned()).collect()
}

/// The rows of a table, one at a time.
pub(crate) struct CsvTable {
    name: String,
    reader: csv::Reader<Bytes>,
    record: csv::ByteRecord,
    /// The cells of the header.
    columns: Vec<String>,
    /// The line of the header.
    header_line: u64,
}

impl CsvTable {
    /// Reads the header.
    pub(crate) fn open(input: Input) -> Result<Self> {
        let name = input.name.clone();
        let delimiter = delimiter_of(input.head.first_line());
        // A carriage return is dropped with the spaces around a cell. Were it a line end for the
        // parser, as it is by default, lines would be counted one short.
        let mut reader = csv::ReaderBuilder::new()
            .delimiter(delimiter)
            .terminator(csv::Terminator::Any(b'\n'))
            .has_headers(false)
            .flexible(true)
            .buffer_capacity(1 << 16)
            .from_reader(Bytes { inner: input.into_reader(), last: b'\n', ended: false });
        let mut record = csv::ByteRecord::new();
        let line = loop {
            match next_record(&name, &mut reader, &mut record)? {
                Some(_) if is_blank(&record) => {}
                Some(line) => break line,
                None => {
                    let at = Box::new(Place::file(&name));
                    let expected = "a header and one request a row".to_owned();
                    return Err(IoError::Empty { at, expected });
                }
            }
        };
        let mut columns = Vec::with_capacity(record.len());
        for cell in &record {
            columns.push(cell_text(Spot::line(&name, line), cell)?.to_owned());
        }
        // Taken for a header, the first row of a table without one would be lost.
        let number = |c: &String| c.parse::<f64>().is_ok();
        if columns.iter().filter(|c| !c.is_empty()).all(number) {
            return Err(IoError::Value {
                at: Box::new(Place::line(&name, line)),
                found: format!("only numbers, {}", columns_shown(&columns)),
                expected: "a header with the names of the columns".to_owned(),
            });
        }
        Ok(Self { name, reader, record, columns, header_line: line })
    }

    /// The file's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The line of the header.
    pub(crate) fn header_line(&self) -> u64 {
        self.header_line
    }

    /// The cells of the header.
    pub(crate) fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Where in a row that column stands; `None` if the table has no such column.
    pub(crate) fn index_of(&self, column: &str) -> Result<Option<usize>> {
        let mut places = self.columns.iter().enumerate().filter(|(_, c)| *c == column);
        let first = places.next().map(|(i, _)| i);
        if places.next().is_some() {
            let at = Box::new(Place::line(&self.name, self.header_line).key(column));
            return Err(IoError::Repeated { at });
        }
        Ok(first)
    }

    /// Goes to the next row that is not blank and says in which line it begins.
    pub(crate) fn advance(&mut self) -> Result<Option<u64>> {
        let line = loop {
            let Some(line) = next_record(&self.name, &mut self.reader, &mut self.record)? else {
                return Ok(None);
            };
            if self.columns.len() == 1 || !is_blank(&self.record) {
                break line;
            }
        };
        if self.record.len() != self.columns.len() {
            let (found, expected) = (self.record.len() as u64, self.columns.len() as u64);
            return Err(IoError::Ragged {
                at: Spot::line(&self.name, line).place(),
                found,
                expected,
            });
        }
        Ok(Some(line))
    }

    /// A cell of the row, without the spaces around it.
    pub(crate) fn cell(&self, line: u64, index: usize) -> Result<&str> {
        let bytes = self.record.get(index).unwrap_or_default();
        cell_text(Spot::line(&self.name, line), bytes)
    }
}

/// The bytes of a table, with a line end added at the end if there is none.
struct Bytes {
    inner: Box<dyn BufRead>,
    last: u8,
    /// Whether its end was seen.
    ended: bool,
}

impl Read for Bytes {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(out)?;
        if let Some([.., last]) = out.get(..n) {
            self.last = *last;
        } else if let Some(first) = out.first_mut()
            && self.last != b'\n'
        {
            *first = b'\n';
            self.last = b'\n';
            return Ok(1);
        }
        self.ended |= n == 0;
        Ok(n)
    }
}

/// A cell as text without the spaces around it.
fn cell_text<'a>(spot: Spot<'_>, bytes: &'a [u8]) -> Result<&'a str> {
    // Most cells have no space at either end, and looking for some by character takes its time.
    let bare = [bytes.first(), bytes.last()].iter().all(|b| b.is_some_and(u8::is_ascii_graphic));
    let text = std::str::from_utf8(bytes).map(|text| if bare { text } else { text.trim() });
    text.map_err(|e| {
        let offset = e.valid_up_to();
        IoError::Encoding {
            at: spot.place(),
            offset: offset as u64,
            found: format!("byte 0x{:02x} in a cell", bytes.get(offset).copied().unwrap_or(0)),
        }
    })
}

/// Reads the next record and says on which line it begins.
fn next_record(
    name: &str,
    reader: &mut csv::Reader<Bytes>,
    record: &mut csv::ByteRecord,
) -> Result<Option<u64>> {
    let more = reader.read_byte_record(record).map_err(|e| match e.kind() {
        csv::ErrorKind::Io(e) => unreadable(name, e),
        _ => IoError::Unreadable { at: Box::new(Place::file(name)), reason: shown(&e.to_string()) },
    })?;
    if !more {
        return Ok(None);
    }
    // The parser stands behind the record's line end, and has skipped empty lines before it.
    let inside = memchr::memchr_iter(b'\n', record.as_slice()).count() as u64;
    let end = reader.position().line();
    // Every row ends in a line end: what ends with the file is a quote that was never closed.
    if reader.get_ref().ended {
        let at = Box::new(Place::line(name, end.saturating_sub(inside)));
        return Err(IoError::Truncated { at, inside: "a quoted cell" });
    }
    let line = end.saturating_sub(1 + inside);
    Ok(Some(line))
}

/// A line with nothing but spaces.
fn is_blank(record: &csv::ByteRecord) -> bool {
    record.len() == 1 && record.iter().all(|cell| cell.trim_ascii().is_empty())
}
