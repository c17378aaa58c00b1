//! Rows as a generic CSV, as JSON lines and as our timelines: what is written is read back.
#![no_main]

use arbitrary::Arbitrary;
use serving_io::Format;

#[derive(Arbitrary, Debug)]
struct Row {
    arrival_ms: u32,
    ttft_us: u32,
    rest_us: u32,
    output_tokens: u16,
    input_tokens: u16,
    name: Option<char>,
    failed: bool,
}

#[derive(Arbitrary, Debug)]
struct Log {
    rows: Vec<Row>,
    semicolons: bool,
    crlf: bool,
}

libfuzzer_sys::fuzz_target!(|log: Log| {
    if log.rows.is_empty() || 64 < log.rows.len() {
        return;
    }
    let cell = if log.semicolons { ";" } else { "," };
    let end = if log.crlf { "\r\n" } else { "\n" };
    let header =
        ["id", "arrival_ms", "ttft_us", "e2e_us", "input_tokens", "output_tokens", "outcome"];
    let mut csv = header.join(cell) + end;
    let mut lines = String::new();
    for (i, r) in log.rows.iter().enumerate() {
        let n = u64::from(r.output_tokens) + 1;
        // One token is first and last at once.
        let e2e = u64::from(r.ttft_us) + if n == 1 { 0 } else { u64::from(r.rest_us) };
        let outcome = if r.failed { "failed" } else { "completed" };
        let name = r.name.filter(|c| !c.is_control() && !c.is_whitespace()).unwrap_or('x');
        let quoted =
            format!("\"{}{i}\"", if name == '"' { "\"\"".to_owned() } else { name.to_string() });
        let cells = [
            quoted,
            r.arrival_ms.to_string(),
            r.ttft_us.to_string(),
            e2e.to_string(),
            r.input_tokens.to_string(),
            n.to_string(),
            outcome.to_owned(),
        ];
        csv.push_str(&(cells.join(cell) + end));
        let escaped = match name {
            '"' | '\\' => format!("\\{name}"),
            c => c.to_string(),
        };
        lines.push_str(&format!(
            "{{\"id\": \"{escaped}{i}\", \"arrival_ms\": {}, \"ttft_us\": {}, \"e2e_us\": {e2e}, \"input_tokens\": {}, \"output_tokens\": {n}, \"outcome\": \"{outcome}\"}}{end}",
            r.arrival_ms, r.ttft_us, r.input_tokens
        ));
    }
    let read = |text: &str, format| match goodput_fuzz::read(text.as_bytes(), Some(format)) {
        Ok(mut file) => file.runs.remove(0).timelines,
        Err(e) => panic!("{format:?}: {e}\n{text}"),
    };
    let (a, b) = (read(&csv, Format::GenericCsv), read(&lines, Format::GenericJsonl));
    assert_eq!(a.len(), log.rows.len());
    for ((a, b), r) in a.iter().zip(&b).zip(&log.rows) {
        assert_eq!(
            (a.ttft(), a.e2e_latency(), a.output_tokens()),
            (b.ttft(), b.e2e_latency(), b.output_tokens())
        );
        assert_eq!((a.id(), a.outcome(), a.arrival_s()), (b.id(), b.outcome(), b.arrival_s()));
        assert_eq!(a.ttft().map(|t| (t.get() * 1e6).round()), Some(f64::from(r.ttft_us)));
        assert_eq!(a.output_tokens(), Some(u64::from(r.output_tokens) + 1));
    }
});
