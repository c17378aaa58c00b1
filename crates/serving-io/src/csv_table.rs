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
    /// The row; none before the first one and behind the last.
    row: Option<Row>,
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
        Ok(Self { name, reader, row: None, columns, header_line: line })
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
        let mut record = self.row.take().map(Row::into_bytes).unwrap_or_default();
        let line = loop {
            let Some(line) = next_record(&self.name, &mut self.reader, &mut record)? else {
                return Ok(None);
            };
            if self.columns.len() == 1 || !is_blank(&record) {
                break line;
            }
        };
        if record.len() != self.columns.len() {
            let (found, expected) = (record.len() as u64, self.columns.len() as u64);
            return Err(IoError::Ragged {
                at: Spot::line(&self.name, line).place(),
                found,
                expected,
            });
        }
        self.row = Some(Row::new(record));
        Ok(Some(line))
    }

    /// A cell of the row, without the spaces around it.
    pub(crate) fn cell(&self, line: u64, index: usize) -> Result<&str> {
        match &self.row {
            Some(Row::Text(cells)) => Ok(trimmed(cells.get(index).unwrap_or_default())),
            Some(Row::Bytes(cells)) => {
                cell_text(Spot::line(&self.name, line), cells.get(index).unwrap_or_default())
            }
            None => Ok(""),
        }
    }
}

/// A row, looked at for text once and not cell by cell.
enum Row {
    /// Every cell is text.
    Text(csv::StringRecord),
    /// Some cell is not, which is wrong only if that cell is read.
    Bytes(csv::ByteRecord),
}

impl Row {
    fn new(cells: csv::ByteRecord) -> Self {
        match csv::StringRecord::from_byte_record(cells) {
            Ok(cells) => Self::Text(cells),
            Err(e) => Self::Bytes(e.into_byte_record()),
        }
    }

    /// Its memory, for the next row.
    fn into_bytes(self) -> csv::ByteRecord {
        match self {
            Self::Text(cells) => cells.into_byte_record(),
            Self::Bytes(cells) => cells,
        }
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

/// A cell without the spaces around it.
fn trimmed(cell: &str) -> &str {
    // Most cells have no space at either end but the carriage return of their line, and looking
    // for some by character takes its time.
    let cell = cell.strip_suffix('\r').unwrap_or(cell);
    let bytes = cell.as_bytes();
    let bare = [bytes.first(), bytes.last()].iter().all(|b| b.is_some_and(u8::is_ascii_graphic));
    if bare { cell } else { cell.trim() }
}

/// A cell as text without the spaces around it.
fn cell_text<'a>(spot: Spot<'_>, bytes: &'a [u8]) -> Result<&'a str> {
    let text = std::str::from_utf8(bytes).map(trimmed);
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
    let begin = reader.position().line();
    let more = reader.read_byte_record(record).map_err(|e| match e.kind() {
        csv::ErrorKind::Io(e) => unreadable(name, e),
        _ => IoError::Unreadable { at: Box::new(Place::file(name)), reason: shown(&e.to_string()) },
    })?;
    if !more {
        return Ok(None);
    }
    // The parser stands behind the record's line end, and has skipped empty lines before it.
    let (end, ended) = (reader.position().line(), reader.get_ref().ended);
    // Where only one line end was passed, it is the row's own and none is inside a cell.
    let inside = if !ended && end.saturating_sub(begin) == 1 {
        0
    } else {
        memchr::memchr_iter(b'\n', record.as_slice()).count() as u64
    };
    // Every row ends in a line end: what ends with the file is a quote that was never closed.
    if ended {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Line and cells of every row, and the error that ends them, if one does.
    fn rows(bytes: Vec<u8>) -> (Vec<(u64, Vec<String>)>, Option<String>) {
        let input = Input::new("f", io::Cursor::new(bytes)).unwrap();
        let mut table = CsvTable::open(input).unwrap();
        let mut found = Vec::new();
        let mut next = || {
            let Some(line) = table.advance()? else { return Ok(None) };
            let cells = (0..2).map(|i| table.cell(line, i).map(str::to_owned));
            Ok(Some((line, cells.collect::<Result<Vec<_>>>()?)))
        };
        loop {
            match next() {
                Ok(Some(row)) => found.push(row),
                Ok(None) => return (found, None),
                Err(e) => return (found, Some(IoError::to_string(&e))),
            }
        }
    }

    /// A table of `a,b,c` whose first row is longer than what is looked at to tell the format.
    fn long(rest: &[u8]) -> Vec<u8> {
        [b"a,b,c\r\n1,2,\"", "x".repeat(1 << 17).as_bytes(), b"\"\r\n", rest].concat()
    }

    #[test]
    fn lines_are_those_of_the_file() {
        let rest = b"3 , 4,\r\n\r\n\n\"5\n\n6\",7,\n8,9,\"\n\"\r\n  \n\t10,\"1\r\",12";
        let (found, error) = rows(long(rest));
        let found: Vec<_> = found.iter().map(|(l, c)| (*l, c[0].as_str(), c[1].as_str())).collect();
        let expected =
            [(2, "1", "2"), (3, "3", "4"), (6, "5\n\n6", "7"), (9, "8", "9"), (12, "10", "1")];
        assert_eq!((found, error), (expected.to_vec(), None));
        for rest in ["3,4,5\n\n6,\"7\n", "3,4,5\n\n6,\"7\n,\n", "3,4,5\n\n6,\"7"] {
            let (found, error) = rows(long(rest.as_bytes()));
            let said = "f, line 5: ends in the middle of a quoted cell, expected the rest of it: \
                        is it truncated?";
            assert_eq!((found.len(), error.as_deref()), (2, Some(said)), "{rest}");
        }
    }

    /// What is no text is wrong in the cell that is read, and only there.
    #[test]
    fn only_cells_that_are_read_have_to_be_text() {
        let (found, error) = rows(long(b"3,\xc3\xa9 ,\xff\n4,5,6\n7,\xc3,\xa9\n"));
        let found: Vec<_> = found.iter().map(|(l, c)| (*l, c[0].as_str(), c[1].as_str())).collect();
        assert_eq!(found, [(2, "1", "2"), (3, "3", "\u{e9}"), (4, "4", "5")]);
        assert_eq!(error.unwrap(), "f, line 5, byte 0: byte 0xc3 in a cell, expected UTF-8 text");
    }
}
