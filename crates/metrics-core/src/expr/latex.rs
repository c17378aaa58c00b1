//! A formula in LaTeX that KaTeX and MathJax typeset.
//!
//! Markdown eats a backslash before punctuation and reads a pipe as a table's column, so the text
//! has neither: rows end with `\cr`, parentheses need no escape, bounds are `\lceil` and the like.

use super::{Comparison, Condition, Expr, Function, Operator, Sum};

/// How tightly typeset text binds, loosest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Binding {
    /// `cases`, which must not be followed by anything.
    Loose,
    /// Sums of terms, and what begins with a minus sign.
    Term,
    /// A `\sum`, which takes the factors to its right.
    Sum,
    /// Products.
    Factor,
    /// Powers and factorials, which may not be raised again.
    Power,
    /// Fractions: no parentheses in a product, but as a base.
    Fraction,
    /// What never needs parentheses.
    Atom,
}

struct Set {
    text: String,
    binding: Binding,
}

type Symbols<'a, 's> = &'a dyn Fn(&str) -> Option<&'s str>;

pub(super) fn latex(formula: &Expr, symbol: Symbols<'_, '_>) -> String {
    set(formula, symbol).text
}

fn in_parentheses(text: &str) -> String {
    let tall = [r"\frac", r"\sum", r"\begin", r"\sqrt"].iter().any(|t| text.contains(t));
    if tall { format!(r"\left({text}\right)") } else { format!("({text})") }
}

impl Set {
    fn new(text: String, binding: Binding) -> Self {
        Self { text, binding }
    }

    /// The text where it must bind at least this tightly.
    fn at_least(self, least: Binding) -> String {
        if self.binding < least { in_parentheses(&self.text) } else { self.text }
    }

    /// The text to the right of a sign, where it may not begin with another.
    fn after_sign(self, least: Binding) -> String {
        if self.binding < least || self.text.starts_with('-') {
            in_parentheses(&self.text)
        } else {
            self.text
        }
    }
}

fn set(e: &Expr, symbol: Symbols<'_, '_>) -> Set {
    match e {
        Expr::Number(x) => number(*x),
        Expr::Name(name) => named(name, symbol),
        Expr::Negative(a) => {
            let a = set(a, symbol).after_sign(Binding::Sum);
            Set::new(format!("-{a}"), Binding::Term)
        }
        Expr::Binary(op, a, b) => binary(*op, a, b, symbol),
        Expr::If(..) => cases(e, symbol),
        Expr::Call(function, arguments) => call(*function, arguments, symbol),
        Expr::Sum(sum) => {
            let Sum { index, low, high, body } = &**sum;
            let index = named(index, symbol).text;
            let (low, high) = (latex(low, symbol), latex(high, symbol));
            let body = set(body, symbol).after_sign(Binding::Sum);
            Set::new(format!(r"\sum_{{{index}={low}}}^{{{high}}} {body}"), Binding::Sum)
        }
    }
}

/// A literal; an exponent becomes a power of ten.
fn number(x: f64) -> Set {
    let text = Expr::Number(x).to_string();
    match text.split_once('e') {
        None => Set::new(text, Binding::Atom),
        Some(("1", exponent)) => Set::new(format!("10^{{{exponent}}}"), Binding::Power),
        Some((mantissa, exponent)) => {
            Set::new(format!(r"{mantissa} \cdot 10^{{{exponent}}}"), Binding::Factor)
        }
    }
}

/// The symbol of a name; without one, the words after the first become a subscript.
fn named(name: &str, symbol: Symbols<'_, '_>) -> Set {
    let text = if let Some(symbol) = symbol(name) {
        symbol.to_string()
    } else {
        let upright = |word: &str| {
            if word.len() == 1 { word.to_string() } else { format!(r"\mathrm{{{word}}}") }
        };
        let mut words = name.split('_').filter(|word| !word.is_empty());
        let first = upright(words.next().unwrap_or("x"));
        let rest: Vec<&str> = words.collect();
        if rest.is_empty() { first } else { format!(r"{first}_{{\mathrm{{{}}}}}", rest.join(",")) }
    };
    // A symbol with an exponent of its own cannot be raised again.
    let binding = if text.contains('^') { Binding::Power } else { Binding::Atom };
    Set::new(text, binding)
}

fn binary(op: Operator, a: &Expr, b: &Expr, symbol: Symbols<'_, '_>) -> Set {
    match op {
        Operator::Add => {
            let left = set(a, symbol).at_least(Binding::Term);
            let right = set(b, symbol).after_sign(Binding::Term);
            Set::new(format!("{left} + {right}"), Binding::Term)
        }
        Operator::Subtract => {
            let left = set(a, symbol).at_least(Binding::Term);
            let right = set(b, symbol).after_sign(Binding::Sum);
            Set::new(format!("{left} - {right}"), Binding::Term)
        }
        Operator::Multiply => {
            // A leading minus may stay in front of the whole product.
            let (left, binding) = match a {
                Expr::Negative(inner) => {
                    let inner = set(inner, symbol).after_sign(Binding::Factor);
                    (format!("-{inner}"), Binding::Term)
                }
                _ => (set(a, symbol).at_least(Binding::Factor), Binding::Factor),
            };
            let right = set(b, symbol).after_sign(Binding::Factor);
            Set::new(format!(r"{left} \cdot {right}"), binding)
        }
        Operator::Divide => {
            let (up, down) = (latex(a, symbol), latex(b, symbol));
            Set::new(format!(r"\frac{{{up}}}{{{down}}}"), Binding::Fraction)
        }
        Operator::Power => {
            let base = set(a, symbol).at_least(Binding::Atom);
            let exponent = latex(b, symbol);
            Set::new(format!("{base}^{{{exponent}}}"), Binding::Power)
        }
    }
}

/// The rows of an `if`, and of every `if` in its `else`.
fn cases(e: &Expr, symbol: Symbols<'_, '_>) -> Set {
    let mut rows = Vec::new();
    let mut rest = e;
    let mut last = String::new();
    while let Expr::If(condition, yes, no) = rest {
        rows.push(format!("{} & {}", latex(yes, symbol), condition_latex(condition, symbol)));
        // The last row of a single `if` can say its condition, which needs no language.
        last = if rows.len() == 1 {
            condition_latex(&condition.opposite(), symbol)
        } else {
            r"\text{otherwise}".to_string()
        };
        rest = no;
    }
    rows.push(format!("{} & {last}", latex(rest, symbol)));
    let rows = rows.join(r" \cr ");
    Set::new(format!(r"\begin{{cases}} {rows} \end{{cases}}"), Binding::Loose)
}

fn condition_latex(condition: &Condition, symbol: Symbols<'_, '_>) -> String {
    let side = |c: &Condition, parentheses: bool| {
        let text = condition_latex(c, symbol);
        if parentheses { in_parentheses(&text) } else { text }
    };
    match condition {
        Condition::Compare(comparison, a, b) => {
            let sign = match comparison {
                // The bare signs would begin and end a tag in HTML.
                Comparison::Less => r"\lt",
                Comparison::LessOrEqual => r"\le",
                Comparison::Greater => r"\gt",
                Comparison::GreaterOrEqual => r"\ge",
                Comparison::Equal => "=",
                Comparison::NotEqual => r"\ne",
            };
            let left = set(a, symbol).at_least(Binding::Term);
            let right = set(b, symbol).at_least(Binding::Term);
            format!("{left} {sign} {right}")
        }
        Condition::And(a, b) => {
            let left = side(a, matches!(**a, Condition::Or(..)));
            let right = side(b, matches!(**b, Condition::Or(..)));
            format!(r"{left} \land {right}")
        }
        Condition::Or(a, b) => format!(r"{} \lor {}", side(a, false), side(b, false)),
    }
}

fn call(function: Function, arguments: &[Expr], symbol: Symbols<'_, '_>) -> Set {
    let inside: Vec<String> = arguments.iter().map(|a| latex(a, symbol)).collect();
    let inside = inside.join(", ");
    let text = match function {
        Function::Min => format!(r"\min{}", in_parentheses(&inside)),
        Function::Max => format!(r"\max{}", in_parentheses(&inside)),
        Function::Ln => format!(r"\ln{}", in_parentheses(&inside)),
        Function::Ceil => format!(r"\left\lceil {inside} \right\rceil"),
        Function::Floor => format!(r"\left\lfloor {inside} \right\rfloor"),
        Function::Sqrt => format!(r"\sqrt{{{inside}}}"),
        Function::Exp => return Set::new(format!("e^{{{inside}}}"), Binding::Power),
        Function::Fact => {
            let operand = match arguments {
                [one] => set(one, symbol).at_least(Binding::Atom),
                _ => in_parentheses(&inside),
            };
            return Set::new(format!("{operand}!"), Binding::Power);
        }
    };
    let raised_badly = matches!(function, Function::Min | Function::Max | Function::Ln);
    Set::new(text, if raised_badly { Binding::Power } else { Binding::Atom })
}
