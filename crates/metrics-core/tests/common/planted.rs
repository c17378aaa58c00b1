//! Faults planted one at a time in a sound entry: each must be found, and said so.

use metrics_core::Seconds;
use metrics_core::error::{above, difference};
use metrics_core::latency::tpot;
use metrics_core::metric::{
    Computed, Formula, Input, Layer, Metric, Refusal, Source, computed, computed_as, text, whole,
};
use metrics_core::units::Unit;

use super::catalog_check;

const PER_TOKEN: Unit = Unit::SECOND.per(Unit::TOKEN);
const TEXT: &str = "if n_out <= 1 then 0 else (t_last - t_first) / (n_out - 1)";

const T_FIRST: Input = Input::real(
    "t_first",
    r"t_{\mathrm{first}}",
    Unit::SECOND,
    (0.0, 600.0),
    text("instant of the first token", "首个 token 的时刻"),
);
const T_LAST: Input = Input { id: "t_last", ..T_FIRST };
const N_OUT: Input = Input::whole(
    "n_out",
    "N",
    Unit::TOKEN,
    (0.0, 4096.0),
    text("number of output tokens", "输出 token 数"),
);

fn eval(x: &[f64]) -> Result<Computed, Refusal> {
    computed(tpot(Seconds::new(x[0])?, Seconds::new(x[1])?, whole("n_out", x[2])?))
}

const fn scalar(text: &'static str) -> Formula {
    Formula::Scalar { text, eval, example: (&[0.25, 1.25, 6.0], 0.2) }
}

const fn by(eval: fn(&[f64]) -> Result<Computed, Refusal>) -> Formula {
    Formula::Scalar { text: TEXT, eval, example: (&[0.25, 1.25, 6.0], 0.2) }
}

/// The entry that every fault is planted in.
const SOUND: Metric = Metric {
    id: "tpot",
    symbol: r"\mathrm{TPOT}",
    name: text("Time per output token", "每输出 token 时延"),
    layer: Layer::Latency,
    unit: PER_TOKEN,
    inputs: &[T_FIRST, T_LAST, N_OUT],
    formula: scalar(TEXT),
    path: "metrics_core::latency::tpot",
    source: Source { work: "formula walkthrough", section: "1.1" },
    note: text("As a mean it hides stalls.", "作为均值，它会掩盖卡顿。"),
    exported: &[],
};

fn faults(m: &'static Metric) -> Vec<String> {
    catalog_check::every_fault(std::iter::once(m), env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_sound_entry_has_no_fault() {
    assert_eq!(faults(&SOUND), Vec::<String>::new());
    assert_eq!(faults(&LAW), Vec::<String>::new());
    assert_eq!(faults(&RECURRENCE), Vec::<String>::new());
}

/// Each entry with the words that its report must contain.
#[test]
fn every_planted_fault_is_reported() {
    let mut unseen = Vec::new();
    for (words, m) in PLANTED {
        let found = faults(m);
        if !found.iter().any(|fault| fault.contains(words)) {
            unseen.push(format!("nothing says `{words}`, but:\n  {}", found.join("\n  ")));
        }
        assert!(found.iter().all(|fault| fault.starts_with(m.id)), "{found:?}");
    }
    assert!(unseen.is_empty(), "{}", unseen.join("\n"));
}

#[test]
fn a_second_entry_of_one_id_is_reported() {
    let found = catalog_check::unsound_entries([&SOUND, &SOUND].into_iter());
    assert_eq!(found, ["tpot: a second entry has this id"]);
}

#[test]
fn a_strict_limit_is_told_from_an_inclusive_one() {
    let found = catalog_check::functions_unlike_their_text(std::iter::once(&STRICT));
    assert!(found.len() == 1 && found[0].contains("the function says 1, its text 0"), "{found:?}");
}

/// Says 1 where the limit is met exactly, which its text does not.
const STRICT: Metric = Metric {
    id: "slo_met",
    unit: Unit::ONE,
    // Neither ends nor whole numbers in common: only a repeated draw meets the limit.
    inputs: &[Input { range: (0.1, 0.9), ..T_FIRST }, Input { range: (0.2, 0.95), ..T_LAST }],
    formula: Formula::Scalar {
        text: "if t_first < t_last then 1 else 0",
        eval: |x| computed(Ok::<_, Refusal>(f64::from(u8::from(x[0] <= x[1])))),
        example: (&[0.25, 1.25], 1.0),
    },
    path: "metrics_core::slo::slo_met",
    ..SOUND
};

/// Erlang C by the recurrence of Erlang B, which shares no line with the textbook's sum.
const RECURRENCE: Metric = Metric {
    id: "erlang_c",
    unit: Unit::ONE,
    inputs: &[
        Input::whole("c", "c", Unit::ONE, (1.0, 100.0), text("servers", "服务台数")),
        Input::real("a", "a", Unit::ONE, (0.0, 100.0), text("offered load", "负载")),
    ],
    formula: Formula::Scalar {
        text: "a^c / fact(c) * (c / (c - a)) / (sum(k, 0, c - 1, a^k / fact(k)) + a^c / fact(c) * (c / (c - a)))",
        eval: |x| {
            let (servers, a) = (whole("c", x[0])?, metrics_core::error::at_least("a", x[1], 0.0)?);
            let c = metrics_core::error::within("c", x[0], 1.0, 1e6)?;
            if c <= a {
                return Err(Refusal("unstable".to_string()));
            }
            let blocked = (1..=servers).fold(1.0, |b, k| a * b / (k as f64 + a * b));
            computed(Ok::<_, Refusal>(blocked * c / (c - a * (1.0 - blocked))))
        },
        example: (&[2.0, 1.0], 1.0 / 3.0),
    },
    path: "queueing::erlang_c",
    ..SOUND
};

const LAW: Metric = Metric { inputs: &[], formula: law(r"\frac{1}{2}", TEST, 0.5), ..SOUND };
const TEST: &str = "tests/common/planted.rs::a_sound_entry_has_no_fault";

const fn law(latex: &'static str, test: &'static str, value: f64) -> Formula {
    Formula::Law {
        latex,
        why: text("It runs over many requests.", "它涉及多个请求。"),
        test,
        example: text("one of two", "二取一"),
        run: || computed_as(PER_TOKEN, Ok::<_, Refusal>(0.5)),
        value,
    }
}

/// What the table shows for a law of symbol `g`.
pub fn shown_law(latex: &'static str) -> String {
    Metric { symbol: "g", formula: law(latex, TEST, 0.5), ..LAW }.latex()
}

const PLANTED: &[(&str, &Metric)] = &[
    // The formula text.
    (
        "the function says",
        &Metric {
            formula: scalar("if n_out <= 1 then 0 else (t_last + t_first) / (n_out - 1)"),
            ..SOUND
        },
    ),
    (
        "the function says",
        &Metric {
            formula: scalar("if n_out <= 1 then 0 else (t_last - t_first) / n_out"),
            ..SOUND
        },
    ),
    (
        "but of its text",
        &Metric {
            formula: scalar("if n_out < 1 then 0 else (t_last - t_first) / (n_out - 1)"),
            ..SOUND
        },
    ),
    (
        "the formula has s^2/token",
        &Metric {
            formula: scalar("if n_out <= 1 then 0 else t_last * (t_last - t_first) / (n_out - 1)"),
            ..SOUND
        },
    ),
    (
        "the units in `t_last - n_out` differ: `t_last` has s, `n_out` has token",
        &Metric {
            formula: scalar("if n_out <= 1 then 0 else (t_last - n_out) / (n_out - 1)"),
            ..SOUND
        },
    ),
    (
        "not in the language: at character 1: found `t_last < t_first`",
        &Metric { formula: scalar("t_last < t_first"), ..SOUND },
    ),
    (
        "`t_end` is not an input",
        &Metric {
            formula: scalar("if n_out <= 1 then 0 else (t_end - t_first) / (n_out - 1)"),
            ..SOUND
        },
    ),
    (
        "the input `t_first` does not occur",
        &Metric { formula: scalar("if n_out <= 1 then 0 else t_last / (n_out - 1)"), ..SOUND },
    ),
    (
        "the sum's index `n_out` hides",
        &Metric { formula: scalar("t_last - t_first + sum(n_out, 1, n_out, 0)"), ..SOUND },
    ),
    // The function behind the entry.
    ("the function says", &Metric { formula: by(|x| eval(&[x[0], x[1], x[2] + 1.0])), ..SOUND }),
    (
        "the function refuses the example",
        &Metric { formula: by(|x| eval(&[x[1], x[0], x[2]])), ..SOUND },
    ),
    (
        "too many rejects",
        &Metric { formula: by(|_| Err(Refusal("it never has a value".to_string()))), ..SOUND },
    ),
    (
        "never reach `then` of `if n_out <= 1`",
        &Metric {
            formula: by(|x| {
                above("n_out", x[2], 1.0)?;
                eval(x)
            }),
            ..SOUND
        },
    ),
    // One part in a million, which a loose tolerance would pass.
    (
        "the function says",
        &Metric {
            formula: by(|x| eval(x).map(|c| Computed { value: c.value * 1.000_001, ..c })),
            ..SOUND
        },
    ),
    // One block too many, only where the tokens fill theirs exactly.
    (
        "the function says",
        &Metric {
            id: "blocks",
            path: "metrics_core::cache::blocks",
            unit: Unit::ONE,
            inputs: &[N_OUT, Input { id: "block_size", range: (1.0, 64.0), ..N_OUT }],
            formula: Formula::Scalar {
                text: "ceil(n_out / block_size)",
                eval: |x| {
                    computed(above("block_size", x[1], 0.0).map(|b| (x[0] / b).floor() + 1.0))
                },
                example: (&[17.0, 16.0], 2.0),
            },
            ..SOUND
        },
    ),
    (
        "never reach `0` chosen in `max(n_out - 1, 0)`",
        &Metric {
            inputs: &[T_FIRST, T_LAST, Input { range: (2.0, 4096.0), ..N_OUT }],
            formula: scalar("(t_last - t_first) / max(n_out - 1, 0)"),
            ..SOUND
        },
    ),
    (
        "the function returns s",
        &Metric { formula: by(|x| eval(x).map(|c| Computed { unit: Unit::SECOND, ..c })), ..SOUND },
    ),
    (
        "the function gives NaN for",
        &Metric {
            formula: by(|x| {
                if x[1].is_nan() { computed_as(PER_TOKEN, Ok::<_, Refusal>(x[1])) } else { eval(x) }
            }),
            ..SOUND
        },
    ),
    (
        "the function says inf, its text 0",
        &Metric {
            formula: by(|x| {
                let decoding = difference(("t_last", x[1]), ("t_first", x[0]))?;
                computed_as(PER_TOKEN, Ok::<_, Refusal>(decoding / (x[2] - 1.0)))
            }),
            ..SOUND
        },
    ),
    (
        "planted panic",
        &Metric {
            formula: by(|x| {
                assert!(x[0] <= 1e300, "planted panic");
                eval(x)
            }),
            ..SOUND
        },
    ),
    // The example and the unit.
    (
        "the example says 0.21, the function 0.2",
        &Metric {
            formula: Formula::Scalar { text: TEXT, eval, example: (&[0.25, 1.25, 6.0], 0.21) },
            ..SOUND
        },
    ),
    (
        "the example says 0.21, the formula 0.2",
        &Metric {
            formula: Formula::Scalar { text: TEXT, eval, example: (&[0.25, 1.25, 6.0], 0.21) },
            ..SOUND
        },
    ),
    (
        "tpot takes 3 inputs, got 2",
        &Metric {
            formula: Formula::Scalar { text: TEXT, eval, example: (&[0.25, 1.25], 0.2) },
            ..SOUND
        },
    ),
    (
        "the entry's unit is s, the function returns s/token",
        &Metric { unit: Unit::SECOND, ..SOUND },
    ),
    // The inputs.
    ("the function says", &Metric { inputs: &[T_LAST, T_FIRST, N_OUT], ..SOUND }),
    (
        "the units in `n_out <= 1` differ: `n_out` has s",
        &Metric { inputs: &[T_FIRST, T_LAST, N_OUT.counts_as(Unit::SECOND)], ..SOUND },
    ),
    (
        "never reach `then` of `if n_out <= 1`",
        &Metric { inputs: &[T_FIRST, T_LAST, Input { range: (2.0, 4096.0), ..N_OUT }], ..SOUND },
    ),
    ("two inputs are called `t_last`", &Metric { inputs: &[T_LAST, T_LAST, N_OUT], ..SOUND }),
    (
        "the range 1 to 1 must be finite and not empty",
        &Metric { inputs: &[T_FIRST, T_LAST, Input { range: (1.0, 1.0), ..N_OUT }], ..SOUND },
    ),
    (
        "of whole numbers must be whole",
        &Metric { inputs: &[T_FIRST, T_LAST, Input { range: (0.5, 64.0), ..N_OUT }], ..SOUND },
    ),
    // The words around it.
    (
        "the id must be the function's name",
        &Metric { path: "metrics_core::latency::ttft", ..SOUND },
    ),
    ("the id must be snake_case", &Metric { id: "Tpot", path: "metrics_core::Tpot", ..SOUND }),
    (
        "the name `Time per output token` is not translated",
        &Metric { name: text("Time per output token", "TPOT"), ..SOUND },
    ),
    ("the note is empty", &Metric { note: text("It hides stalls.", ""), ..SOUND }),
    (
        "must call a token `token`",
        &Metric { name: text("Time per output token", "每输出令牌时延"), ..SOUND },
    ),
    ("the source names no work", &Metric { source: Source { work: "", section: "1" }, ..SOUND }),
    ("is not balanced", &Metric { symbol: r"\mathrm{TPOT", ..SOUND }),
    ("which ends a table's cell", &Metric { symbol: "|T|", ..SOUND }),
    ("which Markdown eats", &Metric { symbol: r"T\,P", ..SOUND }),
    // Laws.
    ("the example says 0.6, the function 0.5", &Metric { formula: law("x", TEST, 0.6), ..LAW }),
    ("the function returns s/token", &Metric { unit: Unit::ONE, ..LAW }),
    ("`}x{` is not balanced", &Metric { formula: law("}x{", TEST, 0.5), ..LAW }),
    ("the law has no LaTeX", &Metric { formula: law("", TEST, 0.5), ..LAW }),
    (
        "has no test `no_such_test`",
        &Metric { formula: law("x", "catalog::no_such_test", 0.5), ..LAW },
    ),
    // A helper is no test.
    ("has no test `none`", &Metric { formula: law("x", "catalog::none", 0.5), ..LAW }),
    (
        "is neither in tests/ nor in src/",
        &Metric { formula: law("x", "nowhere::test", 0.5), ..LAW },
    ),
    ("must be named as `file::name`", &Metric { formula: law("x", "test", 0.5), ..LAW }),
];
