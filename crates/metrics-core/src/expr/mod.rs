//! The expression language of the catalog: one text from which value, LaTeX and unit come.
//!
//! A formula such as `if n_out <= 1 then 0 else (t_last - t_first) / (n_out - 1)` is parsed into
//! a plain tree ([`Expr`]) that can be evaluated, typeset and checked for its dimension.
//!
//! # The language
//!
//! - numbers (`2`, `0.5`, `1e9`) and names (`n_out`);
//! - `+ - * /` from left to right, `^` from right to left and tighter than a minus sign
//!   (`-a^2` is `-(a^2)`), parentheses;
//! - `if C then A else B`, in parentheses where it is an operand; `C` is made of comparisons
//!   (`< <= > >= == !=`) joined by `and` and `or`, where `and` binds tighter;
//! - `min(a, b, …)`, `max(a, b, …)`, `ceil(x)`, `floor(x)`, `exp(x)`, `ln(x)`, `sqrt(x)`,
//!   `fact(n)`;
//! - `sum(k, lo, hi, body)`: the sum over whole `k` from `lo` to `hi`, both included; 0 if
//!   `hi < lo`.
//!
//! # Examples
//!
//! ```
//! use metrics_core::expr::parse;
//!
//! let tpot = parse("(t_last - t_first) / (n_out - 1)")?;
//! let inputs = |name: &str| match name {
//!     "t_first" => Some(0.25),
//!     "t_last" => Some(1.25),
//!     "n_out" => Some(6.0),
//!     _ => None,
//! };
//! assert_eq!(tpot.evaluate(&inputs)?, 0.2);
//! assert_eq!(tpot.substituted(&inputs), "(1.25 - 0.25) / (6 - 1)");
//! # Ok::<(), metrics_core::expr::ExprError>(())
//! ```

mod eval;
mod latex;
mod parse;
mod unit;

use crate::error::escaped;
use std::fmt;

use crate::units::Unit;

pub use eval::{Branches, Evaluated, MAX_TERMS};
pub use parse::{MAX_DEPTH, MAX_TOKENS, parse};

/// A formula as a tree.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// A literal, finite and not negative: a minus sign is [`Expr::Negative`].
    Number(f64),
    /// An input, or the index of a sum around it.
    Name(String),
    /// A minus sign before an operand.
    Negative(Box<Expr>),
    /// Two operands and what stands between them.
    Binary(Operator, Box<Expr>, Box<Expr>),
    /// The second part where the condition holds, else the third.
    If(Box<Condition>, Box<Expr>, Box<Expr>),
    /// A function of one argument, or of two and more for `min` and `max`.
    Call(Function, Vec<Expr>),
    /// A sum over a whole index.
    Sum(Box<Sum>),
}

/// The sum of `body` over whole `index` from `low` to `high`, both included.
#[derive(Clone, Debug, PartialEq)]
pub struct Sum {
    /// The name that the index has in the body; it hides an input of that name.
    pub index: String,
    /// The first index.
    pub low: Expr,
    /// The last index; a sum that ends before it begins is 0.
    pub high: Expr,
    /// What is summed.
    pub body: Expr,
}

/// What may stand between `if` and `then`.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// Two values compared.
    Compare(Comparison, Expr, Expr),
    /// Both hold.
    And(Box<Condition>, Box<Condition>),
    /// At least one holds.
    Or(Box<Condition>, Box<Condition>),
}

/// An operator between two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `^`
    Power,
}

/// A comparison of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
}

/// A function by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// The smallest argument.
    Min,
    /// The largest argument.
    Max,
    /// The next whole number upwards.
    Ceil,
    /// The next whole number downwards.
    Floor,
    /// The exponential.
    Exp,
    /// The natural logarithm.
    Ln,
    /// The square root.
    Sqrt,
    /// The factorial of a whole number.
    Fact,
}

/// Why a text is no formula, or a formula has no value or unit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExprError {
    /// The text does not follow the language.
    #[error("at character {at}: found {}, expected {expected}", escaped(.found))]
    Syntax {
        /// The position, counted in characters from 1.
        at: usize,
        /// What stands there.
        found: String,
        /// What would be right.
        expected: String,
    },
    /// Parentheses, functions, signs and powers are nested too deeply.
    #[error("at character {at}: nested deeper than {MAX_DEPTH} levels, split the formula")]
    TooDeep {
        /// The position, counted in characters from 1.
        at: usize,
    },
    /// The text has too many numbers, names and operators.
    #[error(
        "at character {at}: a formula has at most {MAX_TOKENS} numbers, names and operators, split it"
    )]
    TooLong {
        /// The position, counted in characters from 1.
        at: usize,
    },
    /// A name stands for nothing.
    #[error("the name `{name}` is not an input")]
    UnknownName {
        /// The name.
        name: String,
    },
    /// A part of the formula has no finite value.
    #[error("`{part}` has no value: {why}")]
    NoValue {
        /// The part.
        part: String,
        /// What would have to be different.
        why: String,
    },
    /// The sums of a formula run over more than [`MAX_TERMS`] terms.
    #[error("`{part}` has no value: its sums run over more than {MAX_TERMS} terms")]
    TooManyTerms {
        /// The sum at which the limit was reached.
        part: String,
    },
    /// Two parts that must have one unit have two.
    #[error("the units in `{part}` differ: `{left}` has {left_unit}, `{right}` has {right_unit}")]
    UnitsDiffer {
        /// The part that joins them.
        part: String,
        /// One side.
        left: String,
        /// Its unit.
        left_unit: String,
        /// The other side.
        right: String,
        /// Its unit.
        right_unit: String,
    },
    /// A part has a unit that cannot stand where it stands.
    #[error("in `{part}`, `{operand}` has the unit {unit} but must {must}")]
    UnitNotAllowed {
        /// The part.
        part: String,
        /// The operand in it.
        operand: String,
        /// Its unit.
        unit: String,
        /// What would be right.
        must: &'static str,
    },
    /// A formula got more or fewer numbers than it has inputs.
    #[error("{id} takes {expected} inputs, got {got}")]
    InputCount {
        /// The metric.
        id: &'static str,
        /// How many it takes.
        expected: usize,
        /// How many came.
        got: usize,
    },
    /// A law over many items has no formula over scalars.
    #[error("{id} is computed over many items, it has no formula text")]
    NotScalar {
        /// The metric.
        id: &'static str,
    },
}

impl Operator {
    /// How it is written.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Power => "^",
        }
    }
}

impl Comparison {
    const ALL: [Self; 6] = [
        Self::Less,
        Self::LessOrEqual,
        Self::Greater,
        Self::GreaterOrEqual,
        Self::Equal,
        Self::NotEqual,
    ];

    /// How it is written.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::Equal => "==",
            Self::NotEqual => "!=",
        }
    }

    /// The comparison that holds exactly where this one does not.
    #[must_use]
    pub const fn opposite(self) -> Self {
        match self {
            Self::Less => Self::GreaterOrEqual,
            Self::LessOrEqual => Self::Greater,
            Self::Greater => Self::LessOrEqual,
            Self::GreaterOrEqual => Self::Less,
            Self::Equal => Self::NotEqual,
            Self::NotEqual => Self::Equal,
        }
    }
}

impl Function {
    const ALL: [Self; 8] = [
        Self::Min,
        Self::Max,
        Self::Ceil,
        Self::Floor,
        Self::Exp,
        Self::Ln,
        Self::Sqrt,
        Self::Fact,
    ];

    /// Its name in the text.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Min => "min",
            Self::Max => "max",
            Self::Ceil => "ceil",
            Self::Floor => "floor",
            Self::Exp => "exp",
            Self::Ln => "ln",
            Self::Sqrt => "sqrt",
            Self::Fact => "fact",
        }
    }

    /// Whether it takes two and more arguments instead of one.
    const fn takes_many(self) -> bool {
        matches!(self, Self::Min | Self::Max)
    }
}

impl Expr {
    /// The names that stand for inputs, each once, in order of first appearance.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        let mut names = Vec::new();
        self.collect_names(&mut Vec::new(), &mut names);
        names
    }

    /// The indices of the sums, in order of appearance.
    #[must_use]
    pub fn indices(&self) -> Vec<&str> {
        let mut indices = Vec::new();
        self.visit(&mut |e| {
            if let Self::Sum(sum) = e {
                indices.push(sum.index.as_str());
            }
        });
        indices
    }

    /// The formula with numbers in the place of names, and each `if` replaced by the branch that
    /// these numbers take.
    ///
    /// Names that `lookup` does not know stay, and so does an `if` whose condition needs one.
    #[must_use]
    pub fn substitute(&self, lookup: &dyn Fn(&str) -> Option<f64>) -> Self {
        let put = |e: &Self| Box::new(e.substitute(lookup));
        match self {
            Self::Number(_) => self.clone(),
            Self::Name(name) => match lookup(name) {
                Some(x) if x.is_finite() && x < 0.0 => Self::Negative(Box::new(Self::Number(-x))),
                // Adding zero turns negative zero into plain zero.
                Some(x) if x.is_finite() => Self::Number(x + 0.0),
                _ => self.clone(),
            },
            Self::Negative(a) => Self::Negative(put(a)),
            Self::Binary(op, a, b) => Self::Binary(*op, put(a), put(b)),
            Self::If(condition, a, b) => match condition.holds(lookup) {
                Ok(true) => a.substitute(lookup),
                Ok(false) => b.substitute(lookup),
                Err(_) => Self::If(Box::new(condition.substitute(lookup)), put(a), put(b)),
            },
            Self::Call(function, arguments) => {
                Self::Call(*function, arguments.iter().map(|a| a.substitute(lookup)).collect())
            }
            Self::Sum(sum) => {
                let inside = |name: &str| if name == sum.index { None } else { lookup(name) };
                Self::Sum(Box::new(Sum {
                    index: sum.index.clone(),
                    low: sum.low.substitute(lookup),
                    high: sum.high.substitute(lookup),
                    body: sum.body.substitute(&inside),
                }))
            }
        }
    }

    /// [`substitute`](Self::substitute) as text, for explanations: `(1.25 - 0.25) / (6 - 1)`.
    #[must_use]
    pub fn substituted(&self, lookup: &dyn Fn(&str) -> Option<f64>) -> String {
        self.substitute(lookup).to_string()
    }

    /// Calls `see` with this part and every part below it, in order of appearance.
    fn visit<'e>(&'e self, see: &mut dyn FnMut(&'e Self)) {
        see(self);
        match self {
            Self::Number(_) | Self::Name(_) => {}
            Self::Negative(a) => a.visit(see),
            Self::Binary(_, a, b) => {
                a.visit(see);
                b.visit(see);
            }
            Self::If(condition, a, b) => {
                condition.visit(see);
                a.visit(see);
                b.visit(see);
            }
            Self::Call(_, arguments) => arguments.iter().for_each(|a| a.visit(see)),
            Self::Sum(sum) => {
                sum.low.visit(see);
                sum.high.visit(see);
                sum.body.visit(see);
            }
        }
    }

    fn collect_names<'e>(&'e self, bound: &mut Vec<&'e str>, names: &mut Vec<&'e str>) {
        match self {
            Self::Number(_) => {}
            Self::Name(name) => {
                let name = name.as_str();
                if !bound.contains(&name) && !names.contains(&name) {
                    names.push(name);
                }
            }
            Self::Negative(a) => a.collect_names(bound, names),
            Self::Binary(_, a, b) => {
                a.collect_names(bound, names);
                b.collect_names(bound, names);
            }
            Self::If(condition, a, b) => {
                condition.collect_names(bound, names);
                a.collect_names(bound, names);
                b.collect_names(bound, names);
            }
            Self::Call(_, arguments) => {
                for a in arguments {
                    a.collect_names(bound, names);
                }
            }
            Self::Sum(sum) => {
                sum.low.collect_names(bound, names);
                sum.high.collect_names(bound, names);
                bound.push(&sum.index);
                sum.body.collect_names(bound, names);
                bound.pop();
            }
        }
    }

    /// How tightly the outermost part binds in text.
    const fn binding(&self) -> Binding {
        match self {
            Self::If(..) => Binding::Loose,
            Self::Binary(Operator::Add | Operator::Subtract, ..) => Binding::Term,
            Self::Binary(Operator::Multiply | Operator::Divide, ..) => Binding::Factor,
            Self::Negative(_) => Binding::Sign,
            Self::Binary(Operator::Power, ..) => Binding::Power,
            Self::Number(_) | Self::Name(_) | Self::Call(..) | Self::Sum(_) => Binding::Atom,
        }
    }

    /// Writes the text, in parentheses if it binds less tightly than `least`.
    fn write(&self, f: &mut fmt::Formatter<'_>, least: Binding) -> fmt::Result {
        if self.binding() < least {
            return write!(f, "({self})");
        }
        match self {
            Self::Number(x) => write_number(f, *x),
            Self::Name(name) => f.write_str(name),
            Self::Negative(a) => {
                f.write_str("-")?;
                a.write(f, Binding::Sign)
            }
            Self::Binary(op, a, b) => {
                let (left, right) = match op {
                    Operator::Add | Operator::Subtract => (Binding::Term, Binding::Factor),
                    Operator::Multiply | Operator::Divide => (Binding::Factor, Binding::Sign),
                    Operator::Power => (Binding::Atom, Binding::Sign),
                };
                a.write(f, left)?;
                match op {
                    Operator::Power => f.write_str("^")?,
                    _ => write!(f, " {} ", op.text())?,
                }
                b.write(f, right)
            }
            Self::If(condition, a, b) => write!(f, "if {condition} then {a} else {b}"),
            Self::Call(function, arguments) => {
                write!(f, "{}(", function.text())?;
                for (i, a) in arguments.iter().enumerate() {
                    if 0 < i {
                        f.write_str(", ")?;
                    }
                    a.write(f, Binding::Loose)?;
                }
                f.write_str(")")
            }
            Self::Sum(sum) => {
                let Sum { index, low, high, body } = &**sum;
                write!(f, "sum({index}, {low}, {high}, {body})")
            }
        }
    }
}

impl fmt::Display for Expr {
    /// The canonical text: it parses back to the same tree.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, Binding::Loose)
    }
}

/// Plain digits where people would write them so, else with an exponent; either reads back exactly.
fn write_number(f: &mut fmt::Formatter<'_>, x: f64) -> fmt::Result {
    if x == 0.0 || (1e-6 <= x && x < 1e16) { write!(f, "{x}") } else { write!(f, "{x:e}") }
}

/// How tightly a part binds, loosest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Binding {
    /// `if`, which takes everything to its right.
    Loose,
    /// `+` and `-`.
    Term,
    /// `*` and `/`.
    Factor,
    /// A minus sign.
    Sign,
    /// `^`.
    Power,
    /// What never needs parentheses.
    Atom,
}

impl Condition {
    /// The condition with numbers in the place of names.
    fn substitute(&self, lookup: &dyn Fn(&str) -> Option<f64>) -> Self {
        let put = |c: &Self| Box::new(c.substitute(lookup));
        match self {
            Self::Compare(comparison, a, b) => {
                Self::Compare(*comparison, a.substitute(lookup), b.substitute(lookup))
            }
            Self::And(a, b) => Self::And(put(a), put(b)),
            Self::Or(a, b) => Self::Or(put(a), put(b)),
        }
    }

    fn visit<'e>(&'e self, see: &mut dyn FnMut(&'e Expr)) {
        match self {
            Self::Compare(_, a, b) => {
                a.visit(see);
                b.visit(see);
            }
            Self::And(a, b) | Self::Or(a, b) => {
                a.visit(see);
                b.visit(see);
            }
        }
    }

    fn collect_names<'e>(&'e self, bound: &mut Vec<&'e str>, names: &mut Vec<&'e str>) {
        match self {
            Self::Compare(_, a, b) => {
                a.collect_names(bound, names);
                b.collect_names(bound, names);
            }
            Self::And(a, b) | Self::Or(a, b) => {
                a.collect_names(bound, names);
                b.collect_names(bound, names);
            }
        }
    }

    /// The condition that holds exactly where this one does not.
    fn opposite(&self) -> Self {
        match self {
            Self::Compare(comparison, a, b) => {
                Self::Compare(comparison.opposite(), a.clone(), b.clone())
            }
            Self::And(a, b) => Self::Or(Box::new(a.opposite()), Box::new(b.opposite())),
            Self::Or(a, b) => Self::And(Box::new(a.opposite()), Box::new(b.opposite())),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |c: &Self, parentheses: bool| {
            if parentheses { format!("({c})") } else { c.to_string() }
        };
        match self {
            Self::Compare(comparison, a, b) => {
                a.write(f, Binding::Term)?;
                write!(f, " {} ", comparison.text())?;
                b.write(f, Binding::Term)
            }
            Self::And(a, b) => {
                let left = side(a, matches!(**a, Self::Or(..)));
                let right = side(b, !matches!(**b, Self::Compare(..)));
                write!(f, "{left} and {right}")
            }
            Self::Or(a, b) => {
                let right = side(b, matches!(**b, Self::Or(..)));
                write!(f, "{a} or {right}")
            }
        }
    }
}

impl Expr {
    /// The value of the formula.
    ///
    /// It follows the mathematics, not a stable algorithm: sums run in index order, factorials
    /// are products. `0^0` is 1, as power series have it.
    ///
    /// # Errors
    ///
    /// [`ExprError::UnknownName`] for a name without a value; [`ExprError::NoValue`] for a
    /// division by zero, a logarithm or root outside its domain, a factorial or sum bound that is
    /// not whole, and anything that is not finite; [`ExprError::TooManyTerms`].
    pub fn evaluate(&self, lookup: &dyn Fn(&str) -> Option<f64>) -> Result<f64, ExprError> {
        eval::evaluate(self, lookup, None).map(|e| e.value)
    }

    /// The value with what rounding may have done to it, recording in `branches` (of this very
    /// tree) which branches were taken.
    ///
    /// # Errors
    ///
    /// As [`Self::evaluate`].
    pub fn evaluate_recording<'e>(
        &'e self,
        lookup: &dyn Fn(&str) -> Option<f64>,
        branches: &mut Branches<'e>,
    ) -> Result<Evaluated, ExprError> {
        eval::evaluate(self, lookup, Some(branches))
    }

    /// The formula in LaTeX that KaTeX and MathJax typeset, safe inside a Markdown table.
    ///
    /// `symbol` gives the LaTeX of a name; a name without one is set as it is spelled.
    #[must_use]
    pub fn latex<'s>(&self, symbol: &dyn Fn(&str) -> Option<&'s str>) -> String {
        latex::latex(self, symbol)
    }

    /// The unit of the formula's value.
    ///
    /// Literals are pure numbers in products. As a term of a sum, a side of a comparison, a branch
    /// of `if` or an argument of `min` and `max`, a literal takes the other side's unit if that
    /// counts something (token, request, byte, …), and 0 takes any. `ceil` and `floor` keep pure
    /// numbers and counts; `exp`, `ln` and `fact` need pure numbers; what is not a pure number is
    /// raised to whole literal powers only.
    ///
    /// # Errors
    ///
    /// [`ExprError::UnitsDiffer`] or [`ExprError::UnitNotAllowed`] naming the part and the units;
    /// [`ExprError::UnknownName`].
    pub fn unit(&self, unit_of: &dyn Fn(&str) -> Option<Unit>) -> Result<Unit, ExprError> {
        unit::unit(self, unit_of)
    }
}

#[cfg(test)]
mod tests;
