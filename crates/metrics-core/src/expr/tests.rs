use proptest::prelude::*;

use super::*;

fn value(text: &str) -> Result<f64, ExprError> {
    parse(text)?.evaluate(&|name| match name {
        "a" => Some(3.0),
        "b" => Some(4.0),
        "zero" => Some(0.0),
        "nan" => Some(f64::NAN),
        _ => None,
    })
}

fn said(text: &str) -> String {
    value(text).unwrap_err().to_string()
}

#[test]
fn values_follow_the_rules_of_mathematics() {
    for (text, want) in [
        ("1 + 2 * 3", 7.0),
        ("7 - 2 - 1", 4.0),
        ("8 / 4 / 2", 1.0),
        ("2^3^2", 512.0),
        ("-a^2", -9.0),
        ("(-a)^2", 9.0),
        ("2^-1", 0.5),
        ("2 * -a", -6.0),
        ("--a", 3.0),
        ("1e3 + 2.5e-1", 1000.25),
        ("zero^0", 1.0),
        ("if a < b then 1 else 2", 1.0),
        ("if a >= b then 1 else if a == 3 then 2 else 3", 2.0),
        ("if a != 3 or b > 3 and b <= 3 then 1 else 2", 2.0),
        ("if (a == 3 or b == 5) and a < b then 1 else 2", 1.0),
        ("if zero == 0 or 1 / zero > 1 then 1 else 2", 1.0),
        ("if zero != 0 and 1 / zero > 1 then 1 else 2", 2.0),
        ("if zero > 0 then 1 / zero else 5", 5.0),
        ("(if a < b then 1 else 2) + 10", 11.0),
        ("min(a, b, 2) + max(a, b)", 6.0),
        ("ceil(2.1) + floor(2.9) + ceil(-2.5)", 3.0),
        ("sqrt(9) + exp(0) + ln(1)", 4.0),
        ("fact(0) + fact(1) + fact(5)", 122.0),
        ("sum(k, 1, 4, k^2)", 30.0),
        ("sum(k, 1, 0, 1 / zero)", 0.0),
        ("sum(k, 1, 3, sum(j, 1, k, j))", 10.0),
        ("sum(k, 1, 2, sum(k, 1, 3, k))", 12.0),
        ("sum(a, 1, 2, a) + a", 6.0),
    ] {
        assert_eq!(value(text), Ok(want), "{text}");
    }
}

#[test]
fn what_has_no_value_says_why() {
    assert_eq!(said("1 / (a - 3)"), "`1 / (a - 3)` has no value: the divisor `a - 3` is 0");
    assert_eq!(said("1 + c"), "the name `c` is not an input");
    assert_eq!(said("nan"), "`nan` has no value: it must be a finite number, got NaN");
    assert_eq!(
        said("exp(1000)"),
        "`exp(1000)` has no value: its size passes the largest number, 1.8e308"
    );
    assert_eq!(
        said("ln(a - b)"),
        "`ln(a - b)` has no value: the logarithm needs a number above 0, got -1"
    );
    assert_eq!(
        said("sqrt(-a)"),
        "`sqrt(-a)` has no value: the root needs a number of at least 0, got -3"
    );
    assert_eq!(
        said("(-a)^0.5"),
        "`(-a)^0.5` has no value: the base must be at least 0 for the exponent 0.5, got -3"
    );
    assert_eq!(said("zero^-1"), "`zero^-1` has no value: 0 to the power -1 divides by 0");
    assert_eq!(
        said("fact(171)"),
        "`fact(171)` has no value: a factorial needs a whole number from 0 to 170, got 171"
    );
    assert_eq!(
        said("sum(k, 0, 1.5, k)"),
        "`sum(k, 0, 1.5, k)` has no value: its bound `1.5` must be a whole number within 2^53, got 1.5"
    );
    assert!(matches!(value("sum(k, 1, 1e9, 1)"), Err(ExprError::TooManyTerms { .. })));
    assert!(matches!(
        value("sum(k, 1, 1e5, sum(j, 1, 1e5, 1))"),
        Err(ExprError::TooManyTerms { .. })
    ));
    assert!(value("1e308 * 10").is_err());
    assert!(value("10^400").is_err());
}

#[test]
fn a_text_that_is_no_formula_says_where_and_what_would_be_right() {
    for (text, want) in [
        ("", "at character 1: found the end, expected a number, a name, a function or `(`"),
        ("a +", "at character 4: found the end, expected a number, a name, a function or `(`"),
        ("a b", "at character 3: found `b`, expected an operator or the end"),
        ("2a", "at character 2: found `a`, expected an operator, as in `2 * x`"),
        ("(a", "at character 3: found the end, expected an operator or `)`"),
        ("a)", "at character 2: found `)`, expected an operator or the end"),
        ("a = b", "at character 3: found `=`, expected `==` for a comparison"),
        ("a · b", "at character 3: found `·`, expected `*`"),
        ("1.", "at character 1: found `1.`, expected a digit after the point"),
        (".5", "at character 1: found `.`, expected a digit before the point"),
        ("1e", "at character 1: found `1e`, expected a whole exponent, as in `1e9`"),
        ("1e999", "at character 1: found `1e999`, expected a number below 1.8e308"),
        ("a < b", "at character 1: found `a < b`, expected a value, not a condition"),
        // Found by fuzzing: a line end in the text went into the message as it was.
        ("a <\r\nb", "at character 1: found `a <\\r\\nb`, expected a value, not a condition"),
        ("1 + (a < b)", "at character 5: found `(a < b)`, expected a value, not a condition"),
        ("if a then 1 else 2", "at character 4: found `a`, expected a condition, as in `n <= 1`"),
        ("if a < b 1", "at character 10: found `1`, expected an operator or `then`"),
        ("if a < b then 1", "at character 16: found the end, expected an operator or `else`"),
        (
            "if 0 < a < 1 then 1 else 2",
            "at character 10: found `<`, expected `and` between two comparisons",
        ),
        (
            "1 + if a < b then 1 else 2",
            "at character 5: found `if`, expected parentheses around an `if` that is an operand",
        ),
        (
            "foo(a)",
            "at character 1: found `foo(`, expected one of the functions min, max, ceil, floor, exp, ln, sqrt, fact, sum",
        ),
        ("max + 1", "at character 5: found `+`, expected `(` after the function `max`"),
        ("max(a)", "at character 6: found `)`, expected `,` and a second argument"),
        (
            "exp(a, b)",
            "at character 6: found `,`, expected an operator or `)`: the function takes one argument",
        ),
        (
            "sum(1, 2, 3, 4)",
            "at character 5: found `1`, expected the name of the index, as in `sum(k, 0, n, …)`",
        ),
        (
            "sum(k, 2, 3)",
            "at character 12: found `)`, expected `,`: a sum is written `sum(k, lo, hi, body)`",
        ),
    ] {
        assert_eq!(parse(text).unwrap_err().to_string(), want, "{text}");
    }
}

#[test]
fn no_text_exhausts_the_stack() {
    for text in ["(".repeat(100_000), "-".repeat(100_000), "exp(".repeat(100_000)] {
        assert!(matches!(parse(&text), Err(ExprError::TooDeep { .. } | ExprError::TooLong { .. })));
    }
    assert!(matches!(parse(&"(".repeat(100)), Err(ExprError::TooDeep { at: 65 | 66 })));
    assert!(matches!(parse(&"a^".repeat(100)), Err(ExprError::TooDeep { .. })));
    assert!(matches!(
        parse(&"if 1 < 2 then 1 else ".repeat(65)),
        Err(ExprError::TooDeep { .. } | ExprError::TooLong { .. })
    ));
    let long = format!("1{}", " + 1".repeat(100_000));
    assert_eq!(parse(&long), Err(ExprError::TooLong { at: 1025 }));
    let deepest = format!("1{}", " + 1".repeat(255));
    let formula = parse(&deepest).unwrap();
    assert!(formula.evaluate(&|_| None).is_ok() && formula.unit(&|_| None).is_ok());
    assert_eq!(formula.to_string(), deepest);
    assert!(formula.latex(&|_| None).starts_with("1 + 1"));
}

#[test]
fn names_are_listed_once_and_without_the_indices() {
    let formula = parse("b + sum(k, low, a, k * b) + if_any").unwrap();
    assert_eq!(formula.names(), ["b", "low", "a", "if_any"]);
    assert_eq!(formula.indices(), ["k"]);
}

#[test]
fn explanations_show_the_branch_that_the_numbers_take() {
    let tpot = parse("if n_out <= 1 then 0 else (t_last - t_first) / (n_out - 1)").unwrap();
    let numbers = |n: f64| {
        move |name: &str| match name {
            "n_out" => Some(n),
            "t_first" => Some(0.25),
            "t_last" => Some(1.25),
            _ => None,
        }
    };
    assert_eq!(tpot.substituted(&numbers(6.0)), "(1.25 - 0.25) / (6 - 1)");
    assert_eq!(tpot.substituted(&numbers(1.0)), "0");
    assert_eq!(
        tpot.substituted(&|name| (name == "t_last").then_some(-2.0)),
        "if n_out <= 1 then 0 else (-2 - t_first) / (n_out - 1)"
    );
    let sum = parse("sum(k, 0, k - 1, if k < 2 then a^k else k)").unwrap();
    assert_eq!(
        sum.substituted(&|name| Some(if name == "a" { 0.5 } else { 3.0 })),
        "sum(k, 0, 3 - 1, if k < 2 then 0.5^k else k)"
    );
    assert_eq!(parse("a^2").unwrap().substituted(&|_| Some(-2.0)), "(-2)^2");
}

#[test]
fn branches_are_missed_until_taken() {
    let formula = parse("if a <= 1 and b < 2 then 0 else max(a - 1, 0) * b").unwrap();
    let mut branches = Branches::of(&formula);
    assert_eq!(
        branches.missed(),
        [
            "`then` of `if a <= 1 and b < 2`",
            "`else` of `if a <= 1 and b < 2`",
            "`a - 1` chosen in `max(a - 1, 0)`",
            "`0` chosen in `max(a - 1, 0)`",
        ]
    );
    formula.evaluate_recording(&|_| Some(3.0), &mut branches).unwrap();
    assert_eq!(
        branches.missed(),
        ["`then` of `if a <= 1 and b < 2`", "`0` chosen in `max(a - 1, 0)`"]
    );
    formula.evaluate_recording(&|_| Some(0.0), &mut branches).unwrap();
    assert_eq!(branches.missed(), ["`0` chosen in `max(a - 1, 0)`"]);
    let one = |name: &str| Some(if name == "a" { 1.0 } else { 2.0 });
    formula.evaluate_recording(&one, &mut branches).unwrap();
    assert!(branches.missed().is_empty());
}

#[test]
fn rounding_follows_cancellation() {
    let formula = parse("1 - (1 - p)^n").unwrap();
    let mut branches = Branches::of(&formula);
    let (p, n) = (1.1e-9_f64, 5.0);
    let lookup = |name: &str| Some(if name == "p" { p } else { n });
    let got = formula.evaluate_recording(&lookup, &mut branches).unwrap();
    let exact = -(n * (-p).ln_1p()).exp_m1();
    let off = (got.value - exact).abs();
    assert!(1e-9 * exact < off, "the textbook form loses digits here");
    assert!(off <= got.rounding, "{off} passes {}", got.rounding);
    assert!(got.rounding < 1e-14);
}

fn latex(text: &str) -> String {
    parse(text).unwrap().latex(&|name| match name {
        "n_out" => Some(r"N_{\mathrm{out}}"),
        "rho" => Some(r"\rho"),
        "sd2" => Some(r"\sigma^2"),
        _ => None,
    })
}

#[test]
fn latex_has_parentheses_only_where_needed() {
    for (text, want) in [
        ("(a + b) * c", r"(a + b) \cdot c"),
        ("a + (b - c)", "a + b - c"),
        ("a - (b - c)", "a - (b - c)"),
        ("a - b * c", r"a - b \cdot c"),
        ("a * (b * c)", r"a \cdot b \cdot c"),
        ("-a * b", r"-a \cdot b"),
        ("a * -b", r"a \cdot (-b)"),
        ("a + -b", "a + (-b)"),
        ("-(a + b)", "-(a + b)"),
        ("--a", "-(-a)"),
        ("(a + b) / (c - 1)", r"\frac{a + b}{c - 1}"),
        ("a / b * c", r"\frac{a}{b} \cdot c"),
        ("(a / b)^2", r"\left(\frac{a}{b}\right)^{2}"),
        ("(a^b)^c", "(a^{b})^{c}"),
        ("a^b^c", "a^{b^{c}}"),
        ("(-a)^2", "(-a)^{2}"),
        ("-a^2", "-a^{2}"),
        ("rho^2 + sd2^2", r"\rho^{2} + (\sigma^2)^{2}"),
        ("fact(n_out)", r"N_{\mathrm{out}}!"),
        ("fact(c - 1)^2", "((c - 1)!)^{2}"),
        ("exp(-rho * t)", r"e^{-\rho \cdot t}"),
        ("ln(1 - rho)", r"\ln(1 - \rho)"),
        ("sqrt(a / b)", r"\sqrt{\frac{a}{b}}"),
        ("ceil(a / b)", r"\left\lceil \frac{a}{b} \right\rceil"),
        ("floor(a) + 1", r"\left\lfloor a \right\rfloor + 1"),
        ("max(n_out - 1, 0)", r"\max(N_{\mathrm{out}} - 1, 0)"),
        ("1e9 * a", r"1000000000 \cdot a"),
        ("2.5e20 * a", r"2.5 \cdot 10^{20} \cdot a"),
        ("1e-9^2", r"(10^{-9})^{2}"),
        (
            "queue_depth + total_kv_blocks + w",
            r"\mathrm{queue}_{\mathrm{depth}} + \mathrm{total}_{\mathrm{kv,blocks}} + w",
        ),
        ("sum(k, 0, c - 1, a^k / fact(k)) + 1", r"\sum_{k=0}^{c - 1} \frac{a^{k}}{k!} + 1"),
        ("a * sum(k, 0, c, k + 1)", r"a \cdot \left(\sum_{k=0}^{c} (k + 1)\right)"),
        (
            "if n_out <= 1 then 0 else a",
            r"\begin{cases} 0 & N_{\mathrm{out}} \le 1 \cr a & N_{\mathrm{out}} \gt 1 \end{cases}",
        ),
        (
            "if a < 1 and b < 2 then 1 else 0",
            r"\begin{cases} 1 & a \lt 1 \land b \lt 2 \cr 0 & a \ge 1 \lor b \ge 2 \end{cases}",
        ),
        (
            "1 + (if a < b then 1 else if a == b then 2 else 3)",
            r"1 + \left(\begin{cases} 1 & a \lt b \cr 2 & a = b \cr 3 & \text{otherwise} \end{cases}\right)",
        ),
    ] {
        assert_eq!(latex(text), want, "{text}");
    }
}

fn unit_of(text: &str) -> Result<Unit, ExprError> {
    parse(text)?.unit(&|name| match name {
        "t" | "u" => Some(Unit::SECOND),
        "n" | "m" => Some(Unit::TOKEN),
        "requests" => Some(Unit::REQUEST),
        "c" | "a" | "rho" => Some(Unit::ONE),
        _ => None,
    })
}

#[test]
fn units_follow_the_rules_of_the_catalog() {
    let per_token = Unit::SECOND.per(Unit::TOKEN);
    for (text, want) in [
        ("if n <= 1 then 0 else (t - u) / (n - 1)", per_token),
        ("t + max(n - 1, 0) * (t / n)", Unit::SECOND),
        ("2 * n / t", Unit::TOKEN.per(Unit::SECOND)),
        ("t^2 + u^2", Unit::SECOND.power(2)),
        ("sqrt(t^2 + u * t)", Unit::SECOND),
        ("t^-1", Unit::ONE.per(Unit::SECOND)),
        ("ceil(n) * t", Unit::TOKEN.times(Unit::SECOND)),
        ("ceil(n / m)", Unit::ONE),
        ("exp(-t / u)", Unit::ONE),
        ("sum(k, 0, c - 1, a^k / fact(k)) * t", Unit::SECOND),
        ("sum(k, 1, n, k * t)", Unit::TOKEN.times(Unit::SECOND)),
        ("(1 - rho)^c", Unit::ONE),
        ("0 + t", Unit::SECOND),
        ("1 + 2", Unit::ONE),
        ("if t < 0 then 1 else 0", Unit::ONE),
        ("min(1, n, 5)", Unit::TOKEN),
        ("2^c * 0.5", Unit::ONE),
    ] {
        assert_eq!(unit_of(text), Ok(want), "{text}");
    }
}

#[test]
fn units_that_do_not_fit_are_named_with_their_parts() {
    for (text, want) in [
        ("t - n", "the units in `t - n` differ: `t` has s, `n` has token"),
        ("1 + 2 * t", "the units in `1 + 2 * t` differ: `1` has 1 (a number), `2 * t` has s"),
        ("n + c", "the units in `n + c` differ: `n` has token, `c` has 1"),
        ("n + 2^c", "the units in `n + 2^c` differ: `n` has token, `2^c` has 1"),
        ("if t < n then 1 else 2", "the units in `t < n` differ: `t` has s, `n` has token"),
        (
            "if n < 2 then t else n",
            "the units in `if n < 2 then t else n` differ: `t` has s, `n` has token",
        ),
        ("max(0, t, n)", "the units in `max(0, t, n)` differ: `t` has s, `n` has token"),
        ("exp(t)", "in `exp(t)`, `t` has the unit s but must be a pure number"),
        ("fact(n)", "in `fact(n)`, `n` has the unit token but must be a pure number"),
        ("2^t", "in `2^t`, `t` has the unit s but must be a pure number, as an exponent"),
        (
            "t^c",
            "in `t^c`, `t` has the unit s but must be a pure number unless the exponent is a whole literal from -8 to 8",
        ),
        ("sqrt(t)", "in `sqrt(t)`, `t` has the unit s but must be the square of a unit"),
        (
            "ceil(t)",
            "in `ceil(t)`, `t` has the unit s but must be a pure number or a count, since nothing else comes in whole units",
        ),
        ("q", "the name `q` is not an input"),
    ] {
        assert_eq!(unit_of(text).unwrap_err().to_string(), want, "{text}");
    }
}

fn comparison() -> impl Strategy<Value = Comparison> {
    prop::sample::select(&Comparison::ALL[..])
}

/// Trees over three names, a few of them shaped like anything that the language can say.
fn formula() -> impl Strategy<Value = Expr> {
    let number = prop_oneof![
        (0_u32..20).prop_map(f64::from),
        (0.0..1e3_f64),
        prop::num::f64::POSITIVE.prop_map(f64::abs),
    ];
    let leaf = prop_oneof![
        number.prop_map(Expr::Number),
        prop::sample::select(&["a", "b", "k"][..]).prop_map(|n| Expr::Name(n.to_string())),
    ];
    leaf.prop_recursive(5, 60, 4, |inner| {
        let condition = (comparison(), inner.clone(), inner.clone())
            .prop_map(|(c, a, b)| Condition::Compare(c, a, b))
            .prop_recursive(2, 6, 2, |c| {
                (any::<bool>(), c.clone(), c).prop_map(|(and, a, b)| {
                    let (a, b) = (Box::new(a), Box::new(b));
                    if and { Condition::And(a, b) } else { Condition::Or(a, b) }
                })
            });
        let operators = [
            Operator::Add,
            Operator::Subtract,
            Operator::Multiply,
            Operator::Divide,
            Operator::Power,
        ];
        let single = Function::ALL.into_iter().filter(|f| !f.takes_many()).collect::<Vec<_>>();
        prop_oneof![
            inner.clone().prop_map(|a| Expr::Negative(Box::new(a))),
            (prop::sample::select(operators.to_vec()), inner.clone(), inner.clone())
                .prop_map(|(op, a, b)| Expr::Binary(op, Box::new(a), Box::new(b))),
            (condition, inner.clone(), inner.clone()).prop_map(|(c, a, b)| Expr::If(
                Box::new(c),
                Box::new(a),
                Box::new(b)
            )),
            (prop::sample::select(single), inner.clone()).prop_map(|(f, a)| Expr::Call(f, vec![a])),
            (any::<bool>(), prop::collection::vec(inner.clone(), 2..4)).prop_map(|(min, a)| {
                Expr::Call(if min { Function::Min } else { Function::Max }, a)
            }),
            (0_u32..3, 0_u32..6, inner).prop_map(|(low, high, body)| {
                Expr::Sum(Box::new(Sum {
                    index: "k".to_string(),
                    low: Expr::Number(f64::from(low)),
                    high: Expr::Number(f64::from(high)),
                    body,
                }))
            }),
        ]
    })
}

proptest! {
    /// The canonical text says the tree and nothing else.
    #[test]
    fn text_parses_back_to_the_same_tree(formula in formula()) {
        let text = formula.to_string();
        match parse(&text) {
            Ok(back) => prop_assert_eq!(&back, &formula, "{}", text),
            Err(ExprError::TooLong { .. } | ExprError::TooDeep { .. }) => {}
            Err(e) => prop_assert!(false, "{text}: {e}"),
        }
    }

    /// Whatever the tree and the numbers, there is a finite value or an error.
    #[test]
    fn values_are_finite_or_refused(formula in formula(), a: f64, b in -10.0..10.0_f64) {
        let lookup = |name: &str| match name { "a" => Some(a), "b" => Some(b), _ => None };
        let mut branches = Branches::of(&formula);
        if let Ok(got) = formula.evaluate_recording(&lookup, &mut branches) {
            prop_assert!(got.value.is_finite() && 0.0 <= got.rounding && got.rounding.is_finite());
            prop_assert_eq!(formula.evaluate(&lookup), Ok(got.value));
            let shown = formula.substitute(&lookup).evaluate(&lookup);
            prop_assert_eq!(shown, Ok(got.value));
        }
    }

    /// Every tree has LaTeX that Markdown leaves alone.
    #[test]
    fn latex_is_balanced_and_survives_markdown(formula in formula()) {
        let text = formula.latex(&|_| None);
        let count = |c: char| text.matches(c).count();
        prop_assert_eq!(count('{'), count('}'));
        prop_assert_eq!(count('('), count(')'));
        prop_assert_eq!(text.matches(r"\left").count(), text.matches(r"\right").count());
        prop_assert!(!text.contains(['|', '<', '>', '*', '\n']), "{}", text);
        for (i, _) in text.match_indices('\\') {
            prop_assert!(text[i + 1..].starts_with(|c: char| c.is_ascii_alphabetic()), "{}", text);
        }
    }

    /// No text makes the parser panic, and what it reads it writes back.
    #[test]
    fn any_text_is_read_or_refused(text in any_text()) {
        if let Ok(formula) = parse(&text) {
            prop_assert_eq!(parse(&formula.to_string()), Ok(formula));
        }
    }
}

/// Random characters, and random words of the language in random order.
fn any_text() -> impl Strategy<Value = String> {
    let words = [
        "if", "then", "else", "and", "or", "min(", "sum(", "fact(", "k", "a", "1", "2.5e3", "(",
        ")", ",", "+", "-", "*", "/", "^", "<", "<=", "==", "!=", "é", ".", "=", " ",
    ];
    prop_oneof![
        any::<String>(),
        prop::collection::vec(prop::sample::select(words.to_vec()), 0..40)
            .prop_map(|words| words.join(" ")),
        prop::collection::vec(prop::sample::select(words.to_vec()), 0..40)
            .prop_map(|words| words.concat()),
    ]
}
